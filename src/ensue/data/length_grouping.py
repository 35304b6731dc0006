"""Group rows of similar lengths into batches, each a pure function of (seed, step).

    rows × longest ≤ tokens

Each epoch visits every row once, sorted by length plus fresh noise, so that rows meet new neighbours; the order is cut
into batches, and these are shuffled. Epochs may differ in their number of batches.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ensue.core.errors import InputError

LENGTH_NOISE = 0.02
"""Noise relative to a row's length: more noise varies the neighbours more and adds padding."""

RowOrder = Callable[[np.random.Generator], np.ndarray]
"""Returns the rows of one epoch in an order where neighbours are similar."""


class LengthGrouping:
    """Assigns rows to batches; ``longest`` (N,) is the number of tokens a row takes up."""

    def __init__(self, longest: np.ndarray, tokens: int, seed: int = 0, order: RowOrder | None = None) -> None:
        if tokens < 1:
            raise InputError(f"batches of {tokens} tokens", hint="choose at least 1")
        if not len(longest):
            raise InputError("there are no rows to make batches of", hint="give at least one")
        self.longest, self.tokens, self.seed = longest, tokens, seed
        self._order = order or self._by_length
        self._ends: list[int] = []
        self._plan: tuple[int, list[np.ndarray]] = (-1, [])
        self.first = self.epoch(0)
        """The batches of the first epoch."""

    def rows(self, step: int) -> np.ndarray:
        """Return the rows of a step's batch, counted from 0 over all epochs."""
        while not self._ends or self._ends[-1] <= step:
            count = len(self.epoch(len(self._ends)))
            self._ends.append(count + (self._ends[-1] if self._ends else 0))
        epoch = int(np.searchsorted(self._ends, step, side="right"))
        return self.epoch(epoch)[step - (self._ends[epoch - 1] if epoch else 0)]

    def epoch(self, number: int) -> list[np.ndarray]:
        """Return the rows of each batch of an epoch; the current epoch is cached."""
        if self._plan[0] != number:
            generator = np.random.default_rng([self.seed % 2**64, number])
            order = self._order(generator)
            batches = np.split(order, batch_boundaries(self.longest[order].tolist(), self.tokens))
            self._plan = number, [batches[index] for index in generator.permutation(len(batches))]
        return self._plan[1]

    def _by_length(self, generator: np.random.Generator) -> np.ndarray:
        """Sort rows by length, with noise that breaks ties and perturbs lengths a little."""
        longest, count = self.longest, len(self.longest)
        order: np.ndarray = np.argsort(
            longest + generator.random(count) + LENGTH_NOISE * longest * generator.random(count)
        )
        return order


def batch_boundaries(longest: list[int], tokens: int) -> list[int]:
    """Return where to cut ordered rows so that rows × longest ≤ ``tokens`` in each batch.

    >>> batch_boundaries([2, 2, 3, 3, 9], 6)
    [2, 4]
    """
    boundaries: list[int] = []
    start = most = 0
    for row, length in enumerate(longest):
        most = max(most, length)
        if (row - start + 1) * most > tokens and row > start:
            boundaries.append(row)
            start, most = row, length
    return boundaries


def pad_rows(flat: np.ndarray, starts: np.ndarray, lengths: np.ndarray, fill: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Gather slices of a flat array into rows (B, T) padded with ``fill``; also return a mask (B, T) of real tokens.

    >>> pad_rows(np.array([1, 2, 3]), np.array([0, 1]), np.array([1, 2]))[0].tolist()
    [[1, 0], [2, 3]]
    """
    time = np.arange(lengths.max())
    is_token = time < lengths[:, None]
    block = np.full(is_token.shape, fill, dtype=np.int64)
    block[is_token] = flat[(starts[:, None] + time)[is_token]]
    return block, is_token
