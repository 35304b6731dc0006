"""Rows of similar lengths together, in batches that are each a pure function of (seed, step).

    rows × longest ≤ tokens

Each epoch shows every row once, in the order of their lengths, blurred by fresh noise so that rows meet new
neighbours; the order is cut into batches and these are shuffled. Epochs may differ in their number of batches.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ensue.core.errors import InputError

BLUR = 0.02
"""By what share of its length a row may be out of order: more gives newer neighbours, and more padding."""

Order = Callable[[np.random.Generator], np.ndarray]
"""Rows in an order in which neighbours are alike, by chance of one epoch."""


class Grouping:
    """Which rows make each batch; ``longest`` (N,) is what a row takes of a batch's tokens."""

    def __init__(self, longest: np.ndarray, tokens: int, seed: int = 0, order: Order | None = None) -> None:
        if tokens < 1:
            raise InputError(f"batches of {tokens} tokens", hint="choose at least 1")
        if not len(longest):
            raise InputError("there is nothing to make batches of", hint="give some")
        self.longest, self.tokens, self.seed = longest, tokens, seed
        self._order = order or self._by_length
        self._ends: list[int] = []
        self._plan: tuple[int, list[np.ndarray]] = (-1, [])
        self.first = self.epoch(0)
        """The batches of the first epoch."""

    def rows(self, step: int) -> np.ndarray:
        """The rows of a step's batch, counted from 0 over all epochs."""
        while not self._ends or self._ends[-1] <= step:
            count = len(self.epoch(len(self._ends)))
            self._ends.append(count + (self._ends[-1] if self._ends else 0))
        epoch = int(np.searchsorted(self._ends, step, side="right"))
        return self.epoch(epoch)[step - (self._ends[epoch - 1] if epoch else 0)]

    def epoch(self, number: int) -> list[np.ndarray]:
        """The rows of each batch of an epoch; remembered for the epoch at hand."""
        if self._plan[0] != number:
            chance = np.random.default_rng([self.seed % 2**64, number])
            order = self._order(chance)
            batches = np.split(order, cuts(self.longest[order].tolist(), self.tokens))
            self._plan = number, [batches[place] for place in chance.permutation(len(batches))]
        return self._plan[1]

    def _by_length(self, chance: np.random.Generator) -> np.ndarray:
        """Short rows first; chance decides between equal lengths and blurs others a little."""
        count = len(self.longest)
        order: np.ndarray = np.argsort(self.longest + chance.random(count) + BLUR * self.longest * chance.random(count))
        return order


def cuts(longest: list[int], tokens: int) -> list[int]:
    """Where to cut an order of rows, so that rows × longest ≤ ``tokens`` in each batch.

    >>> cuts([2, 2, 3, 3, 9], 6)
    [2, 4]
    """
    found: list[int] = []
    start = most = 0
    for place, length in enumerate(longest):
        most = max(most, length)
        if (place - start + 1) * most > tokens and place > start:
            found.append(place)
            start, most = place, length
    return found


def padded(flat: np.ndarray, at: np.ndarray, lengths: np.ndarray, fill: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Stretches of a flat array as rows (B, T) with ``fill`` where they are padded, and (B, T) whether a place is real.

    >>> padded(np.array([1, 2, 3]), np.array([0, 1]), np.array([1, 2]))[0].tolist()
    [[1, 0], [2, 3]]
    """
    time = np.arange(lengths.max())
    real = time < lengths[:, None]
    block = np.full(real.shape, fill, dtype=np.int64)
    block[real] = flat[(at[:, None] + time)[real]]
    return block, real
