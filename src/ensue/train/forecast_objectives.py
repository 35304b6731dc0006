"""The training objective of forecasting: a loss over a batch of windows.

    mse        (y − ŷ)²
    mae        |y − ŷ|
    pinball    ρ_τ(y − q_τ),  ρ_τ(u) = max(τ u, (τ − 1) u)     Koenker and Bassett (1978): least at the τ-quantile

Each is the mean over observed values; imputed ones do not count.

Legend: B rows, P positions, H horizon, Y targets, Q quantiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ensue.nn.state import State
from ensue.train.loss_reduction import LOCAL, LossAndState, LossReduction


def loss_unit(kind: str, scale: str) -> str:
    """Return the unit of a loss, given how columns were scaled.

    >>> loss_unit("mse", "standard"), loss_unit("mae", "none")
    ('squared deviations of the past', 'units of the data')
    """
    unit = "units of the data" if scale == "none" else "deviations of the past"
    return f"squared {unit}" if kind == "mse" else unit


@dataclass(frozen=True)
class ForecastLoss:
    """The mean loss of forecasts."""

    kind: str = "mse"
    quantiles: tuple[float, ...] = ()
    last: bool = True
    """Whether only the last position of a window forecasts, or every position."""

    def __call__(self, model: Any, batch: Any, state: State | None, reduction: LossReduction = LOCAL) -> LossAndState:
        """Return the mean over observed values."""
        forecasts, _ = model(batch.x, None, None, self.last)
        return reduction.scale_mean(self.of(forecasts, batch.y, batch.observed), batch.observed.sum()), None

    def of(self, forecasts: Tensor, y: Tensor, real: Tensor) -> Tensor:
        """Return the mean loss of forecasts (B, P, H, Y, Q) of values (B, P, H, Y)."""
        error = y[..., None] - forecasts
        if self.kind == "pinball":
            levels = torch.tensor(self.quantiles, dtype=error.dtype, device=error.device)
            loss = torch.maximum(levels * error, (levels - 1) * error)
        else:
            loss = error.square() if self.kind == "mse" else error.abs()
        if bool(real.all()):
            return loss.mean()
        return (loss.mean(-1) * real).sum() / real.sum().clamp(min=1)
