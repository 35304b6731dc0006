"""External sorting: sorted runs on disk, merged a block at a time, for data larger than memory.

A run has sorted unique keys, and a count and a value for each key. Merging adds up the counts of equal keys and takes
the value of the first run that has the key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class ArrayFile(NamedTuple):
    """An array in a file, read in parts and appended to."""

    path: Path
    dtype: str
    """Its dtype as a numpy string."""

    def __len__(self) -> int:
        return self.path.stat().st_size // np.dtype(self.dtype).itemsize if self.path.exists() else 0

    def read(self, at: int = 0, count: int = -1) -> Array:
        """Read ``count`` elements from ``at``, or all."""
        left = max(0, len(self) - at)
        if not left:
            return np.zeros(0, self.dtype)
        count = left if count < 0 else min(count, left)  # numpy allocates everything it is asked for
        return np.fromfile(self.path, self.dtype, count, offset=at * np.dtype(self.dtype).itemsize)

    def append(self, values: Array) -> None:
        """Append values."""
        with self.path.open("ab") as file:
            np.ascontiguousarray(values, self.dtype).tofile(file)

    def mapped(self, mode: Any = "r") -> Array:
        """Return a memory map; an empty file cannot be mapped and gives an empty array."""
        return np.memmap(self.path, self.dtype, mode) if len(self) else np.zeros(0, self.dtype)


class SortedRun(NamedTuple):
    """One sorted run."""

    keys: ArrayFile
    counts: ArrayFile
    values: ArrayFile


class MergedBlock(NamedTuple):
    """Consecutive keys of all runs."""

    keys: Array
    counts: Array
    values: Array
    indices: list[Array]
    """For each run, the indices of its keys in this block."""


def merge_runs(runs: Sequence[SortedRun], block: int) -> Iterator[MergedBlock]:
    """Yield all keys of the runs in order, with ``block`` keys of each run in memory at a time.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> runs = [SortedRun(*(ArrayFile(folder / f"{name}{part}", "<i8") for name in "kcv")) for part in range(2)]
    >>> for run, keys in zip(runs, ([1, 5, 9], [5, 6])):
    ...     for column in run:
    ...         column.append(np.array(keys))
    >>> [(merged.keys.tolist(), merged.counts.tolist()) for merged in merge_runs(runs, 2)]
    [([1, 5], [1, 10]), ([6, 9], [6, 9])]
    """
    at = [0] * len(runs)
    buffers = [run.keys.read(0, block) for run in runs]
    sizes = [len(run.keys) for run in runs]
    while any(len(keys) for keys in buffers):
        # Keys up to this bound are complete: a run's unread keys are larger than its last buffered one.
        ends = (keys[-1] for keys, size, start in zip(buffers, sizes, at) if start + len(keys) < size)
        bound = min(ends, default=None)
        taken = [len(keys) if bound is None else int(np.searchsorted(keys, bound, "right")) for keys in buffers]
        joined = np.concatenate([keys[:take] for keys, take in zip(buffers, taken)])
        keys, first, inverse = np.unique(joined, return_index=True, return_inverse=True)
        blocks = list(zip(runs, at, taken))
        counts = np.zeros(len(keys), np.int64)
        np.add.at(counts, inverse, np.concatenate([run.counts.read(start, take) for run, start, take in blocks]))
        values = np.concatenate([run.values.read(start, take) for run, start, take in blocks])[first]
        yield MergedBlock(keys, counts, values, np.split(inverse, np.cumsum(taken)[:-1]))
        for number, take in enumerate(taken):
            at[number] += take
            rest = buffers[number][take:]
            if len(rest) < block // 2:
                rest = np.concatenate([rest, runs[number].keys.read(at[number] + len(rest), block - len(rest))])
            buffers[number] = rest
