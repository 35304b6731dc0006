"""The trie of counted n-grams as arrays: where its levels are, how it grows, how threads share it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from ensue.models.ngram_lookup import Ints, Trie

WORTH = 1 << 16
"""The fewest n-grams worth a thread of their own."""


def order_of(trie: Trie) -> int:
    """The number of words in the longest n-grams."""
    return len(trie.starts) - 1


def at(trie: Trie, level: int) -> slice:
    """Where the n-grams of ``level`` words are."""
    return slice(int(trie.starts[level - 1]), int(trie.starts[level]))


def fan_of(trie: Trie, level: int) -> Ints:
    """How many n-grams of ``level`` words each of their contexts has."""
    inner = at(trie, level - 1)
    return np.diff(trie.offsets[inner.start : inner.stop + 1])


def spread(trie: Trie, level: int, work: Callable[[int, int], int]) -> list[int]:
    """Do ``work(first, last)`` on the contexts of a level's n-grams, shared evenly among the threads."""
    inner, here = at(trie, level - 1), at(trie, level)
    threads = min(torch.get_num_threads(), 1 + (here.stop - here.start) // WORTH)
    parts = np.linspace(here.start, here.stop, threads + 1)[1:-1].astype(trie.offsets.dtype)  # else all is copied
    found = np.searchsorted(trie.offsets[inner], parts) + inner.start
    cuts = [inner.start, *found.tolist(), inner.stop]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, cuts[:-1], cuts[1:]))


def narrow(values: Ints, most: int) -> Ints:
    """The values in 32 bits if ``most`` fits, else in 64."""
    return values.astype(np.int32 if most < 2**31 else np.int64, copy=False)


def roomy(array: Ints, size: int) -> Ints:
    """The same array with room for ``size`` entries behind it, where it has none. Room that nothing was written to
    takes no memory."""
    if len(_room(array)) >= size:
        return array
    room = np.empty(size, array.dtype)
    room[: len(array)] = array
    return room[: len(array)]


def extended(array: Ints, more: Ints) -> Ints:
    """The array with more at its end, in the room behind it where there is enough: what has been there stays where it
    is, so that others can read it meanwhile. Behind the array that was given nothing may be written any more.
    """
    size, total = len(array), len(array) + len(more)
    if array.dtype != more.dtype or len(_room(array)) < total:
        array = roomy(array.astype(np.result_type(array, more), copy=False), 2 * total)
    room = _room(array)
    room[size:total] = more
    return room[:total]


def _room(array: Ints) -> Ints:
    """The array with the room behind it; an empty one where it has none."""
    room = array.base
    if isinstance(room, np.ndarray) and room.dtype == array.dtype and room.ctypes.data == array.ctypes.data:
        return room
    return array[:0]


class Pace:
    """How a table is gone through: here all of it at once, its contexts shared among the threads."""

    def zeros(self, size: int, kind: np.dtype[Any]) -> Ints:
        """A new table."""
        return np.zeros(size, kind)

    def parts(self, whole: slice) -> Iterator[slice]:
        """Entries from one up to another, in parts."""
        yield whole

    def spread(self, trie: Trie, level: int, work: Callable[[int, int], int]) -> None:
        """Do ``work(first, last)`` on the contexts of a level's n-grams."""
        spread(trie, level, work)


AT_ONCE = Pace()
