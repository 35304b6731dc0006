"""Group rows of similar lengths into batches, each a pure function of (seed, step).

    rows × longest ≤ tokens

Each epoch visits every row once, sorted by length plus fresh noise, so that rows meet new neighbours; the order is cut
into batches, and these are shuffled. Epochs may differ in their number of batches.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ensue.core.errors import InputError
from ensue.data.batches import EpochPlan

LENGTH_NOISE = 0.02
"""Noise relative to a row's length: more noise varies the neighbours more and adds padding."""

RowOrder = Callable[[np.random.Generator], np.ndarray]
"""Returns the rows of one epoch in an order where neighbours are similar."""


def group_by_length(
    longest: np.ndarray, tokens: int, seed: int = 0, order: RowOrder | None = None
) -> EpochPlan[np.ndarray]:
    """Return a plan of batches, each an array of rows; ``longest`` (N,) is the number of tokens a row takes up."""
    if tokens < 1:
        raise InputError(f"batches of {tokens} tokens", hint="choose at least 1")
    if not len(longest):
        raise InputError("there are no rows to make batches of", hint="give at least one")

    def by_length(generator: np.random.Generator) -> np.ndarray:
        """Sort rows by length, with noise that breaks ties and perturbs lengths a little."""
        count = len(longest)
        return np.argsort(longest + generator.random(count) + LENGTH_NOISE * longest * generator.random(count))

    def arrange(generator: np.random.Generator) -> list[np.ndarray]:
        rows = (order or by_length)(generator)
        batches = np.split(rows, batch_boundaries(longest[rows].tolist(), tokens))
        return [batches[index] for index in generator.permutation(len(batches))]

    return EpochPlan(arrange, seed)


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
