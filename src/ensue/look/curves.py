"""``ensue look curves``: training and validation loss of runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import altair as alt

from ensue.look.chart_parts import by_run, dashes, short_names, titled
from ensue.look.view import View
from ensue.runs.run import Run
from ensue.train.metrics import read_metrics

CAPTION = "Lower is better. A run overfits where validation (dashed) rises while training falls."


def curves(runs: Sequence[Run]) -> View:
    """Learning curves of runs."""
    records = {str(run): read_metrics(run.folder.path) for run in runs}
    numbers = {"runs": [{"run": name, "records": rows} for name, rows in records.items()]}
    units = {run.loss_unit for run in runs}
    named = dict(zip(short_names(list(records)), records.values()))
    return View(partial(curves_chart, named, () if "" in units else sorted(units)), numbers)


def curves_chart(runs: dict[str, list[dict[str, Any]]], units: Sequence[str] = ("nats per token",)) -> Any:
    """Loss against steps, a line for training and one for validation; ``units`` label the axis."""
    rows = [
        {"run": run, "step": r["step"], "loss": r[key], "on": name}
        for run, records in runs.items()
        for r in thinned(records)
        for key, name in (("loss", "training"), ("valid_loss", "validation"))
        if key in r
    ]
    ends = {
        (row["run"], row["on"]): f"{row['run']}, {row['on']}: {row['loss']:.4g} at step {row['step']:,}" for row in rows
    }
    chart = (
        alt.Chart(alt.Data(values=rows))
        .mark_line(point=len(rows) < 400)
        .encode(
            x=alt.X("step:Q", title="training step"),
            y=alt.Y("loss:Q", title=", ".join(filter(None, ("loss", " or ".join(units)))), scale=alt.Scale(zero=False)),
            color=by_run(list(runs)),
            strokeDash=dashes("on:N", ("training", "validation"), "measured on"),
            tooltip=["run:N", "on:N", "step:Q", "loss:Q"],
        )
    )
    return titled(chart, "Learning curves", CAPTION, "; ".join(ends.values()), width=640, height=400)


def thinned(records: list[dict[str, Any]], most: int = 2000) -> list[dict[str, Any]]:
    """About ``most`` records, evenly spaced; evaluations are all kept."""
    stride = max(1, len(records) // most)
    return [r for n, r in enumerate(records) if n % stride == 0 or "valid_loss" in r]
