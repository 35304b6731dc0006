"""``ensue look forecast``: the past of a series, the forecast with its band, and the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import PurePath
from typing import Any

import altair as alt
import numpy as np

from ensue.core.errors import unknown_name
from ensue.data.series import Series
from ensue.look.chart_parts import cycled, titled
from ensue.look.runs import forecast_run, single
from ensue.look.view import View
from ensue.measure.backtest import forecast_windows, with_band
from ensue.runs.forecast import ForecastRun
from ensue.runs.run import Run

LINE_COLOURS = {"past": "#7f7f7f", "truth": "#222222", "forecast": "#d95f02"}
MAX_PANELS = 4
"""More series or targets are not drawn."""


def forecast(runs: Sequence[Run], *, data: Sequence[Any] = (), target: str = "") -> View:
    """The forecast of a run on held-out series: the past, the forecast with its band, and the truth."""
    numbers = forecast_numbers(forecast_run(single(runs, "forecast")), data, target)
    return View(partial(forecast_chart, numbers), numbers)


def forecast_numbers(run: ForecastRun, files: Sequence[Any] = (), target: str = "") -> dict[str, Any]:
    """Past, forecast, band and truth at the last held-out origin; at most ``MAX_PANELS`` series or targets."""
    files = files or run.settings.get("data.valid") or run.settings["data.files"]
    series, windows = run.held_out(files)
    names = run.encoding.names[: run.encoding.targets]
    if target and target not in names:
        raise unknown_name("target", target, names)
    shown = [target] if target else list(names)
    ends = [windows.origins[windows.origins < end][-1:] for _, end in series.spans()]
    last = np.unique(np.concatenate(ends))[: MAX_PANELS if len(shown) == 1 else 1]
    forecasts, truth, _ = forecast_windows(run.model, replace(windows, origins=last), run.encoding)
    levels = tuple(run.model.config.quantiles)
    if not levels:
        forecasts, levels = with_band(forecasts, run.band)
    columns = {name: names.index(name) for name in shown[:MAX_PANELS]}
    panels = [
        _panel_numbers(run, series, int(origin), name, forecasts[i, :, column], truth[i, :, column], levels)
        for i, origin in enumerate(last)
        for name, column in columns.items()
    ]
    return {"run": str(run), "system": run.system, "quantiles": list(levels), "panels": panels}


def _panel_numbers(
    run: ForecastRun,
    series: Series,
    origin: int,
    name: str,
    forecasts: np.ndarray,
    truth: np.ndarray,
    levels: tuple[float, ...],
) -> dict[str, Any]:
    """One target from one origin: points with ``at`` (a date, or a step counted from the origin) and values."""
    column, horizon = run.encoding.names.index(name), len(forecasts)
    index = int(np.searchsorted(series.starts, origin, side="right")) - 1
    first = max(int(series.starts[index]), origin - max(3 * horizon, min(run.encoding.window, 72)))
    dates = series.dates

    def at(row: int) -> Any:
        return str(dates[row].astype("datetime64[s]")) if dates is not None else row - origin + 1

    past = [{"at": at(row), "value": float(series.values[row, column])} for row in range(first, origin)]
    true = [{"at": at(origin + step), "value": float(truth[step])} for step in range(horizon)]
    middle = levels.index(0.5)
    ahead = [
        {"at": at(origin + step), "value": float(row[middle]), "low": float(row[0]), "high": float(row[-1])}
        for step, row in enumerate(forecasts)
    ]
    key = series.keys[index] if series.keys else ""
    title = " · ".join(filter(None, (f"series {key}" if key else "", name)))
    return {"title": title, "past": past, "truth": true, "forecast": ahead, "dated": dates is not None}


def forecast_chart(numbers: dict[str, Any]) -> Any:
    """A panel for each series or target, one below the other."""
    levels, panels = numbers["quantiles"], numbers["panels"]
    wide = len(panels) == 1
    charts = [_panel(panel, levels, 640 if wide else 560, 320 if wide else 150) for panel in panels]
    band = f"; the band should contain {100 * (levels[-1] - levels[0]):.0f} % of the truth" if len(levels) > 1 else ""
    caption = f"{PurePath(numbers['run']).name}: grey is the past, black the truth, dashed the forecast{band}."
    return titled(alt.vconcat(*charts), f"Forecast of {numbers['system']}", caption, "; ".join(map(_summary, panels)))


def _summary(panel: dict[str, Any]) -> str:
    """A panel as text: the last observation, and forecast and truth at the horizon."""
    true = f", truth {panel['truth'][-1]['value']:.4g}" if panel["truth"] else ""
    ahead = panel["forecast"]
    return (
        f"{panel['title']}: last value {panel['past'][-1]['value']:.4g}; after {len(ahead)} steps "
        f"forecast {ahead[-1]['value']:.4g}{true}"
    )


def _panel(panel: dict[str, Any], levels: list[float], width: int, height: int) -> Any:
    """The past in grey, the truth in black, the forecast in colour with its band."""
    joint = panel["past"][-1]
    lines = [{**point, "what": "past"} for point in panel["past"]]
    lines += [{**point, "what": "truth"} for point in (joint, *panel["truth"])]
    lines += [{"at": p["at"], "value": p["value"], "what": "forecast"} for p in (joint, *panel["forecast"])]
    x = (
        alt.X("at:T", title="date", axis=alt.Axis(format="%d %b %Y", labelOverlap="greedy", labelSeparation=8))
        if panel["dated"]
        else alt.X("at:Q", title="steps after the last observation (0)")
    )
    kind = "T" if panel["dated"] else "Q"
    y = {"title": panel["title"], "scale": alt.Scale(zero=False)}
    names = list(LINE_COLOURS)
    chart = (
        alt.Chart(alt.Data(values=lines))
        .mark_line(point=len(panel["truth"]) < 3)
        .encode(
            x=x,
            y=alt.Y("value:Q", **y),
            color=alt.Color("what:N", title=None, scale=cycled(names, list(LINE_COLOURS.values()))),
            strokeDash=alt.StrokeDash("what:N", scale=cycled(names, [[1, 0], [1, 0], [6, 3]]), legend=None),
            tooltip=["what:N", f"at:{kind}", alt.Tooltip("value:Q", format=".5g")],
        )
    )
    if len(levels) > 1:
        first = {"at": joint["at"], "low": joint["value"], "high": joint["value"]}
        band = alt.Chart(alt.Data(values=[first, *panel["forecast"]]))
        band = band.mark_area(opacity=0.25, color=LINE_COLOURS["forecast"])
        chart = band.encode(x=x, y=alt.Y("low:Q", **y), y2="high:Q") + chart
    return chart.properties(width=width, height=height)
