"""Windows of series: a stretch of the past and the steps after it; batches of them that can be had by number.

    past    x_{o−W} … x_{o−1}      W steps that are read
    future  x_o … x_{o+H−1}        H steps that are forecast from origin o

Legend: B rows, W window, H horizon, T steps read, P places that forecast, C columns, Y targets, the first of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class SeriesWindows:
    """Windows at given origins of numbers that are scaled already."""

    values: np.ndarray
    """(N, C), float32."""
    real: np.ndarray
    """(N, C): what was there and not filled in."""
    origins: np.ndarray
    """The first step of each forecast."""
    window: int
    horizon: int
    centre: str = "none"
    """What is subtracted from a window before it is read: none, its last value, or its mean."""

    def __len__(self) -> int:
        return len(self.origins)

    @property
    def tokens(self) -> np.ndarray:
        """The origins: what those that only count are given to read."""
        return self.origins

    def cut(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Some windows: values and what is real of them, (B, W + H, C), and what was subtracted, (B, 1, C)."""
        index = self.origins[places][:, None] + np.arange(-self.window, self.horizon)
        values = self.values[index]
        offset = offsets(values[:, : self.window], self.centre)
        return values - offset, self.real[index], offset


def offsets(past: np.ndarray, centre: str) -> np.ndarray:
    """What is subtracted from windows (B, W, C), as (B, 1, C)."""
    if centre == "last":
        return past[:, -1:]
    if centre == "mean":
        return np.asarray(past.mean(axis=1, keepdims=True))
    return np.zeros_like(past[:, :1])


@dataclass(frozen=True, slots=True)
class SeriesBatch:
    """B windows, with what is to be forecast from P of the places read."""

    x: Tensor
    """(B, T, C)."""
    y: Tensor
    """(B, P, H, Y)."""
    real: Tensor
    """(B, P, H, Y): what counts."""
    fresh: bool = True
    """Windows always start anew."""

    @property
    def size(self) -> int:
        """How many numbers are read."""
        return self.x.shape[0] * self.x.shape[1]

    def __len__(self) -> int:
        """B."""
        return len(self.x)

    def some(self, rows: slice) -> SeriesBatch:
        """Some of the windows."""
        return SeriesBatch(self.x[rows], self.y[rows], self.real[rows])


class WindowBatches:
    """Batches of B windows in a new order each epoch, none twice; a batch may take its last rows from the next epoch.

    ``mode`` says what is wanted: the horizon from the last place (vector) or from every place (sequence), or the next
    step from every place, those of the horizon among them (step).
    """

    def __init__(self, windows: SeriesWindows, mode: str, targets: int, rows: int, seed: int = 0) -> None:
        self.windows, self.mode, self.targets = windows, mode, targets
        self.rows, self.seed = min(rows, len(windows)), seed
        self.steps_per_epoch = -(-len(windows) // self.rows)
        self._order: tuple[int, np.ndarray] = (-1, np.zeros(0, dtype=np.int64))

    def batch(self, number: int) -> SeriesBatch:
        """Batch ``number`` of an endless row of epochs."""
        count = len(self.windows)
        places = [divmod(number * self.rows + row, count) for row in range(self.rows)]
        return self.of(np.array([self._shuffled(epoch)[place] for epoch, place in places]))

    def of(self, places: np.ndarray) -> SeriesBatch:
        """Some windows as a batch."""
        values, real, _ = self.windows.cut(places)
        return batch_of(values.astype(np.float32), real, self.windows.window, self.mode, self.targets)

    def _shuffled(self, epoch: int) -> np.ndarray:
        """The order of an epoch; remembered for the epoch at hand."""
        if self._order[0] != epoch:
            chance = np.random.default_rng([self.seed % 2**64, epoch])
            self._order = epoch, chance.permutation(len(self.windows))
        return self._order[1]


def batch_of(values: np.ndarray, real: np.ndarray, window: int, mode: str, targets: int) -> SeriesBatch:
    """Windows (B, W + H, C) as what is read and what is wanted."""
    whole, there = torch.from_numpy(values), torch.from_numpy(real)
    if mode == "step":
        return SeriesBatch(whole[:, :-1], whole[:, 1:, None], there[:, 1:, None])
    if mode == "vector":
        return SeriesBatch(whole[:, :window], whole[:, None, window:, :targets], there[:, None, window:, :targets])
    horizon = whole.shape[1] - window
    y, known = (x[:, 1:, :targets].unfold(1, horizon, 1).transpose(2, 3) for x in (whole, there))
    return SeriesBatch(whole[:, :window], y, known)
