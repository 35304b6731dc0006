"""The chart of an evaluation: the score of each task against the number of shots, with error bars and chance level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from ensue.look.chart_parts import by_run, heading, plain, records

COLUMNS = 3
"""Tasks in a row of the chart."""
WIDTH, HEIGHT = 220, 150


def eval_chart(results: Sequence[dict[str, Any]]) -> Any:
    """A small chart for each task; bars show one standard error on each side, a dashed line chance."""
    runs = list(dict.fromkeys(one["run"] for one in results))
    tasks = list(dict.fromkeys(one["task"] for one in results))
    charts = [_task_chart([one for one in results if one["task"] == task], runs) for task in tasks]
    caption = "Points: score. Bars: one standard error on each side, over the questions asked. Dashed: chance."
    title = heading("Score against the number of shots", caption)
    whole = alt.concat(*charts, columns=min(COLUMNS, len(charts))).properties(
        title=title, description=_summary(results)
    )
    return whole.configure_view(continuousWidth=WIDTH, continuousHeight=HEIGHT).configure_concat(spacing=24)


def _task_chart(results: Sequence[dict[str, Any]], runs: Sequence[str]) -> Any:
    """The results of one task, a line for each run."""
    points = []
    for one in results:
        figure = one["figures"][one["measure"]]
        value, error = figure["value"], figure["error"] or 0.0
        if value is not None:
            span = {"low": value - error, "high": value + error}
            points.append(
                {"run": one["run"], "shots": one["shots"], "value": value, **span, "examples": one["examples"]}
            )
    first = results[0]
    counts = sorted({one["shots"] for one in results})
    x = alt.X("shots:O", title="shots", sort=counts, axis=alt.Axis(labelAngle=0, grid=False))
    title = first["measure"].replace("_", " ")
    domain = [0, 1] if first["kind"] in ("choice", "match", "code") or first["measure"] == "acc" else None
    y = {"title": title, "scale": alt.Scale(domain=domain) if domain else alt.Scale(zero=False)}
    base = alt.Chart(records(points)).encode(x=x, color=by_run(runs))
    tips = ["run:N", "shots:O", alt.Tooltip("value:Q", format=".4~g"), "examples:Q"]
    layers = [
        base.mark_line(strokeWidth=2).encode(y=alt.Y("value:Q", **y)),
        base.mark_rule(strokeWidth=1.5).encode(y=alt.Y("low:Q", **y), y2="high:Q"),
        base.mark_point(size=60, filled=True, opacity=1).encode(y=alt.Y("value:Q", **y), tooltip=tips),
    ]
    if first.get("chance") is not None:
        level = alt.Chart(records([{"chance": first["chance"]}])).mark_rule(strokeDash=[4, 4], color="#555555")
        layers.insert(0, level.encode(y=alt.Y("chance:Q", **y)))
    return alt.layer(*layers).properties(title=plain(first["task"]), width=WIDTH, height=HEIGHT)


def _summary(results: Sequence[dict[str, Any]]) -> str:
    """The chart as text."""
    parts = []
    for one in results:
        value = one["figures"][one["measure"]]["value"]
        shown = "no value" if value is None else f"{value:.3g}"
        parts.append(f"{one['run']}, {one['task']}, {one['shots']} shots: {one['measure']} {shown}")
    return plain("; ".join(parts))
