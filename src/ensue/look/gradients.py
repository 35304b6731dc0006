"""``ensue look gradients``: ‖∂J_t/∂h_k‖ against the distance t − k, with the bound from the Jacobians."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import altair as alt
import torch

from ensue.core.errors import InputError
from ensue.look.chart_parts import by_run, cut_text, dashes, heading, records, short_names
from ensue.look.instruments.gradient_flow import by_distance, factor_per_step, gradient_flow
from ensue.look.text_tokens import first_tokens, language_runs
from ensue.look.view import View
from ensue.runs.run import Run

CAPTION = (
    "Each line is the median over all t of a text, on a logarithmic scale: a straight line is exponential decay. "
    "The band holds the middle 80 %; dashed is the bound from the Jacobian norms, where it is in view."
)
MIN_NORM = 1e-40
"""Smaller norms are not drawn."""
BOUND_RANGE = 100.0
"""Bounds are drawn up to this many times the largest gradient; some grow without limit."""


def gradients(runs: Sequence[Run], *, text: str = "", layer: int = 0) -> View:
    """Gradient norm against distance, a line per run, on one text; ``layer`` counts from 1."""
    rows = []
    for name, run in zip(short_names([str(run) for run in runs]), language_runs(runs, text)):
        tokens, total = first_tokens(run, text)
        try:
            flow = gradient_flow(run.model, torch.from_numpy(tokens), layer)
        except InputError as error:
            raise InputError(str(error), where=str(run)) from error
        distances = by_distance(flow.norms)
        rows.append(
            {
                "name": name,
                "run": str(run),
                "system": run.system,
                "of": flow.of,
                "tokens": len(tokens) - 1,
                "of_tokens": total,
                "by_distance": distances,
                "factor_per_step": factor_per_step(distances),
                "bound": None if flow.bound is None else by_distance(flow.bound),
                "bound_of": flow.bound_of,
                "weight": flow.weight,
            }
        )
    return View(partial(flow_chart, rows), {"text": text, "runs": rows})


def flow_chart(runs: list[dict[str, Any]], *, title: str = "Gradient flow", caption: str = CAPTION) -> Any:
    """A line per run, with its band and its bound."""
    colour = by_run([run["name"] for run in runs])
    lines = [_row(run, "gradient", row) for run in runs for row in run["by_distance"] if row["median"] > MIN_NORM]
    top = BOUND_RANGE * max((row["high"] for row in lines), default=1.0)
    limits = [_row(run, "bound", row) for run in runs for row in run["bound"] or [] if row["median"] < top]
    floor = min((row["median"] for row in lines), default=MIN_NORM) / 10
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
        title=heading(title, f"{caption} {summary(runs)}"),
        description=f"{title}. {summary(runs)}",
    )


def _row(run: dict[str, Any], what: str, row: dict[str, float]) -> dict[str, Any]:
    """A row of chart data; the band must be above 0 on a logarithmic scale."""
    return {"run": run["name"], "what": what, **row, "low": max(row["low"], MIN_NORM), "mean": _finite(row["mean"])}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def summary(runs: list[dict[str, Any]]) -> str:
    """What h_k is in each run, and how fast its gradients decay."""
    return " ".join(f"{run['name']} ({run['system']}): h_k is {run['of']}; {_decay(run)}.{_cut(run)}" for run in runs)


def _cut(run: dict[str, Any]) -> str:
    cut = cut_text(run["tokens"], run["of_tokens"])
    return f" {cut}" if cut else ""


def _decay(run: dict[str, Any]) -> str:
    factor = run["factor_per_step"]
    return "too short to fit a decay" if factor is None else f"each step multiplies the norm by {_factor(factor)}"


def _factor(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else "∞"
