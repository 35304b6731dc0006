"""Windows of series, past steps with the steps to forecast, and batches of them by step number.

    past    x_{o−W} … x_{o−1}      W steps of input
    future  x_o … x_{o+H−1}        H steps forecast from origin o

Legend: B rows, W window, H horizon, T input steps, P positions that forecast, C columns, Y targets, which are the first
columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ensue.data.batches import EpochPlan, select_rows


@dataclass(frozen=True)
class SeriesWindows:
    """Windows of scaled values at given origins."""

    values: np.ndarray
    """(N, C), float32."""
    observed: np.ndarray
    """(N, C): False where a missing value was filled in."""
    origins: np.ndarray
    """The first step of each forecast."""
    window: int
    horizon: int
    centre: str = "none"
    """What is subtracted from a window: none, last (its last value), or mean."""

    def __len__(self) -> int:
        return len(self.origins)

    @property
    def tokens(self) -> np.ndarray:
        """The origins, for code that only counts."""
        return self.origins

    def cut(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return some windows: values and observed, (B, W + H, C), and what was subtracted, (B, 1, C)."""
        steps = self.origins[index][:, None] + np.arange(-self.window, self.horizon)
        values = self.values[steps]
        offset = window_offsets(values[:, : self.window], self.centre)
        return values - offset, self.observed[steps], offset


def window_offsets(past: np.ndarray, centre: str) -> np.ndarray:
    """Return what is subtracted from windows (B, W, C), as (B, 1, C)."""
    if centre == "last":
        return past[:, -1:]
    if centre == "mean":
        return np.asarray(past.mean(axis=1, keepdims=True))
    return np.zeros_like(past[:, :1])


@dataclass(frozen=True, slots=True)
class SeriesBatch:
    """B windows, with the forecasts of P input positions."""

    x: Tensor
    """(B, T, C)."""
    y: Tensor
    """(B, P, H, Y)."""
    observed: Tensor
    """(B, P, H, Y): which values of y count in the loss."""
    reset_state: bool = True
    """Windows always start from an empty state."""

    @property
    def size(self) -> int:
        """Number of input steps, B · T."""
        return self.x.shape[0] * self.x.shape[1]

    def __len__(self) -> int:
        """B."""
        return len(self.x)

    def select(self, rows: slice) -> SeriesBatch:
        """Return some of the windows."""
        return select_rows(self, rows)


class SeriesBatches:
    """Batches of B windows, shuffled each epoch; a batch may take its last rows from the next epoch.

    ``mode`` chooses the targets: the horizon from the last position (vector) or from every position (sequence), or the
    next step from every position, including those of the horizon (step).
    """

    def __init__(self, windows: SeriesWindows, mode: str, targets: int, rows: int, seed: int = 0) -> None:
        self.windows, self.mode, self.targets = windows, mode, targets
        self.rows = min(rows, len(windows))
        self.steps_per_epoch = -(-len(windows) // self.rows)
        self._plan: EpochPlan[int] = EpochPlan(self._shuffle, seed, len(windows))

    def batch(self, step: int) -> SeriesBatch:
        """Return the batch of a step, counted from 0 over all epochs."""
        return self.of(np.array([self._plan.item(step * self.rows + row) for row in range(self.rows)]))

    def of(self, index: np.ndarray) -> SeriesBatch:
        """Return some windows as a batch."""
        values, observed, _ = self.windows.cut(index)
        return make_series_batch(values.astype(np.float32), observed, self.windows.window, self.mode, self.targets)

    def _shuffle(self, generator: np.random.Generator) -> Any:
        return generator.permutation(len(self.windows))


def make_series_batch(values: np.ndarray, observed: np.ndarray, window: int, mode: str, targets: int) -> SeriesBatch:
    """Split windows (B, W + H, C) into inputs and targets."""
    x, mask = torch.from_numpy(values), torch.from_numpy(observed)
    if mode == "step":
        return SeriesBatch(x[:, :-1], x[:, 1:, None], mask[:, 1:, None])
    if mode == "vector":
        return SeriesBatch(x[:, :window], x[:, None, window:, :targets], mask[:, None, window:, :targets])
    horizon = x.shape[1] - window
    y, known = (part[:, 1:, :targets].unfold(1, horizon, 1).transpose(2, 3) for part in (x, mask))
    return SeriesBatch(x[:, :window], y, known)
