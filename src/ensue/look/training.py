"""``ensue look training``: gradient norms during training, and where they were clipped."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import altair as alt

from ensue.core.errors import InputError
from ensue.look.chart_parts import by_run, records, titled
from ensue.look.curves import thinned
from ensue.look.runs import named
from ensue.look.view import View
from ensue.runs.run import Run
from ensue.train.metrics import read_metrics

COLUMNS = ("step", "norm", "norm_top", "clipped", "updates")


def training(runs: Sequence[Run]) -> View:
    """Gradient norms during training, and how many gradients were clipped."""
    rows = []
    for name, run in named(runs, "training"):
        clip = float(run.settings.get("train.clip", 0.0))
        norms = norm_records(read_metrics(run.folder.path), clip)
        if not norms:
            raise InputError("its metrics have no gradient norms", where=str(run), hint="train it by gradient")
        clipped, updates = (sum(record[key] for record in norms) for key in ("clipped", "updates"))
        facts = {"name": name, "run": str(run), "system": run.system, "clip": clip}
        rows.append({**facts, "clipped": clipped, "updates": updates, "records": norms})
    return View(partial(training_chart, rows), {"runs": rows})


def norm_records(metrics: list[dict[str, Any]], clip: float) -> list[dict[str, Any]]:
    """The records that have a gradient norm, with the number of updates since the one before."""
    before, rows = 0, []
    for record in metrics:
        if "norm" in record:
            updates, before = record["step"] - before, record["step"]
            defaults = {"norm_top": record["norm"], "clipped": int(0 < clip <= record["norm"])}
            row = {**defaults, **record, "updates": updates}
            rows.append({name: row[name] for name in COLUMNS})
    return rows


def training_chart(runs: list[dict[str, Any]]) -> Any:
    """Norm against steps, the threshold as a dashed line, and a triangle wherever gradients were clipped."""
    colour = by_run([run["name"] for run in runs])
    rows = [{"run": run["name"], **row} for run in runs for row in thinned(run["records"]) if row["norm"] > 0]
    limits = [{"run": run["name"], "clip": run["clip"]} for run in runs if run["clip"]]
    base = alt.Chart(records(rows)).encode(x=alt.X("step:Q", title="step"))
    y = alt.Y("norm:Q", title="gradient norm", scale=alt.Scale(type="log"))
    line = base.mark_line(strokeWidth=1.5, opacity=0.8).encode(y=y, color=colour)
    triangles = (
        base.transform_filter("datum.clipped > 0")
        .mark_point(shape="triangle-down", filled=True, opacity=0.9)
        .encode(
            y=alt.Y("norm_top:Q", title="gradient norm"),
            color=colour,
            size=alt.Size("clipped:Q", title="clipped updates", scale=alt.Scale(range=[20, 140])),
            tooltip=["run:N", "step:Q", "norm:Q", "norm_top:Q", "clipped:Q", "updates:Q"],
        )
    )
    rule = alt.Chart(records(limits)).mark_rule(strokeDash=[6, 4])
    rule = rule.encode(y=alt.Y("clip:Q", title="gradient norm"), color=colour)
    caption = (
        "Line: the norm before clipping, at each logged step. Triangles: the largest norm since the last logged step, "
        f"where updates were clipped. Dashed: the threshold train.clip. {clipped_text(runs)}"
    )
    chart = alt.layer(line, triangles, rule)
    return titled(chart, "Gradient norms during training", caption, clipped_text(runs), width=640, height=360)


def clipped_text(runs: list[dict[str, Any]]) -> str:
    """How many gradients were clipped in each run.

    >>> clipped_text([{"name": "lstm", "clip": 1.0, "clipped": 3, "updates": 40}])
    'lstm: 3 of 40 gradients clipped at 1.'
    """
    return " ".join(
        f"{run['name']}: {run['clipped']:,} of {run['updates']:,} gradients clipped at {run['clip']:g}."
        if run["clip"]
        else f"{run['name']}: no clipping."
        for run in runs
    )
