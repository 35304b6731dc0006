"""``ensue look layers``: the weight s_j of each feature layer in γ Σ_j s_j h_j."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import altair as alt

from ensue.core.errors import InputError
from ensue.look.chart_parts import by_name, titled
from ensue.look.view import View
from ensue.runs.run import Run


def layers(runs: Sequence[Run]) -> View:
    """The weights with which runs mix the layers of their features."""
    rows = []
    for run in runs:
        features = run.config.get("features")
        if not features:
            hint = "name one that was trained with --from runs/elmo"
            raise InputError("the run reads no features, so it has no layer weights", where=str(run), hint=hint)
        row = {"run": run.folder.path.name, "task": run.task, "of": features["system"]}
        rows.append({**row, "shares": features["shares"], "scale": features["scale"]})
    return View(partial(layers_chart, rows), {"runs": rows})


def layers_chart(runs: list[dict[str, Any]]) -> Any:
    """A bar for each layer's weight; layer 0 is the embedding."""
    rows = [
        {"run": f"{run['run']} ({run['task']}), γ = {run['scale']:.2f}", "layer": layer, "share": share}
        for run in runs
        for layer, share in enumerate(run["shares"])
    ]
    names = list(dict.fromkeys(str(row["run"]) for row in rows))
    summary = "; ".join(
        f"{run['run']}: " + ", ".join(f"layer {layer} {share:.0%}" for layer, share in enumerate(run["shares"]))
        for run in runs
    )
    chart = (
        alt.Chart(alt.Data(values=rows))
        .mark_bar()
        .encode(
            x=alt.X("layer:O", title="layer j (0: embedding)", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("share:Q", title="weight s_j", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%")),
            xOffset=alt.XOffset("run:N"),
            color=by_name("run:N", names, None, orient="bottom", labelLimit=600),
            tooltip=["run:N", "layer:O", alt.Tooltip("share:Q", format=".3f")],
        )
    )
    caption = "The model reads γ Σ_j s_j h_j, with h_j from layer j; all s_j are equal before training."
    return titled(chart, "Weights of feature layers", caption, summary, wrap=60, width=420, height=280)
