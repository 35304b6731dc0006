"""Norms of gradients over a training run, and where they were clipped."""

from __future__ import annotations

from typing import Any

import altair as alt

from ensue.look.curves import thinned
from ensue.look.marks import by_run, heading, records


def training_chart(runs: list[dict[str, Any]]) -> Any:
    """Norm against steps, the threshold as a dashed line, and a mark wherever gradients were clipped."""
    names = [run["name"] for run in runs]
    colour = by_run(names)
    rows = [{"run": run["name"], **row} for run in runs for row in thinned(run["records"]) if row["norm"] > 0]
    limits = [{"run": run["name"], "clip": run["clip"]} for run in runs if run["clip"]]
    base = alt.Chart(records(rows)).encode(x=alt.X("step:Q", title="step"))
    y = alt.Y("norm:Q", title="norm of the gradient", scale=alt.Scale(type="log"))
    tips = [alt.Tooltip(name) for name in ("run:N", "step:Q", "norm:Q", "norm_top:Q", "clipped:Q", "updates:Q")]
    line = base.mark_line(strokeWidth=1.5, opacity=0.8).encode(y=y, color=colour)
    marks = (
        base.transform_filter("datum.clipped > 0")
        .mark_point(shape="triangle-down", filled=True, opacity=0.9)
        .encode(
            y=alt.Y("norm_top:Q", title="norm of the gradient"),
            color=colour,
            size=alt.Size("clipped:Q", title="clipped since then", scale=alt.Scale(range=[20, 140])),
            tooltip=tips,
        )
    )
    rule = (
        alt.Chart(records(limits))
        .mark_rule(strokeDash=[6, 4])
        .encode(y=alt.Y("clip:Q", title="norm of the gradient"), color=colour)
    )
    caption = (
        "Line: the norm before clipping, of the last update of each line of metrics. Triangles: the largest norm since "
        f"the line before, where some were clipped. Dashed: the threshold train.clip. {said(runs)}"
    )
    return alt.layer(line, marks, rule).properties(
        width=640, height=360, title=heading("Gradients while training", caption), description=said(runs)
    )


def said(runs: list[dict[str, Any]]) -> str:
    """How much was clipped in each run, in words.

    >>> said([{"name": "lstm", "clip": 1.0, "clipped": 3, "updates": 40}])
    'lstm: 3 of 40 gradients clipped at 1.'
    """
    return " ".join(
        f"{run['name']}: {run['clipped']:,} of {run['updates']:,} gradients clipped at {run['clip']:g}."
        if run["clip"]
        else f"{run['name']}: nothing is clipped."
        for run in runs
    )
