"""What a forecasting run knows of its series: columns, scale, season; and numbers to windows and back by it.

Legend: N windows, C columns, Y targets, H steps ahead, Q quantiles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ensue.core.errors import InputError
from ensue.core.events import Abandoned, Report, silent
from ensue.data.calendar import Frequency
from ensue.data.series import Series, array_digest
from ensue.data.series_windows import SeriesWindows
from ensue.measure.forecast import ForecastScore, score_forecasts, seasonal_scale
from ensue.search.forecast_rollout import PATHS, forecast

LEVELS = (0.1, 0.5, 0.9)
"""Quantiles of the band around a model that says one value."""
NUMBERS_AT_ONCE = 1 << 19
"""How many numbers windows may hold that are read at once."""


@dataclass(frozen=True)
class Form:
    """How the numbers of a run are read, scaled and measured."""

    names: tuple[str, ...]
    """Of the columns, targets first."""
    targets: int
    mean: np.ndarray
    """(C,): what is subtracted."""
    deviation: np.ndarray
    """(C,): what is divided by."""
    centre: str
    season: int
    window: int
    horizon: int
    frequency: Frequency
    seasonal: np.ndarray
    """(Y,): the mean change from season to season on the past, under MASE."""
    spread: np.ndarray
    """(Y,): the deviation of the targets on the past, whatever they are scaled by."""
    learnt: tuple[tuple[str, int, str], ...] = ()
    """The name of each series, how many rows training saw, and their hash."""

    def as_dict(self) -> dict[str, Any]:
        """For config.json."""
        arrays = {name: getattr(self, name).tolist() for name in ("mean", "deviation", "seasonal", "spread")}
        plain = {name: getattr(self, name) for name in ("targets", "centre", "season", "window", "horizon")}
        dates = {"frequency": self.frequency.kind, "step": self.frequency.size}
        return {"names": list(self.names), **plain, **arrays, **dates, "learnt": [list(one) for one in self.learnt]}

    @staticmethod
    def from_dict(held: Mapping[str, Any]) -> Form:
        """From config.json."""
        arrays = ("mean", "deviation", "seasonal", "spread")
        parts: dict[str, Any] = {name: np.asarray(held[name], dtype=float) for name in arrays}
        parts |= {name: held[name] for name in ("targets", "centre", "season", "window", "horizon")}
        return Form(
            names=tuple(held["names"]),
            frequency=Frequency(held["frequency"], held["step"]),
            learnt=tuple((key, rows, own) for key, rows, own in held["learnt"]),
            **parts,
        )

    def scaled(self, values: np.ndarray) -> np.ndarray:
        """Numbers (…, C) as a model reads them."""
        return np.asarray((values - self.mean) / self.deviation, dtype=np.float32)

    def windows(self, series: Series, origins: np.ndarray, horizon: int = 0) -> SeriesWindows:
        """Windows of series in the data's own units."""
        scaled = self.scaled(series.values)
        return SeriesWindows(scaled, series.observed, origins, self.window, horizon or self.horizon, self.centre)


def fitted_form(
    series: Series, learnt: Sequence[tuple[int, int]], scale: str, centre: str, season: int, window: int, horizon: int
) -> Form:
    """The form of series, from the parts (begin, end) of them that are learnt from."""
    rows = np.concatenate([np.arange(begin, end) for begin, end in learnt])
    held = np.ma.masked_array(series.values[rows], mask=~series.observed[rows])
    mean, deviation = (np.ma.filled(part, 0.0) for part in (held.mean(axis=0), held.std(axis=0)))
    Y = series.targets
    changes = [
        seasonal_scale(series.values[a:b, :Y], series.observed[a:b, :Y], season) for a, b in learnt if b - a > season
    ]
    total, count = np.sum(changes, axis=0) if changes else np.zeros((2, Y))
    if scale == "none":
        shift, divide = np.zeros_like(mean), np.ones_like(deviation)
    else:
        shift, divide = mean, np.where(deviation > 1e-12 * np.abs(mean), deviation, 1.0)
    return Form(
        names=series.names,
        targets=Y,
        mean=shift,
        deviation=divide,
        centre=centre,
        season=season,
        window=window,
        horizon=horizon,
        frequency=series.frequency,
        seasonal=total / np.maximum(count, 1),
        spread=deviation[:Y],
    )


