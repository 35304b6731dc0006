"""Counting: passes, stopping, checkpoints, and corpora too small for anything."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ensue.core.errors import InputError
from ensue.models import ngram_sorting
from ensue.models.ngram import Mode, NGram, NGramConfig, NGramCounter
from ensue.models.ngram_counting import split_groups
from ensue.models.ngram_sorting import Groups, sort_keys
from ensue.models.ngram_trie import appended, with_capacity
from ensue.train.counting import Reason, count

ORDER = 4


def made(**changed: Any) -> NGramCounter:
    return NGramCounter(NGramConfig(**{"vocabulary": 6, "order": ORDER, "end": 0, **changed}))


def tables_equal(one: NGram, other: NGram) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.buffers(), other.buffers(), strict=True))


def counted_plainly(stream: list[int], order: int, end: int) -> Counter[tuple[int, ...]]:
    """Every n-gram of ``order`` tokens with no end token inside; a leading end token is context only."""
    runs = (tuple(stream[at : at + order]) for at in range(len(stream) - order + 1))
    found = Counter(run for run in runs if end not in run[1:-1])
    if order == 1 and stream and stream[0] == end:
        found[(end,)] -= 1
    return +found


def counted(counter: NGramCounter, order: int) -> dict[tuple[int, ...], int]:
    trie = counter.trie
    grams: list[tuple[int, ...]] = [(word,) for word in range(6)]
    for level in range(2, order + 1):
        low, high = trie.starts[level - 2 : level]
        fan = np.diff(trie.offsets[low : high + 1])
        contexts = np.repeat(np.arange(len(fan)), fan)
        last = trie.words[trie.starts[level - 1] : trie.starts[level]]
        grams = [(*grams[context], int(word)) for context, word in zip(contexts, last, strict=True)]
    counts = trie.counts[trie.starts[order - 1] : trie.starts[order]].tolist()
    return {gram: times for gram, times in zip(grams, counts, strict=True) if times}


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.integers(0, 5), max_size=60),
    st.booleans(),
    st.sampled_from([np.int64, np.uint16]),
)
def test_counts_are_those_of_a_plain_loop(body: list[int], marked: bool, kind: type) -> None:
    end = 0 if marked else -1
    stream = [0, *body, 0] if marked else body
    counter = made(end=end)
    assert count(counter, np.array(stream, kind)) is None
    for order in range(1, ORDER + 1):
        assert counted(counter, order) == dict(counted_plainly(stream, order, end))


@pytest.mark.parametrize("mode", ["kneser-ney", "backoff", "add", "mle"])
@pytest.mark.parametrize("stream", [[], [0], [0, 0], [1], [0, 1], [1, 1], [0, 1, 0], [0, 0, 0, 0]])
@pytest.mark.parametrize("end", [-1, 0])
def test_tiny_corpora_give_a_finite_model(mode: Mode, stream: list[int], end: int) -> None:
    counter = made(vocabulary=2, order=5, mode=mode, end=end)
    assert count(counter, np.array(stream, np.int64)) is None
    logits = counter.finish()(torch.tensor([[0, 1, 1, 0, 0, 1]])).logits
    torch.testing.assert_close(logits.exp().sum(-1), torch.ones(1, 6))
    assert torch.isfinite(logits).all()


def test_vocabulary_of_one() -> None:
    counter = made(vocabulary=1)
    count(counter, np.zeros(5, np.int64))
    assert counter.finish()(torch.zeros(1, 2, dtype=torch.int64)).logits.exp().tolist() == [[[1.0], [1.0]]]


def test_wide_and_narrow_indices_agree() -> None:
    stream = np.random.default_rng(0).integers(0, 6, 300)
    counter = made()
    count(counter, stream)
    model = counter.finish()
    wide = NGram(model.config)
    tables = dict(model.state_dict())
    wide.adopt({**tables, "offsets": tables["offsets"].long(), "suffix": tables["suffix"].long()})
    tokens = torch.from_numpy(stream)[None]
    assert torch.equal(model(tokens).logits, wide(tokens).logits)


def test_resumed_between_passes_is_the_same_to_the_bit() -> None:
    stream = np.random.default_rng(0).integers(0, 6, 500)
    kept: list[dict[str, torch.Tensor]] = []
    straight = made()
    count(straight, stream, save=lambda counter: kept.append(counter.tensors()))
    assert len(kept) == ORDER - 1
    model = straight.finish()
    for tensors in kept:
        resumed = made()
        resumed.restore(tensors)
        count(resumed, stream)
        assert tables_equal(model, resumed.finish())


def test_budget_gives_the_orders_finished_so_far_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, seen = np.random.default_rng(0).integers(0, 6, 100), []
    monkeypatch.setattr("ensue.models.ngram_counting.SHARD_TOKENS", 25)

    def out_of_time() -> Reason | None:
        return "budget" if len(seen) >= 7 else None  # the words, four shards of pairs, two of four shards of threes

    counter = made()
    reason = count(counter, stream, progress=lambda *at: seen.append(at), should_stop=out_of_time)
    assert (reason, counter.done) == ("budget", 2)
    assert seen[0] == (100, 400) and 200 < seen[-1][0] < 300
    again = made()
    again.restore(counter.tensors())
    model = counter.finish()
    assert model.config.order == 2
    assert "only orders up to 2 of 4 were counted: the model has that order" in model.notes
    whole = made()
    count(whole, stream)
    assert count(again, stream) is None
    assert tables_equal(again.finish(), whole.finish())


def test_a_stopped_count_continues_with_the_next_order(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = np.random.default_rng(0).integers(0, 6, 100)
    monkeypatch.setattr("ensue.models.ngram_counting.SHARD_TOKENS", 25)
    whole, stopped = made(), made()
    count(whole, stream)
    for steps in range(1, 30):
        stops = iter([None] * steps + ["interrupted"] * 99)
        if count(stopped, stream, should_stop=lambda: next(stops)) is None:  # noqa: B023
            break
    assert steps > 2 and tables_equal(stopped.finish(), whole.finish())


def test_nothing_counted_gives_every_word_the_same() -> None:
    model = made().finish()
    assert model.notes[0] == "nothing was counted: the model gives every word the same probability"
    torch.testing.assert_close(model(torch.tensor([[0]])).logits[0, 0].exp(), torch.full((6,), 1 / 6))


def test_tokens_outside_the_vocabulary_are_named() -> None:
    with pytest.raises(InputError, match="token 6 is not in a vocabulary of 6"):
        count(made(), np.array([0, 6]))
    with pytest.raises(InputError, match="token -1 "):
        count(made(), np.array([-1, 2]))


def test_memory_mapped_stream(tmp_path: Path) -> None:
    stream = np.random.default_rng(0).integers(0, 6, 500).astype(np.uint16)
    stream.tofile(tmp_path / "tokens.bin")
    mapped, plain = made(), made()
    count(mapped, np.memmap(tmp_path / "tokens.bin", np.uint16, "r"))
    count(plain, stream)
    assert tables_equal(mapped.finish(), plain.finish())


def test_shards_for_threads_do_not_change_the_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = np.random.default_rng(0).integers(0, 6, 500)
    plain, shared = made(), made()
    count(plain, stream)
    monkeypatch.setattr("ensue.models.ngram_counting.SHARD_TOKENS", 8)
    monkeypatch.setattr("ensue.models.ngram_trie.MIN_THREAD_NGRAMS", 8)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    count(shared, stream)
    assert tables_equal(plain.finish(), shared.finish())


def test_an_array_grows_within_its_capacity_and_keeps_its_values() -> None:
    array = with_capacity(np.arange(3, dtype=np.int32), 8)
    longer = appended(array, np.arange(4, dtype=np.int32))
    assert longer.tolist() == [0, 1, 2, 0, 1, 2, 3]
    assert longer.ctypes.data == array.ctypes.data
    wide = appended(longer, np.array([1 << 40]))
    assert wide.tolist() == [0, 1, 2, 0, 1, 2, 3, 1 << 40]
    assert longer.tolist() == [0, 1, 2, 0, 1, 2, 3]


def test_groups_are_split_between_words() -> None:
    groups = Groups(np.arange(10), np.array([1, 4, 2, 3]), np.array([5, 6, 7, 8]))
    parts = split_groups(groups, 3)
    assert [part.words.tolist() for part in parts] == [[5, 6], [7], [8]]
    assert [part.positions.tolist() for part in parts] == [[0, 1, 2, 3, 4], [5, 6], [7, 8, 9]]
    assert np.concatenate([part.sizes for part in parts]).tolist() == [1, 4, 2, 3]


@given(st.lists(st.integers(0, 200), max_size=9), st.integers(0, 3000))
@settings(max_examples=100, deadline=None)
def test_keys_of_any_number_of_runs_are_sorted(sizes: list[int], seed: int) -> None:
    chance = np.random.default_rng(seed)
    keys = np.concatenate([np.zeros(0, np.int64), *(np.sort(chance.integers(0, 500, size)) for size in sizes)])
    for values in (keys, keys[::-1].copy(), chance.permutation(keys)):
        expected = np.sort(values)
        sort_keys(values)
        assert (values == expected).all()


def test_few_ascending_runs_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba's quicksort takes quadratic time on a rotated array: minutes for a text that repeats itself."""
    merged: list[int] = []

    def merge(keys: np.ndarray, runs: int) -> None:
        merged.append(runs)
        keys.sort()

    monkeypatch.setattr(ngram_sorting, "merge_runs", merge)
    plain = sort_keys.py_func  # type: ignore[attr-defined]
    plain(np.append(np.arange(1, 1000), 0))
    plain(np.concatenate([np.arange(500, 1000), np.arange(500)]))
    plain(np.random.default_rng(0).permutation(1000))
    assert merged == [2, 2]
