"""Arrays that grow in place, and work on a trie's contexts in threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from ensue.models.ngram_lookup import Ints, Trie

MIN_THREAD_NGRAMS = 1 << 16
"""The fewest n-grams worth a thread of their own."""


def run_in_threads(trie: Trie, level: int, work: Callable[[int, int], int]) -> list[int]:
    """Call ``work(first, last)`` on the contexts of a level's n-grams, divided evenly among threads."""
    contexts, ngrams = trie.level(level - 1), trie.level(level)
    threads = min(torch.get_num_threads(), 1 + (ngrams.stop - ngrams.start) // MIN_THREAD_NGRAMS)
    bounds = np.linspace(ngrams.start, ngrams.stop, threads + 1)[1:-1]
    bounds = bounds.astype(trie.offsets.dtype)  # with another type searchsorted would copy the offsets
    inner_cuts = np.searchsorted(trie.offsets[contexts], bounds) + contexts.start
    cuts = [contexts.start, *inner_cuts.tolist(), contexts.stop]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, cuts[:-1], cuts[1:]))


def narrow(values: Ints, largest: int) -> Ints:
    """Return the values in 32 bits if ``largest`` fits, else in 64."""
    return values.astype(np.int32 if largest < 2**31 else np.int64, copy=False)


def with_capacity(array: Ints, size: int) -> Ints:
    """Return the array as the beginning of a buffer of at least ``size``; unused capacity takes no memory."""
    if len(_buffer(array)) >= size:
        return array
    buffer = np.empty(size, array.dtype)
    buffer[: len(array)] = array
    return buffer[: len(array)]


def appended(array: Ints, more: Ints) -> Ints:
    """Return the array with more values at its end, written into its spare capacity if there is enough.

    Others may read ``array`` meanwhile, but nothing else may be appended to it.
    """
    size, total = len(array), len(array) + len(more)
    if array.dtype != more.dtype or len(_buffer(array)) < total:
        array = with_capacity(array.astype(np.result_type(array, more), copy=False), 2 * total)
    buffer = _buffer(array)
    buffer[size:total] = more
    return buffer[:total]


def _buffer(array: Ints) -> Ints:
    """Return the buffer that an array is the beginning of; an empty one if there is none."""
    buffer = array.base
    if isinstance(buffer, np.ndarray) and buffer.dtype == array.dtype and buffer.ctypes.data == array.ctypes.data:
        return buffer
    return array[:0]


class TableStorage:
    """Allocates tables and iterates over them: here in memory, all at once, in threads."""

    def zeros(self, size: int, dtype: np.dtype[Any]) -> Ints:
        """Return a new table."""
        return np.zeros(size, dtype)

    def chunks(self, whole: slice) -> Iterator[slice]:
        """Divide a range of entries into chunks that fit into memory."""
        yield whole

    def for_contexts(self, trie: Trie, level: int, work: Callable[[int, int], int]) -> None:
        """Call ``work(first, last)`` on the contexts of a level's n-grams."""
        run_in_threads(trie, level, work)


IN_MEMORY = TableStorage()
