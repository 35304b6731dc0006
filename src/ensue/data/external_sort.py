"""Sorted runs on disk, merged a block at a time: sorting what does not fit into memory.

A run has sorted keys, no key twice, and with each key a count and a value. Merged, the counts of a key are added up and
the value of its first run is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Stored(NamedTuple):
    """An array in a file, read in parts and written at its end."""

    path: Path
    kind: str
    """Its type as numpy writes it."""

    def __len__(self) -> int:
        return self.path.stat().st_size // np.dtype(self.kind).itemsize if self.path.exists() else 0

    def read(self, at: int = 0, count: int = -1) -> Array:
        """A part of it, or all."""
        there = max(0, len(self) - at)
        if not there:
            return np.zeros(0, self.kind)
        count = there if count < 0 else min(count, there)  # numpy makes room for all it is asked for
        return np.fromfile(self.path, self.kind, count, offset=at * np.dtype(self.kind).itemsize)

    def append(self, values: Array) -> None:
        """Write more at its end."""
        with self.path.open("ab") as file:
            np.ascontiguousarray(values, self.kind).tofile(file)

    def mapped(self, mode: Any = "r") -> Array:
        """The array as a memory map; an empty one cannot be mapped and is an array."""
        return np.memmap(self.path, self.kind, mode) if len(self) else np.zeros(0, self.kind)


class Run(NamedTuple):
    """One sorted run."""

    keys: Stored
    counts: Stored
    values: Stored


class Merged(NamedTuple):
    """Some keys in a row, of all runs."""

    keys: Array
    counts: Array
    values: Array
    places: list[Array]
    """For each run which of these keys it has."""


def merge(runs: Sequence[Run], block: int) -> Iterator[Merged]:
    """All keys of the runs in order, where ``block`` of each run are in memory at a time.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> runs = [Run(*(Stored(folder / f"{name}{part}", "<i8") for name in "kcv")) for part in range(2)]
    >>> for run, keys in zip(runs, ([1, 5, 9], [5, 6])):
    ...     for column in run:
    ...         column.append(np.array(keys))
    >>> [(merged.keys.tolist(), merged.counts.tolist()) for merged in merge(runs, 2)]
    [([1, 5], [1, 10]), ([6, 9], [6, 9])]
    """
    at = [0] * len(runs)
    held = [run.keys.read(0, block) for run in runs]
    sizes = [len(run.keys) for run in runs]
    while any(len(keys) for keys in held):
        # up to here nothing is missing: a run has more keys on disk only after the last that is held
        bound = min((keys[-1] for keys, size, place in zip(held, sizes, at) if place + len(keys) < size), default=None)
        taken = [len(keys) if bound is None else int(np.searchsorted(keys, bound, "right")) for keys in held]
        joined = np.concatenate([keys[:take] for keys, take in zip(held, taken)])
        keys, first, inverse = np.unique(joined, return_index=True, return_inverse=True)
        parts = [
            (run.counts.read(place, take), run.values.read(place, take)) for run, place, take in zip(runs, at, taken)
        ]
        counts = np.zeros(len(keys), np.int64)
        np.add.at(counts, inverse, np.concatenate([part[0] for part in parts]))
        values = np.concatenate([part[1] for part in parts])[first]
        yield Merged(keys, counts, values, np.split(inverse, np.cumsum(taken)[:-1]))
        for number, take in enumerate(taken):
            at[number] += take
            rest = held[number][take:]
            more = (
                runs[number].keys.read(at[number] + len(rest), block - len(rest))
                if len(rest) < block // 2
                else rest[:0]
            )
            held[number] = np.concatenate([rest, more])
