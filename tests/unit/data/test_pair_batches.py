from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ensue.core.errors import InputError
from ensue.data import pair_batches as buckets_module
from ensue.data.pair_batches import PairBatch, PairBatches
from ensue.data.pair_tokens import PairTokens

END = 7
lengths = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=60)
limits = st.integers(1, 200)
seeds = st.integers(0, 2**40)


def pairs_of(sizes: list[tuple[int, int]]) -> PairTokens:
    """Pair i has the tokens 100 (i + 1), 100 (i + 1) + 1, … on both sides, and an end mark after them."""

    def side(which: int) -> tuple[np.ndarray, np.ndarray]:
        parts = [[*range(100 * place + 100, 100 * place + 99 + size[which]), END] for place, size in enumerate(sizes)]
        return np.concatenate([np.array(part, dtype=np.int32) for part in parts]), np.cumsum([0, *map(len, parts)])

    return PairTokens(*side(0), *side(1), np.arange(1, len(sizes) + 1), (0, 0), 0, 0, 0.0)


def multi30k_like(count: int, seed: int = 0) -> PairTokens:
    """Lengths as of short captions in two languages: means near 16, correlation near 0.87."""
    chance = np.random.default_rng(seed)
    source = np.clip(chance.gamma(9, 1.6, count) + 1, 3, 50)
    target = np.clip(source * 1.03 + chance.normal(0, 2.7, count), 3, 60)
    return pairs_of(list(zip(source.astype(int).tolist(), target.astype(int).tolist())))


def same(one: PairBatch, other: PairBatch) -> bool:
    names = ("source", "source_lengths", "tokens", "targets", "lengths")
    return all(torch.equal(getattr(one, name), getattr(other, name)) for name in names)


def rows_of(batch: PairBatch) -> list[tuple[list[int], list[int]]]:
    """The sentences without their padding."""
    sides = ((batch.source, batch.source_lengths), (batch.targets, batch.lengths))
    source, target = ([row[:n].tolist() for row, n in zip(block, counts.tolist())] for block, counts in sides)
    return list(zip(source, target))


@settings(max_examples=60, deadline=None)
@given(sizes=lengths, tokens=limits, seed=seeds, epochs=st.integers(1, 3))
def test_every_pair_comes_once_an_epoch_and_batches_keep_to_the_limit(
    sizes: list[tuple[int, int]], tokens: int, seed: int, epochs: int
) -> None:
    pairs = pairs_of(sizes)
    buckets = PairBatches(pairs, tokens, END, seed)
    expected = sorted((source.tolist(), target.tolist()) for source, target in map(pairs.pair, range(len(pairs))))
    step = 0
    for _ in range(epochs):
        seen: list[tuple[list[int], list[int]]] = []
        while len(seen) < len(sizes):
            batch = buckets.batch(step)
            rows, widest = len(batch.lengths), max(batch.source.shape[1], batch.targets.shape[1])
            assert rows * widest <= tokens or rows == 1
            seen += rows_of(batch)
            step += 1
        assert sorted(seen) == expected


@settings(max_examples=60, deadline=None)
@given(sizes=lengths, tokens=limits, seed=seeds, step=st.integers(0, 40))
def test_padding_is_zero_and_the_decoder_reads_the_previous_token(
    sizes: list[tuple[int, int]], tokens: int, seed: int, step: int
) -> None:
    batch = PairBatches(pairs_of(sizes), tokens, END, seed).batch(step)
    assert batch.reset_state and batch.size == int((batch.targets != 0).sum())
    assert batch.tokens.shape == batch.targets.shape
    for block in (batch.source, batch.tokens, batch.targets):
        assert block.dtype == torch.int64 and block.is_contiguous()
    assert batch.source.shape[1] == batch.source_lengths.max() and batch.targets.shape[1] == batch.lengths.max()
    for row, (count, heard) in enumerate(zip(batch.lengths.tolist(), batch.source_lengths.tolist())):
        assert batch.targets[row, count - 1] == END and batch.source[row, heard - 1] == END
        assert batch.tokens[row, :count].tolist() == [END, *batch.targets[row, : count - 1].tolist()]
        assert not batch.targets[row, count:].any() and not batch.tokens[row, count:].any()
        assert not batch.source[row, heard:].any()


