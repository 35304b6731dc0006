"""How gradients fade with distance: ‖∂J_t/∂h_k‖ against t − k, one line a run, and the bound of its Jacobians."""

from __future__ import annotations

import math
from typing import Any

import altair as alt

from ensue.look.marks import by_run, heading, records

CAPTION = (
    "Each line is the mean over all t of a text, on a logarithmic scale: a straight line down is an exponential decay. "
    "The band holds the middle eight tenths; dashed is what the product of Jacobian norms allows."
)
LEAST, MOST = 1e-40, 1e40
"""Norms beyond these are not drawn."""


def flow_chart(runs: list[dict[str, Any]], *, title: str = "Gradient flow", caption: str = CAPTION) -> Any:
    """A line for each of what ``ensue look gradients`` tells of runs, with its band and its bound."""
    names = [run["name"] for run in runs]
    colour = by_run(names)
    lines = [{"run": run["name"], "what": "gradient", **row} for run in runs for row in run["by_distance"]]
    limits = [{"run": run["name"], "what": "bound", **row} for run in runs for row in run["bound"] or []]
    x = alt.X("distance:Q", title="distance t − k, tokens", axis=alt.Axis(tickMinStep=1))
    y = alt.Y("mean:Q", title="‖∂J_t/∂h_k‖", scale=alt.Scale(type="log"), axis=alt.Axis(format="~e"))
    tips = [
        alt.Tooltip("run:N"),
        alt.Tooltip("what:N"),
        alt.Tooltip("distance:Q"),
        alt.Tooltip("mean:Q", format=".3e"),
        alt.Tooltip("places:Q", format=","),
    ]
    band = alt.Chart(records([_clamped(row) for row in lines if _drawn(row)])).mark_area(opacity=0.18)
    drawn = alt.Chart(records([row for row in [*lines, *limits] if _drawn(row)])).mark_line(strokeWidth=2)
    dashes = alt.Scale(domain=["gradient", "bound"], range=[[1, 0], [6, 4]])
    return (
        alt.layer(
            band.encode(x=x, y=alt.Y("low:Q", title="‖∂J_t/∂h_k‖"), y2="high:Q", color=colour),
            drawn.encode(
                x=x, y=y, color=colour, strokeDash=alt.StrokeDash("what:N", title="", scale=dashes), tooltip=tips
            ),
        )
        .properties(
            width=640,
            height=400,
            title=heading(title, f"{caption} {said(runs)}"),
            description=f"{title}. {said(runs)}",
        )
        .interactive()
    )


def _drawn(row: dict[str, Any]) -> bool:
    return bool(LEAST < row["mean"] < MOST)


def _clamped(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose band can stand on a logarithmic scale."""
    return {**row, "low": max(row["low"], LEAST), "high": max(row["high"], LEAST)}


def said(runs: list[dict[str, Any]]) -> str:
    """What h_k is in each run, and how its gradients fade, in words."""
    return " ".join(f"{run['name']} ({run['system']}): h_k is {run['of']}; {_fading(run)}." for run in runs)


def _fading(run: dict[str, Any]) -> str:
    factor = run["factor_per_step"]
    return "too short to say how it fades" if factor is None else f"a step of distance multiplies by {_factor(factor)}"


def _factor(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else "∞"
