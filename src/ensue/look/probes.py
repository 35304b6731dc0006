"""Accuracy on probes: minimal pairs by kind, and copying by the length of the gap."""

from __future__ import annotations

from typing import Any

import altair as alt

from ensue.look.marks import by_run, heading, records

MOST_BARS = 60
"""More groups than this are not drawn."""


def probe_chart(figures: dict[str, Any], title: str) -> Any:
    """Bars for each way in which the pairs are grouped; the dashed line is chance."""
    by = {name: rows for name, rows in figures["by"].items() if 1 < len(rows) <= MOST_BARS}
    by = by or {"all": [{"value": "all pairs", "accuracy": figures["accuracy"], "pairs": figures["pairs"]}]}
    charts = [_bars(name, rows) for name, rows in by.items()]
    caption = f"{figures['accuracy']:.1%} of {figures['pairs']:,} pairs: the right one is the likelier. Dashed: chance."
    return alt.vconcat(*charts).properties(title=heading(title, caption), description=f"{title}. {caption}")


def _bars(name: str, rows: list[dict[str, Any]]) -> Any:
    order = [str(row["value"]) for row in rows]
    held = records([{**row, "value": str(row["value"])} for row in rows])
    bars = (
        alt.Chart(held)
        .mark_bar(color="#0072b2")
        .encode(
            y=alt.Y("value:N", sort=order, title=name, axis=alt.Axis(labelLimit=320)),
            x=alt.X("accuracy:Q", title="right", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%")),
            tooltip=[
                alt.Tooltip("value:N", title=name),
                alt.Tooltip("accuracy:Q", format=".1%"),
                alt.Tooltip("pairs:Q", format=","),
            ],
        )
    )
    chance = alt.Chart(records([{"x": 0.5}])).mark_rule(strokeDash=[6, 4]).encode(x=alt.X("x:Q", title="right"))
    return (bars + chance).properties(width=420, height=alt.Step(20))


def copying_chart(runs: list[dict[str, Any]], chance: float, longest: int) -> Any:
    """Accuracy against the gap, a line a run; the dashed line is chance."""
    names = [run["name"] for run in runs]
    rows = [{"run": run["name"], **row} for run in runs for row in run["by_gap"]]
    lines = (
        alt.Chart(records(rows))
        .mark_line(point=alt.OverlayMarkDef(size=50, filled=True), strokeWidth=2)
        .encode(
            x=alt.X("gap:Q", title="gap, dots between a letter and its copy"),
            y=alt.Y("accuracy:Q", title="right", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%")),
            color=by_run(names),
            tooltip=[
                alt.Tooltip("run:N"),
                alt.Tooltip("gap:Q"),
                alt.Tooltip("accuracy:Q", format=".1%"),
                alt.Tooltip("asked:Q", format=","),
            ],
        )
    )
    rule = alt.Chart(records([{"y": chance}])).mark_rule(strokeDash=[6, 4]).encode(y=alt.Y("y:Q", title="right"))
    caption = (
        f"How often the letter of the line comes first of {round(1 / chance)}; gaps in training were up to {longest}."
    )
    return (lines + rule).properties(
        width=600,
        height=340,
        title=heading("Copying over a gap", caption),
        description="; ".join(
            f"{run['name']}: " + ", ".join(f"{r['gap']}: {r['accuracy']:.0%}" for r in run["by_gap"]) for run in runs
        ),
    )