@settings(max_examples=40, deadline=None)
@given(sizes=lengths, tokens=limits, seed=seeds, steps=st.lists(st.integers(0, 60), min_size=1, max_size=6))
def test_a_batch_depends_on_seed_and_step_only(
    sizes: list[tuple[int, int]], tokens: int, seed: int, steps: list[int]
) -> None:
    pairs = pairs_of(sizes)
    in_order = PairBatches(pairs, tokens, END, seed)
    batches = [in_order.batch(step) for step in range(max(steps) + 1)]
    jumping = PairBatches(pairs, tokens, END, seed)
    for step in steps:
        assert same(jumping.batch(step), batches[step])
        assert same(PairBatches(pairs, tokens, END, seed).batch(step), batches[step])


def test_lengths_like_those_of_captions_need_little_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = multi30k_like(12_000)
    buckets = PairBatches(pairs, 1_000, END)
    assert 0 < buckets.padding < 0.065
    full = np.maximum(np.diff(pairs.source_at), np.diff(pairs.target_at)).sum() / 1_000
    assert len(buckets) < 1.05 * full
    monkeypatch.setattr(buckets_module, "LENGTH_LAYERS", 10**9)
    assert PairBatches(pairs, 1_000, END).padding > 1.3 * buckets.padding  # by the longer side alone
    assert PairBatches(pairs, 10**9, END).padding > 0.5  # in no order at all


def test_padding_is_the_fraction_of_padded_positions() -> None:
    buckets = PairBatches(multi30k_like(300), 500, END)
    batches = [buckets.batch(step) for step in range(len(buckets))]
    places = sum(batch.source.numel() + batch.targets.numel() for batch in batches)
    real = sum(int(batch.source_lengths.sum()) + batch.size for batch in batches)
    assert buckets.padding == pytest.approx(1 - real / places)
    assert buckets.rows == max(len(batch.lengths) for batch in batches)
    assert buckets.steps_per_epoch == len(batches)


def test_equal_lengths_need_no_padding() -> None:
    assert PairBatches(pairs_of([(5, 9)] * 50), 100, END).padding == 0


def test_each_epoch_groups_pairs_differently_and_shuffles_the_batches() -> None:
    count = 8_000
    buckets = PairBatches(multi30k_like(count), 1_000, END)

    def epoch(start: int) -> tuple[list[set[int]], int]:
        groups: list[set[int]] = []
        while sum(map(len, groups)) < count:
            groups.append(set(buckets.batch(start + len(groups)).targets[:, 0].tolist()))
        return groups, start + len(groups)

    first, start = epoch(0)
    second, _ = epoch(start)
    at = {pair: place for place, group in enumerate(first) for pair in group}
    again = total = 0
    for group in second:
        counts = np.bincount([at[pair] for pair in group])
        again, total = again + int((counts * (counts - 1)).sum()), total + len(group) * (len(group) - 1)
    assert again / total < 0.3
    sizes = [len(group) for group in first]
    assert abs(np.corrcoef(sizes, range(len(sizes)))[0, 1]) < 0.4  # in order of their lengths it is near 1


def test_seeds_give_different_epochs() -> None:
    pairs = multi30k_like(200)
    one, other = (PairBatches(pairs, 300, END, seed) for seed in (1, 2))
    assert not all(same(one.batch(step), other.batch(step)) for step in range(3))


def test_a_pair_longer_than_the_limit_is_its_own_batch() -> None:
    buckets = PairBatches(pairs_of([(3, 3), (40, 2), (2, 41), (3, 3)]), 10, END)
    sizes = sorted((len(batch.lengths), batch.size) for batch in map(buckets.batch, range(len(buckets))))
    assert sizes == [(1, 2), (1, 41), (2, 6)]


def test_no_tokens_and_no_pairs_are_errors() -> None:
    with pytest.raises(InputError, match="batches of 0 tokens"):
        PairBatches(pairs_of([(2, 2)]), 0, END)
    with pytest.raises(InputError, match="no rows to make batches of"):
        PairBatches(PairTokens(*[np.zeros(n, dtype=np.int64) for n in (0, 1, 0, 1, 0)], (0, 0), 0, 0, 0.0), 9, END)
