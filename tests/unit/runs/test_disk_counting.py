"""Counting on disk gives the model of counting in memory, also when it was stopped anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ensue.core.errors import InputError
from ensue.core.events import silent
from ensue.models.ngram import NGram, NGramConfig
from ensue.runs import disk_counting
from ensue.runs.disk_counting import DiskCounter, check_on_disk
from ensue.train.counting import count


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_counting, "MIN_TOKENS", 60)
    monkeypatch.setattr(disk_counting, "ENTRIES", 16)
    monkeypatch.setattr(disk_counting, "CONTEXTS", 4)


def stream(size: int, end: int) -> np.ndarray[Any, Any]:
    words = np.random.default_rng(0).zipf(1.3, size) % 20
    return np.concatenate([[0], words, [0]]) if end == 0 else words


def in_memory(config: NGramConfig, tokens: np.ndarray[Any, Any]) -> NGram:
    counter = NGram(config).counter()
    count(counter, tokens)
    return counter.finish()


def equal(one: NGram, other: NGram) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.buffers(), other.buffers(), strict=True))


@pytest.mark.parametrize("end", [0, -1])
@pytest.mark.parametrize("size", [0, 1, 58, 60, 61, 250])
def test_the_model_is_that_of_counting_in_memory(tmp_path: Path, size: int, end: int) -> None:
    config, tokens = NGramConfig(vocabulary=20, order=4, end=end), stream(size, end)
    found = DiskCounter(config, tmp_path / "work", 1).count(tokens, silent, lambda: False)
    assert found is not None and equal(found, in_memory(config, tokens))


def test_a_limit_above_the_memory_of_the_machine_is_allowed(tmp_path: Path) -> None:
    config, tokens = NGramConfig(vocabulary=20, order=4, end=0), stream(250, 0)
    found = DiskCounter(config, tmp_path / "work", 1 << 50).count(tokens, silent, lambda: False)
    assert found is not None and equal(found, in_memory(config, tokens))


def test_stopped_after_every_step_it_resumes_to_the_same_model(tmp_path: Path) -> None:
    config, tokens = NGramConfig(vocabulary=20, order=3, end=0), stream(150, 0)
    found, tries = None, 0
    while found is None and tries < 60:
        tries += 1
        left = iter(range(tries))  # a little further each time
        found = DiskCounter(config, tmp_path / "work", 1).count(tokens, silent, lambda: next(left, None) is None)  # noqa: B023
    assert 3 < tries < 60 and found is not None and equal(found, in_memory(config, tokens))


def test_the_progress_of_another_text_is_not_used(tmp_path: Path) -> None:
    config = NGramConfig(vocabulary=20, order=3, end=0)
    steps = iter(range(9))
    assert DiskCounter(config, tmp_path, 1).count(stream(200, 0), silent, lambda: next(steps, None) is None) is None
    other = stream(120, 0)[::-1].copy()
    found = DiskCounter(config, tmp_path, 1).count(other, silent, lambda: False)
    assert found is not None and equal(found, in_memory(config, other))


def test_what_cannot_be_counted_on_disk_is_refused() -> None:
    with pytest.raises(InputError, match="mode 'add' is not estimated within a limit of memory"):
        check_on_disk(NGram(NGramConfig(vocabulary=4, mode="add")), 0.0)
    with pytest.raises(InputError, match="a budget cannot be kept"):
        check_on_disk(NGram(NGramConfig(vocabulary=4)), 5.0)
    with pytest.raises(InputError, match=r"train.memory is for n-grams"):
        check_on_disk(torch.nn.Linear(1, 1), 0.0)
