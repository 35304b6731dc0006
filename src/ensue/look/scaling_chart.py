"""The chart of ``ensue cost attention --measure``: time, memory and decoding against the number of tokens."""

from __future__ import annotations

from typing import Any

import altair as alt

from ensue.look.chart_parts import by_name, heading, plain, records

PANELS = {
    "seconds": ("seconds of a training step", 1.0),
    "bytes": ("MB allocated in a training step", 1e6),
    "decode_seconds": ("seconds of one more token", 1.0),
}
WIDTH, HEIGHT = 300, 300
LOG = alt.Scale(type="log", nice=False, padding=12)


def scaling_chart(result: dict[str, Any]) -> Any:
    """A panel for each figure, a line for each attention, all axes logarithmic: a straight line is a power of n."""
    measured = result["measured"]
    names = [one["attention"] for one in measured]
    charts = [_panel(measured, names, key) for key in PANELS if measured[0][key]]
    caption = (
        f"One layer of width {result['width']} with {result['heads']} heads, one row, {result['threads']} "
        f"thread{'s' if result['threads'] > 1 else ''}, {result['direction']}; the fastest of some rounds. A line that "
        "rises by p decades in one decade of tokens grows as n to the power p."
    )
    title = heading("What attention costs as texts grow", caption)
    return alt.hconcat(*charts).properties(title=title, description=_summary(measured))


def _panel(measured: list[dict[str, Any]], names: list[str], key: str) -> Any:
    title, unit = PANELS[key]
    points = [
        {"attention": one["attention"], "tokens": length, "value": value / unit}
        for one in measured
        for length, value in zip(one["lengths"], one[key], strict=True)
    ]
    ticks = measured[0]["lengths"]
    x = alt.X("tokens:Q", title="tokens", scale=LOG, axis=alt.Axis(values=ticks, format=",d"))
    y = alt.Y("value:Q", title=title, scale=LOG, axis=alt.Axis(format="~g"))
    base = alt.Chart(records(points)).encode(x=x, y=y, color=by_name("attention:N", names, "attention"))
    tips = ["attention:N", "tokens:Q", alt.Tooltip("value:Q", title=title, format=".3~g")]
    layers = base.mark_line(strokeWidth=2) + base.mark_point(filled=True, size=45, opacity=1).encode(tooltip=tips)
    return layers.properties(width=WIDTH, height=HEIGHT)


def _summary(measured: list[dict[str, Any]]) -> str:
    """The chart as text."""
    parts = []
    for one in measured:
        grows = "" if one["time_exponent"] is None else f", time grows as n^{one['time_exponent']:.2f}"
        parts.append(f"{one['attention']}: {one['seconds'][-1]:.3g} s at {one['lengths'][-1]:,} tokens{grows}")
    return plain("; ".join(parts))