def learnt_rows(form: Form, series: Series, begin: int, end: int, key: str) -> int:
    """How many rows of a series training saw, by their hash; one that has no name may be any."""
    known = [one for one in form.learnt if one[0] == key] or (list(form.learnt) if not key else [])
    return max((n for _, n, own in known if n <= end - begin and windows_hash(series, begin, n) == own), default=0)


def origins_of(begin: int, first: int, end: int, window: int, horizon: int) -> np.ndarray:
    """All origins from ``first`` whose horizon ends by ``end`` and whose window begins at ``begin`` or later."""
    return np.arange(max(first, begin + window), end - horizon + 1)


def windows_hash(series: Series, begin: int, rows: int) -> str:
    """Of the first rows of one series."""
    return array_digest(series.values[begin : begin + rows])[:16]


def check_long_enough(series: Series, window: int, horizon: int, where: str, what_for: str = "to learn from") -> None:
    """Refuse series that are all shorter than a window and its horizon."""
    longest = max(end - begin for begin, end in series.spans())
    if longest < window + horizon:
        shown = f"{'at most ' if series.keys else ''}{longest:,} steps {what_for}"
        what = f"there are {shown}, fewer than a window of {window:,} and a horizon of {horizon:,}"
        raise InputError(what, where=where, hint="use --set window=… or --horizon …, or give a longer series")


def rows_at_once(config: Any, window: int, horizon: int, paths: int = PATHS) -> int:
    """How many windows are forecast at once, so that what is held of all their paths stays small."""
    many = max(1, paths) if config.quantiles and config.steps_ahead < horizon else 1
    return max(1, NUMBERS_AT_ONCE // ((window + horizon) * many))


@torch.inference_mode()
def forecasts_of(
    model: Any,
    windows: SeriesWindows,
    form: Form,
    *,
    paths: int = PATHS,
    report: Report = silent,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Forecasts (N, H, Y, Q) of windows, what came, and what of it is real (N, H, Y), in the data's own units."""
    Y, W, H = form.targets, windows.window, windows.horizon
    device = next(model.parameters(), torch.zeros(0)).device
    at_once = rows_at_once(model.config, W, H, paths)
    was_training = model.training
    model.eval()
    found, truth, real = [], [], []
    try:
        for at in range(0, len(windows), at_once):
            if stop():
                raise Abandoned
            places = np.arange(at, min(at + at_once, len(windows)))
            values, there, offset = windows.cut(places)
            past = torch.from_numpy(values[:, :W].astype(np.float32)).to(device)
            said = forecast(model, past, H, paths=paths).double().cpu().numpy()
            offset = offset[:, :, :Y].astype(float)
            mean, deviation = form.mean[:Y], form.deviation[:Y]
            found.append((said + offset[..., None]) * deviation[:, None] + mean[:, None])
            truth.append((values[:, W:, :Y] + offset) * deviation + mean)
            real.append(there[:, W:, :Y])
            report("progress", {"done": int(places[-1]) + 1, "total": len(windows)})
    finally:
        model.train(was_training)
    return np.concatenate(found), np.concatenate(truth), np.concatenate(real)


def with_band(found: np.ndarray, band: np.ndarray | None) -> tuple[np.ndarray, tuple[float, ...]]:
    """Single forecasts (N, H, Y, 1) with the quantiles of a band (H, Y, Q) around them, and their levels."""
    if band is None:
        return found, (0.5,)
    return found + band, LEVELS


def scored(
    model: Any, windows: SeriesWindows, form: Form, band: np.ndarray | None = None, report: Report = silent
) -> ForecastScore:
    """A rolling backtest: a forecast from every origin against what came."""
    found, truth, real = forecasts_of(model, windows, form, report=report)
    levels = tuple(model.config.quantiles)
    if not levels:
        found, levels = with_band(found, band)
    if not real.any():
        raise InputError("there is nothing to score: every number is a gap", hint="give another file")
    return score_forecasts(
        found, truth, real, levels, names=form.names[: form.targets], seasonal=form.seasonal, deviation=form.spread
    )
