"""``ensue look gradients``: ‖∂J_t/∂h_k‖ against the distance t − k, with the bound from the Jacobians."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import altair as alt
import torch

from ensue.core.errors import InputError
from ensue.look.chart_parts import by_run, cut_text, dashes, records, titled
from ensue.look.instruments.gradient_flow import by_distance, factor_per_step, gradient_flow
from ensue.look.runs import check_text, first_tokens, language_run, named
from ensue.look.view import View
from ensue.runs.run import Run

CAPTION = (
    "How much the loss J_t at token t depends on the state h_k at an earlier token k: the median over all t of a text. "
    "A straight line is exponential decay. The band holds the middle 80 %"
)
BOUND_CAPTION = "; dashed is the bound from the Jacobian norms"
NORM = "gradient norm ‖∂J_t/∂h_k‖ (logarithmic)"
MIN_NORM = 1e-40
"""Smaller norms are not drawn."""
BOUND_RANGE = 100.0
"""Bounds are drawn up to this many times the largest gradient; some grow without limit."""


def gradients(runs: Sequence[Run], *, text: str = "", layer: int = 0) -> View:
    """Gradient norm against distance, a line per run, on one text; ``layer`` counts from 1."""
    rows, chosen = [], named(runs, "gradients")
    check_text(text, "gradients")
    for name, run in [(name, language_run(run)) for name, run in chosen]:
        tokens, total = first_tokens(run, text)
        try:
            flow = gradient_flow(run.model, torch.from_numpy(tokens), layer)
        except InputError as error:
            raise InputError(str(error), where=str(run)) from error
        distances = by_distance(flow.norms)
        row: dict[str, Any] = {"name": name, "run": str(run), "system": run.system, "of": flow.of}
        row |= {"tokens": len(tokens) - 1, "of_tokens": total, "by_distance": distances}
        row |= {"factor_per_step": factor_per_step(distances), "bound_of": flow.bound_of, "weight": flow.weight}
        rows.append({**row, "bound": None if flow.bound is None else by_distance(flow.bound)})
    return View(partial(flow_chart, rows), {"text": text, "runs": rows})


def flow_chart(runs: list[dict[str, Any]]) -> Any:
    """A line per run, with its band and its bound."""
    colour = by_run([run["name"] for run in runs])
    lines = [_row(run, "gradient", row) for run in runs for row in run["by_distance"] if row["median"] > MIN_NORM]
    top = BOUND_RANGE * max((row["high"] for row in lines), default=1.0)
    limits = [_row(run, "bound", row) for run in runs for row in run["bound"] or [] if row["median"] < top]
    floor = min((row["median"] for row in lines), default=MIN_NORM) / 10
    scale = alt.Scale(type="log", domain=[floor, top], nice=False)
    x = alt.X("distance:Q", title="distance t − k in tokens", axis=alt.Axis(tickMinStep=1))
    y = alt.Y("median:Q", title=NORM, scale=scale, axis=alt.Axis(format="~e"))
    norms = [alt.Tooltip(f"{name}:Q", format=".3e") for name in ("median", "mean")]
    tips = ["run:N", "what:N", "distance:Q", *norms, alt.Tooltip("places:Q", title="pairs (t, k)")]
    kinds = dashes("what:N", ("gradient", "bound") if limits else ("gradient",), "")
    band = alt.Chart(records(lines)).mark_area(opacity=0.18, clip=True)
    drawn = alt.Chart(records([*lines, *limits])).mark_line(strokeWidth=2, clip=True)
    chart = alt.layer(
        band.encode(x=x, y=alt.Y("low:Q", title=NORM), y2="high:Q", color=colour),
        drawn.encode(x=x, y=y, color=colour, strokeDash=kinds, tooltip=tips),
    )
    facts = summary(runs)
    caption = f"{CAPTION}{BOUND_CAPTION * bool(limits)}. {facts}"
    return titled(chart, "Gradient norm by distance", caption, facts, width=640, height=400)


def _row(run: dict[str, Any], what: str, row: dict[str, float]) -> dict[str, Any]:
    """A row of chart data; the band must be above 0 on a logarithmic scale."""
    mean = row["mean"] if math.isfinite(row["mean"]) else None  # JSON has no infinity
    return {"run": run["name"], "what": what, **row, "low": max(row["low"], MIN_NORM), "mean": mean}


def summary(runs: list[dict[str, Any]]) -> str:
    """What h_k is in each run, and how fast its gradients decay."""
    sentences = []
    for run in runs:
        factor = run["factor_per_step"]
        decay = "the text is too short to fit a decay"
        if factor is not None:
            decay = f"each step multiplies the norm by {factor:.3f}".replace("inf", "∞")
        sentences.append(f"{run['name']} ({run['system']}): h_k is {run['of']}; {decay}.")
        sentences.append(cut_text(run["tokens"], run["of_tokens"]))
    return " ".join(filter(None, sentences))
