"""Evaluate forecasts with a rolling backtest over many origins.

    MSE       mean (y − ŷ)²
    MAE       mean |y − ŷ|
    MASE      MAE divided by that of the seasonal last value one season ahead, on the past (Hyndman and Koehler, 2006)
    pinball   mean over quantiles of max(τ (y − q), (τ − 1)(y − q)); at τ = 0.5 that is half the MAE

Imputed values do not count. Legend: N origins, H steps ahead, Y targets, Q quantiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class ForecastScore:
    """Figures of a backtest."""

    mse: float
    mae: float
    mase: float | None
    """Below 1: better than the seasonal last value on the past. None if the past is constant."""
    pinball: float
    quantiles: tuple[float, ...]
    """The quantiles that pinball averages over."""
    coverage: float | None
    """The share of values between the lowest and the highest quantile."""
    origins: int
    values: int
    """The number of forecast values, without imputed ones."""
    scaled_mse: float
    """With columns scaled by the past's standard deviation, as in the literature on long horizons."""
    scaled_mae: float
    by_step: list[dict[str, Any]]
    """MSE and MAE of each step ahead."""
    by_target: list[dict[str, Any]]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def pinball(truth: np.ndarray, forecasts: np.ndarray, levels: Sequence[float]) -> np.ndarray:
    """ρ_τ(y − q) of quantiles (…, Q) against numbers (…)."""
    error = truth[..., None] - forecasts
    tau = np.asarray(levels)
    result: np.ndarray = np.maximum(tau * error, (tau - 1) * error)
    return result


def score_forecasts(
    forecasts: np.ndarray,
    truth: np.ndarray,
    real: np.ndarray,
    levels: Sequence[float],
    *,
    names: Sequence[str],
    seasonal: np.ndarray,
    deviation: np.ndarray,
) -> ForecastScore:
    """All measures of forecasts (N, H, Y, Q) against values (N, H, Y); level 0.5 is the point forecast.

    ``seasonal`` is the mean absolute change from season to season on the past and ``deviation`` the standard deviation
    there, of each target (Y,).
    """
    middle = list(levels).index(0.5)
    error = truth - forecasts[..., middle]
    absolute, scaled = np.abs(error), error / np.where(deviation > 0, deviation, 1.0)
    inside = (truth >= forecasts[..., 0]) & (truth <= forecasts[..., -1])
    mases = mean_of(absolute, real, (0, 1)) / np.where(seasonal > 0, seasonal, np.nan)
    return ForecastScore(
        mse=float(mean_of(error**2, real)),
        mae=float(mean_of(absolute, real)),
        mase=float(mases[np.isfinite(mases)].mean()) if np.isfinite(mases).any() else None,
        pinball=float(mean_of(pinball(truth, forecasts, levels).mean(-1), real)),
        quantiles=tuple(levels),
        coverage=float(mean_of(inside, real)) if len(levels) > 1 else None,
        origins=len(forecasts),
        values=int(real.sum()),
        scaled_mse=float(mean_of(scaled**2, real)),
        scaled_mae=float(mean_of(np.abs(scaled), real)),
        by_step=[
            {"step": step + 1, **_mse_and_mae(error[:, step], real[:, step])}
            for step in range(forecasts.shape[1])
            if real[:, step].any()
        ],
        by_target=[
            {
                "target": name,
                **_mse_and_mae(error[..., column], real[..., column]),
                "mase": float(mases[column]) if np.isfinite(mases[column]) else None,
            }
            for column, name in enumerate(names)
            if real[..., column].any()
        ],
    )


def mean_of(values: np.ndarray, real: np.ndarray, axis: tuple[int, ...] | None = None) -> np.ndarray:
    """The mean over ``real`` values; NaN if there are none."""
    count = real.sum(axis)
    return np.asarray(np.where(real, values, 0.0).sum(axis) / np.where(count > 0, count, np.nan))


def _mse_and_mae(error: np.ndarray, real: np.ndarray) -> dict[str, float]:
    return {"mse": float(mean_of(error**2, real)), "mae": float(mean_of(np.abs(error), real))}


def error_band(errors: np.ndarray, real: np.ndarray, levels: Sequence[float]) -> np.ndarray:
    """Offsets of quantiles from a point forecast, (H, Y, Q), estimated from its errors y − ŷ (N, H, Y).

    The band is symmetric: q_τ = ŷ ± w, with w the |2τ − 1|-quantile of |y − ŷ| at that step, corrected for few errors
    (split conformal prediction; Lei et al., 2018).
    """
    offsets = np.zeros((*errors.shape[1:], len(levels)))
    for step, target in np.ndindex(*errors.shape[1:]):
        absolute = np.abs(errors[:, step, target][real[:, step, target]])
        for i, level in enumerate(levels):
            if len(absolute) and level != 0.5:
                inside = min(1.0, abs(2 * level - 1) * (len(absolute) + 1) / len(absolute))
                offsets[step, target, i] = np.quantile(absolute, inside) * np.sign(level - 0.5)
    return offsets
