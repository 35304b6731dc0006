"""A rolling backtest: a model's forecasts of windows, against the values that followed.

Legend: N windows, H steps ahead, Y targets, Q quantiles.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ensue.core.errors import InputError
from ensue.core.events import Report, silent
from ensue.data.series_encoding import SeriesEncoding
from ensue.data.series_windows import SeriesWindows
from ensue.measure.forecast import ForecastScore, score_forecasts
from ensue.nn.eval_mode import eval_mode
from ensue.search.forecast_rollout import PATHS, forecast

LEVELS = (0.1, 0.5, 0.9)
"""The quantiles of the band around the forecasts of a model without quantiles."""
BATCH_NUMBERS = 1 << 19
"""Numbers in the windows of a batch, at most."""


def windows_per_batch(config: Any, window: int, horizon: int, paths: int = PATHS) -> int:
    """Return how many windows are forecast in one batch, which has several paths of each window."""
    rows = max(1, paths) if config.quantiles and config.steps_ahead < horizon else 1
    return max(1, BATCH_NUMBERS // ((window + horizon) * rows))


@torch.inference_mode()
def forecast_windows(
    model: Any, windows: SeriesWindows, encoding: SeriesEncoding, *, paths: int = PATHS, report: Report = silent
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return forecasts (N, H, Y, Q), the true values and which of them are observed (N, H, Y), in the data's units."""
    W, H, Y = windows.window, windows.horizon, encoding.targets
    device = next(model.parameters(), torch.zeros(0)).device
    size = windows_per_batch(model.config, W, H, paths)
    parts = []
    with eval_mode(model):
        for start in range(0, len(windows), size):
            end = min(start + size, len(windows))
            values, observed, offset = windows.cut(np.arange(start, end))
            past = torch.from_numpy(values[:, :W].astype(np.float32)).to(device)
            scaled = forecast(model, past, H, paths=paths).double().cpu().numpy()
            offset = offset.astype(float)
            future = encoding.unscaled(values[:, W:, :Y], offset)
            parts.append((encoding.unscaled(scaled, offset), future, observed[:, W:, :Y]))
            report("progress", {"done": end, "total": len(windows)})
    forecasts, truth, real = map(np.concatenate, zip(*parts))
    return forecasts, truth, real


def with_band(forecasts: np.ndarray, band: np.ndarray | None) -> tuple[np.ndarray, tuple[float, ...]]:
    """Return single forecasts (N, H, Y, 1) with the quantiles of a band (H, Y, Q) around them, and their levels."""
    if band is None:
        return forecasts, (0.5,)
    return forecasts + band, LEVELS


def backtest(
    model: Any,
    windows: SeriesWindows,
    encoding: SeriesEncoding,
    band: np.ndarray | None = None,
    report: Report = silent,
) -> ForecastScore:
    """Score the forecasts from every origin; ``band`` has the quantiles around those of a model without quantiles."""
    forecasts, truth, real = forecast_windows(model, windows, encoding, report=report)
    levels = tuple(model.config.quantiles)
    if not levels:
        forecasts, levels = with_band(forecasts, band)
    if not real.any():
        raise InputError("there is nothing to score: every number is a gap", hint="give another file")
    names = encoding.names[: encoding.targets]
    scales = {"seasonal": encoding.seasonal, "deviation": encoding.spread}
    return score_forecasts(forecasts, truth, real, levels, names=names, **scales)
