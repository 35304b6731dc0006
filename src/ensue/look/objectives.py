"""The chart of a race of pre-training objectives: each seed's score as a dot, the mean as a line, by objective."""

from __future__ import annotations

from typing import Any

import altair as alt

from ensue.look.chart_parts import cycled, heading, plain
from ensue.look.label_curve import SCRATCH
from ensue.tasks.table import race_task


def objectives_chart(race: dict[str, Any]) -> Any:
    """A panel for each labelled set; objectives are in the order of the table, best first."""
    order = [one["objective"] for one in race["objectives"]]
    panels = [_panel(race, labelled, order) for labelled in race["then"]]
    each = "one pass over the text" if not race["budget"] else race["budget"]
    each += " of CPU time" if race["match"] == "cpu" else ""
    title = f"Pre-training objectives on {', '.join(race['data'])}"
    caption = (
        f"After {each} each and the same fine-tuning. Dots: seeds; lines: their mean; “{SCRATCH}”: no pre-training."
    )
    chart = alt.hconcat(*panels, spacing=30) if len(panels) > 1 else panels[0]
    return chart.properties(title=heading(title, caption), description=plain(f"{title}. {_summary(race)}"))


def _panel(race: dict[str, Any], labelled: dict[str, Any], order: list[str]) -> Any:
    _, rules = race_task(labelled["task"])
    better = "lower is better" if rules.lower else "higher is better"
    points = [
        {"objective": one["objective"], "score": value, "seed": seed}
        for one in race["objectives"]
        for seed, value in enumerate(one["scores"].get(labelled["name"], {}).get("seeds", ()))
    ]
    scale, ticks = alt.Scale(zero=False, padding=20), alt.Axis(tickCount=5, labelOverlap=True)
    axis = {"title": f"{rules.measure.title} ({better})", "scale": scale, "axis": ticks}
    y = alt.Y("objective:N", sort=order, title=None)
    colour = alt.Color("objective:N", sort=order, scale=cycled(order), legend=None)
    base = alt.Chart(alt.Data(values=points)).encode(y=y, color=colour)
    dots = base.mark_circle(size=90, opacity=0.7).encode(
        x=alt.X("score:Q", **axis), tooltip=["objective:N", "seed:Q", "score:Q"]
    )
    means = base.mark_tick(thickness=3, size=26).encode(x=alt.X("mean(score):Q", **axis))
    return (means + dots).properties(width=300, height=34 * max(len(order), 2), title=labelled["name"])


def _summary(race: dict[str, Any]) -> str:
    """The means in words, for readers who cannot see the chart."""
    parts = []
    for labelled in race["then"]:
        name = labelled["name"]
        means = [
            f"{one['objective']} {one['scores'][name]['mean']:.3f}"
            for one in race["objectives"]
            if name in one["scores"]
        ]
        parts.append(f"{name}: {', '.join(means)}")
    return "; ".join(parts)
