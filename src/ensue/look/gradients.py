"""How gradients fade with distance: ‖∂J_t/∂h_k‖ against t − k, one line a run, and the bound of its Jacobians."""

from __future__ import annotations

import math
from typing import Any

import altair as alt

from ensue.look.marks import by_run, cut_text, dashes, heading, records

CAPTION = (
    "Each line is the median over all t of a text, on a logarithmic scale: straight down is an exponential decay. "
    "The band holds the middle eight tenths; dashed is what the product of Jacobian norms allows, where it is in view."
)
LEAST = 1e-40
"""Norms below this are not drawn."""
ABOVE = 100.0
"""How far above the largest gradient bounds are drawn: some grow without end."""


def flow_chart(runs: list[dict[str, Any]], *, title: str = "Gradient flow", caption: str = CAPTION) -> Any:
    """A line for each of what ``ensue look gradients`` tells of runs, with its band and its bound."""
    colour = by_run([run["name"] for run in runs])
    lines = [_row(run, "gradient", row) for run in runs for row in run["by_distance"] if row["median"] > LEAST]
    top = ABOVE * max((row["high"] for row in lines), default=1.0)
    limits = [_row(run, "bound", row) for run in runs for row in run["bound"] or [] if row["median"] < top]
    floor = min((row["median"] for row in lines), default=LEAST) / 10
    scale = alt.Scale(type="log", domain=[floor, top], nice=False)
    x = alt.X("distance:Q", title="distance t − k, tokens", axis=alt.Axis(tickMinStep=1))
    y = alt.Y("median:Q", title="‖∂J_t/∂h_k‖", scale=scale, axis=alt.Axis(format="~e"))
    tips = [alt.Tooltip(name) for name in ("run:N", "what:N", "distance:Q")]
    tips += [alt.Tooltip(f"{name}:Q", format=".3e") for name in ("median", "mean")]
    tips += [alt.Tooltip("places:Q", format=",")]
    kinds = dashes("what:N", ("gradient", "bound"), "")
    band = alt.Chart(records(lines)).mark_area(opacity=0.18, clip=True)
    drawn = alt.Chart(records([*lines, *limits])).mark_line(strokeWidth=2, clip=True)
    return alt.layer(
        band.encode(x=x, y=alt.Y("low:Q", title="‖∂J_t/∂h_k‖"), y2="high:Q", color=colour),
        drawn.encode(x=x, y=y, color=colour, strokeDash=kinds, tooltip=tips),
    ).properties(
        width=640,
        height=400,
        title=heading(title, f"{caption} {said(runs)}"),
        description=f"{title}. {said(runs)}",
    )


def _row(run: dict[str, Any], what: str, row: dict[str, float]) -> dict[str, Any]:
    """What is drawn of a distance; a band can only stand on a logarithmic scale where it is above 0."""
    return {"run": run["name"], "what": what, **row, "low": max(row["low"], LEAST), "mean": _finite(row["mean"])}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def said(runs: list[dict[str, Any]]) -> str:
    """What h_k is in each run, and how its gradients fade, in words."""
    return " ".join(f"{run['name']} ({run['system']}): h_k is {run['of']}; {_fading(run)}.{_cut(run)}" for run in runs)


def _cut(run: dict[str, Any]) -> str:
    cut = cut_text(run["tokens"], run["of_tokens"])
    return f" {cut}" if cut else ""


def _fading(run: dict[str, Any]) -> str:
    factor = run["factor_per_step"]
    return "too short to say how it fades" if factor is None else f"a step of distance multiplies by {_factor(factor)}"


def _factor(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else "∞"
