"""The encoding of a forecasting run's series: its columns, their scale and season; from values to windows and back.

Legend: N rows, C columns, Y targets, H steps ahead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ensue.core.errors import InputError
from ensue.core.schema import Fields, Items, Number, Row, Text, Whole
from ensue.data.batches import array_digest
from ensue.data.calendar import Frequency
from ensue.data.series import Series
from ensue.data.series_windows import SeriesWindows

ARRAYS = ("mean", "deviation", "seasonal", "spread")
PLAIN = ("targets", "centre", "season", "window", "horizon")
ENCODING_SCHEMA = Fields(
    {
        "names": Items(Text(), least=1),
        "targets": Whole(1),
        **{name: Items(Number(), least=1) for name in ARRAYS},
        "centre": Text(("none", "last", "mean")),
        **dict.fromkeys(("season", "window", "horizon"), Whole(1)),
        "frequency": Text(("none", "even", "months", "workdays", "uneven")),
        "step": Whole(0, 1 << 40),
        "learnt": Items(Row((Text(), Whole(0), Text()))),
    }
)
"""What ``SeriesEncoding.from_dict`` reads."""


@dataclass(frozen=True)
class SeriesEncoding:
    """How the values of a run are read, scaled and measured."""

    names: tuple[str, ...]
    """The columns, targets first."""
    targets: int
    """The number of targets."""
    mean: np.ndarray
    """(C,): what is subtracted."""
    deviation: np.ndarray
    """(C,): what is divided by."""
    centre: str
    """What is subtracted from a window: none, last or mean."""
    season: int
    window: int
    horizon: int
    frequency: Frequency
    seasonal: np.ndarray
    """(Y,): the mean change from season to season in the training part, the denominator of MASE."""
    spread: np.ndarray
    """(Y,): the standard deviation of the targets in the training part, whatever they are scaled by."""
    learnt: tuple[tuple[str, int, str], ...] = ()
    """For each series its name, how many rows training has seen, and their hash."""

    def as_dict(self) -> dict[str, Any]:
        """For config.json."""
        arrays = {name: getattr(self, name).tolist() for name in ARRAYS}
        plain = {name: getattr(self, name) for name in PLAIN}
        dates = {"frequency": self.frequency.kind, "step": self.frequency.size}
        return {"names": list(self.names), **plain, **arrays, **dates, "learnt": [list(one) for one in self.learnt]}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> SeriesEncoding:
        """From config.json, as ``ENCODING_SCHEMA`` describes it."""
        columns, targets = len(values["names"]), values["targets"]
        sizes = {"mean": columns, "deviation": columns, "seasonal": targets, "spread": targets}
        wrong = [name for name, size in sizes.items() if len(values[name]) != size]
        if wrong or targets > columns or not all(values["deviation"]):
            what = f"{wrong[0]} has {len(values[wrong[0]])} numbers" if wrong else "targets or deviation is wrong"
            raise InputError(f"data.form: {what}, with {columns} columns and {targets} targets")
        arrays: dict[str, Any] = {name: np.asarray(values[name], dtype=float) for name in ARRAYS}
        return SeriesEncoding(
            names=tuple(values["names"]),
            frequency=Frequency(values["frequency"], values["step"]),
            learnt=tuple((key, rows, digest) for key, rows, digest in values["learnt"]),
            **arrays,
            **{name: values[name] for name in PLAIN},
        )

    def windows(self, series: Series, origins: np.ndarray) -> SeriesWindows:
        """Return the scaled windows of series at ``origins``."""
        scaled = np.asarray((series.values - self.mean) / self.deviation, dtype=np.float32)
        return SeriesWindows(scaled, series.observed, origins, self.window, self.horizon, self.centre)

    def unscaled(self, values: np.ndarray, offset: np.ndarray) -> np.ndarray:
        """Return values (…, H, Y) or quantiles (…, H, Y, Q) in the data's units; ``offset`` (…, 1, C) is of windows."""
        deviation, mean, offset = self.deviation[: self.targets], self.mean[: self.targets], offset[..., : self.targets]
        if values.ndim > offset.ndim:
            deviation, mean, offset = deviation[:, None], mean[:, None], offset[..., None]
        return np.asarray((values + offset) * deviation + mean)

    def rows_seen(self, series: Series, begin: int, end: int, key: str) -> int:
        """Return how many rows of a series training has seen, by their hash; a series without a name may be any."""
        known = [one for one in self.learnt if one[0] == key] or (list(self.learnt) if not key else [])
        return max((n for _, n, own in known if n <= end - begin and rows_hash(series, begin, n) == own), default=0)


def fit_series_encoding(
    series: Series, parts: Sequence[tuple[int, int]], scale: str, centre: str, season: int, window: int, horizon: int
) -> SeriesEncoding:
    """Fit the encoding to the training parts (begin, end) of series."""
    rows = np.concatenate([np.arange(begin, end) for begin, end in parts])
    held = np.ma.masked_array(series.values[rows], mask=~series.observed[rows])
    mean, deviation = (np.ma.filled(part, 0.0) for part in (held.mean(axis=0), held.std(axis=0)))
    Y = series.targets
    changes = [
        seasonal_scale(series.values[a:b, :Y], series.observed[a:b, :Y], season) for a, b in parts if b - a > season
    ]
    total, count = np.sum(changes, axis=0) if changes else np.zeros((2, Y))
    if scale == "none":
        shift, divide = np.zeros_like(mean), np.ones_like(deviation)
    else:
        shift, divide = mean, np.where(deviation > 1e-12 * np.abs(mean), deviation, 1.0)
    return SeriesEncoding(
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


def seasonal_scale(values: np.ndarray, real: np.ndarray, season: int) -> np.ndarray:
    """mean |x_t − x_{t−m}| of each column of one series (N, C), as sums and counts (2, C), which add up over series.

    >>> seasonal_scale(np.array([[1.0], [2.0], [4.0]]), np.ones((3, 1), bool), 1).ravel().tolist()
    [3.0, 2.0]
    """
    both = real[season:] & real[:-season]
    return np.stack([(np.abs(values[season:] - values[:-season]) * both).sum(0), both.sum(0)])


def forecast_origins(begin: int, first: int, end: int, window: int, horizon: int) -> np.ndarray:
    """Return all origins from ``first`` whose horizon ends by ``end`` and whose window starts at ``begin`` or later."""
    return np.arange(max(first, begin + window), end - horizon + 1)


def rows_hash(series: Series, begin: int, rows: int) -> str:
    """Return the hash of some rows of a series."""
    return array_digest(series.values[begin : begin + rows])[:16]


def check_long_enough(series: Series, window: int, horizon: int, where: str, what_for: str = "to learn from") -> None:
    """Raise InputError if all series are shorter than a window and its horizon."""
    longest = max(end - begin for begin, end in series.spans())
    if longest < window + horizon:
        shown = f"{'at most ' if series.keys else ''}{longest:,} steps {what_for}"
        what = f"there are {shown}, fewer than a window of {window:,} and a horizon of {horizon:,}"
        raise InputError(what, where=where, hint="use --set window=… or --horizon …, or give a longer series")
