"""What a task takes of each layer of its features: s_j of γ Σ_j s_j h_j."""

from __future__ import annotations

from typing import Any

import altair as alt

from ensue.look.marks import by_name, heading, plain


def layers_chart(runs: list[dict[str, Any]]) -> Any:
    """A bar for each layer's share; the layer that reads letters is 0."""
    rows = [
        {"run": f"{one['run']} ({one['task']}), γ = {one['scale']:.2f}", "layer": layer, "share": share}
        for one in runs
        for layer, share in enumerate(one["shares"])
    ]
    names = list(dict.fromkeys(str(row["run"]) for row in rows))
    said = "; ".join(
        f"{one['run']}: " + ", ".join(f"layer {layer} {share:.0%}" for layer, share in enumerate(one["shares"]))
        for one in runs
    )
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_bar()
        .encode(
            x=alt.X(
                "layer:O", title="layer (0 reads letters or words, the last is the top)", axis=alt.Axis(labelAngle=0)
            ),
            y=alt.Y("share:Q", title="share s", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%")),
            xOffset=alt.XOffset("run:N"),
            color=by_name("run:N", names, None, orient="bottom", labelLimit=600),
            tooltip=["run:N", "layer:O", alt.Tooltip("share:Q", format=".3f")],
        )
        .properties(
            width=420,
            height=280,
            title=heading("What a task takes of each layer", "γ Σ s_j h_j; equal shares before training"),
            description=plain(f"What a task takes of each layer. {said}"),
        )
    )
