"""What tests of kernels share: a number of threads that is put back, and queries, keys and values of rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
import torch
from guard_pages import GuardedHeap, install

from ensue.kernels.short_attention import Parts

HEAP = GuardedHeap()
if os.environ.get("ENSUE_GUARD_PAGES"):
    HEAP.bound(pytest.MonkeyPatch())  # before a loop is loaded, for as long as the process runs


@pytest.fixture
def heap() -> GuardedHeap:
    """An allocator for loops, whose arrays end at a page nobody may touch and are gone once they are freed."""
    return HEAP


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def parts() -> Callable[..., Parts]:
    """What was projected: so many widths side by side in each part, the first with the queries."""

    def made(queries: int, keys: int, widths: tuple[int, ...], rows: int = 3, width: int = 32) -> Parts:
        torch.manual_seed(0)
        times = (queries, *[keys] * (len(widths) - 1))
        return tuple(torch.randn(rows, time, many * width, requires_grad=True) for time, many in zip(times, widths))

    return made


@pytest.fixture(autouse=bool(os.environ.get("ENSUE_GUARD_PAGES")))
def guard_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """With ENSUE_GUARD_PAGES=1, ``make test-guard``: loops run between pages that must not be touched."""
    install(monkeypatch)
