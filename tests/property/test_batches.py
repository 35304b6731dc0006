from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ensue.core.errors import InputError
from ensue.data.batches import Batch, StreamBatches, WindowBatches

sizes = st.integers(2, 300)
rows = st.integers(1, 12)
lengths = st.integers(1, 40)
seeds = st.integers(0, 2**40)


def text_of(size: int) -> np.ndarray:
    """Every token is its own place, but the last is the first again, as end marks are."""
    return np.array([*range(size - 1), 0], dtype=np.uint16)


def same(one: Batch, other: Batch) -> bool:
    equal = torch.equal(one.tokens, other.tokens) and torch.equal(one.targets, other.targets)
    return equal and one.reset_state == other.reset_state


def check_shift(batch: Batch, size: int) -> None:
    assert batch.tokens.dtype == batch.targets.dtype == torch.int64
    assert torch.equal(batch.targets, (batch.tokens + 1) % (size - 1))


@settings(max_examples=100, deadline=None)
@given(size=sizes, rows=rows, length=lengths, seed=seeds, epoch=st.integers(0, 3))
def test_streams_have_every_target_once_an_epoch(size: int, rows: int, length: int, seed: int, epoch: int) -> None:
    streams = StreamBatches(text_of(size), rows, length, seed)
    assert 1 <= streams.rows <= rows
    seen: Counter[int] = Counter()
    last: torch.Tensor | None = None
    for place in range(len(streams)):
        batch = streams.batch(epoch * len(streams) + place)
        check_shift(batch, size)
        assert batch.reset_state == (place == 0)
        assert batch.keep_state == (place + 1 < len(streams))
        assert batch.tokens.shape[0] == streams.rows and 1 <= batch.tokens.shape[1] <= length
        if last is not None:
            assert torch.equal(batch.tokens[:, 0], last)
        last = batch.targets[:, -1]
        seen.update(batch.targets.flatten().tolist())
    assert set(seen.values()) == {1}
    assert seen.total() == (size - 1) // streams.rows * streams.rows


@settings(max_examples=100, deadline=None)
@given(size=sizes, rows=rows, length=lengths, seed=seeds)
def test_windows_lie_inside_the_text_and_have_no_target_twice_an_epoch(
    size: int, rows: int, length: int, seed: int
) -> None:
    if size - 1 < length:
        said = rf"{size} tokens, fewer than a window of {length} .*train\.length"
        with pytest.raises(InputError, match=said):
            WindowBatches(text_of(size), rows, length, seed)
        return
    windows = WindowBatches(np.arange(size, dtype=np.uint32), rows, length, seed)
    batches = [windows.batch(step) for step in range(2 * len(windows))]
    for batch in batches:
        assert batch.reset_state and not batch.keep_state and batch.tokens.shape == (rows, length)
        assert torch.equal(batch.targets, batch.tokens + 1)
        assert batch.targets.max() < size
    count = max(1, (size - length) // length)
    assert len(windows) == -(-count // rows)
    first_epoch = torch.cat([batch.targets for batch in batches])[:count].flatten()
    assert len(set(first_epoch.tolist())) == count * length > size - 1 - 2 * length


@settings(max_examples=60, deadline=None)
@given(size=st.integers(50, 300), rows=rows, length=lengths, seed=seeds, step=st.integers(0, 500))
def test_a_step_gives_the_same_batch_at_any_time(size: int, rows: int, length: int, seed: int, step: int) -> None:
    for kind in (StreamBatches, WindowBatches):
        source = kind(text_of(size), rows, length, seed)
        first = source.batch(step)
        source.batch(step + 7)
        assert same(source.batch(step), first)
        assert same(kind(text_of(size), rows, length, seed).batch(step), first)


def test_epochs_and_seeds_differ() -> None:
    text = text_of(1000)
    for kind in (StreamBatches, WindowBatches):
        source = kind(text, 4, 10, seed=1)
        assert not same(source.batch(0), source.batch(len(source)))
        assert not same(source.batch(0), kind(text, 4, 10, seed=2).batch(0))


def test_windows_start_anywhere() -> None:
    windows = WindowBatches(np.arange(200), 8, 10, seed=3)
    starts = torch.cat([windows.batch(step).tokens[:, 0] for step in range(600)])
    assert set(starts.tolist()) == set(range(190))


def test_small_texts_get_fewer_rows_rather_than_short_ones() -> None:
    hello = np.array([0, 4, 3, 2, 2, 5, 0])
    streams = StreamBatches(hello, 32, 64)
    assert (streams.rows, len(streams), streams.batch(0).tokens.shape) == (1, 1, (1, 6))
    assert StreamBatches(np.arange(101), 32, 10).rows == 10
    with pytest.raises(InputError, match="nothing to predict"):
        StreamBatches(hello[:1], 4, 4)
    for kind in (StreamBatches, WindowBatches):
        with pytest.raises(InputError, match="at least 1"):
            kind(hello, 0, 4)


def test_batches_are_read_from_a_memory_map(tmp_path: Path) -> None:
    numbers = np.arange(1000, dtype="<u2")
    (tmp_path / "tokens").write_bytes(numbers.tobytes())
    mapped = np.memmap(tmp_path / "tokens", dtype="<u2", mode="r")
    for kind in (StreamBatches, WindowBatches):
        assert same(kind(mapped, 3, 7).batch(5), kind(numbers, 3, 7).batch(5))
