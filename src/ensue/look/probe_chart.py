"""The chart of ``ensue score --probe``: accuracy on minimal pairs, by group."""

from __future__ import annotations

from typing import Any

import altair as alt

from ensue.look.chart_parts import COLOURS, records, titled

MAX_BARS = 60
"""Groupings with more values are not drawn."""


def probe_chart(figures: dict[str, Any], title: str) -> Any:
    """A bar chart for each grouping of the pairs; the dashed line is chance."""
    by = {name: rows for name, rows in figures["by"].items() if 1 < len(rows) <= MAX_BARS}
    by = by or {"all": [{"value": "all pairs", "accuracy": figures["accuracy"], "pairs": figures["pairs"]}]}
    share = f"{figures['accuracy']:.1%} of {figures['pairs']:,} pairs"
    caption = f"Accuracy: the correct text is the more probable one in {share}. Dashed: chance."
    return titled(alt.vconcat(*(_bars(name, rows) for name, rows in by.items())), title, caption, caption)


def _bars(name: str, rows: list[dict[str, Any]]) -> Any:
    order = [str(row["value"]) for row in rows]
    data = records([{**row, "value": str(row["value"])} for row in rows])
    bars = (
        alt.Chart(data)
        .mark_bar(color=COLOURS[0])
        .encode(
            y=alt.Y("value:N", sort=order, title=name, axis=alt.Axis(labelLimit=320)),
            x=alt.X("accuracy:Q", title="accuracy", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%")),
            tooltip=[alt.Tooltip("value:N", title=name), alt.Tooltip("accuracy:Q", format=".1%"), "pairs:Q"],
        )
    )
    chance = alt.Chart(records([{"x": 0.5}])).mark_rule(strokeDash=[6, 4]).encode(x=alt.X("x:Q", title="accuracy"))
    return (bars + chance).properties(width=420, height=alt.Step(20))
