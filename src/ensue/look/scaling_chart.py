"""The chart of ``ensue cost attention --measure``: time, memory and decoding against the number of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log
from typing import Any

import altair as alt

from ensue.look.chart_parts import COLOURS, DASHES, cycled, heading, plain, records

PANELS = {
    "seconds": ("seconds of a training step", 1.0),
    "bytes": ("MB allocated in a training step", 1e6),
    "decode_seconds": ("seconds of one more token", 1.0),
}
WIDTH, HEIGHT = 300, 340
LABEL, LEADER = 12, 18
"""Pixels between the labels of lines, and between the end of a line and its label."""


def scaling_chart(result: dict[str, Any]) -> Any:
    """A panel for each figure, a line for each attention, all axes logarithmic: a straight line is a power of n."""
    measured = result["measured"]
    charts = [_panel(measured, key) for key in PANELS if measured[0][key]]
    caption = (
        f"One layer of width {result['width']} with {result['heads']} heads, one row, {result['threads']} "
        f"thread{'s' if result['threads'] > 1 else ''}, {result['direction']}; the fastest of some rounds. A line that "
        "rises by p decades in one decade of tokens grows as n to the power p."
    )
    title = heading("What attention costs as texts grow", caption)
    return alt.hconcat(*charts, spacing=40).properties(title=title, description=_summary(measured))


def _panel(measured: list[dict[str, Any]], key: str) -> Any:
    """Lines of different colours and dashes, each with its name at its end."""
    title, unit = PANELS[key]
    names, ticks = [one["attention"] for one in measured], measured[0]["lengths"]
    points = [
        {"attention": one["attention"], "tokens": length, "value": value / unit}
        for one in measured
        for length, value in zip(one["lengths"], one[key], strict=True)
    ]
    values = [point["value"] for point in points]
    low, high = min(values) / 1.1, max(values) * 1.1
    ends = [one[key][-1] / unit for one in measured]
    gap = log(high / low) * min(LABEL / HEIGHT, 1 / (len(ends) + 1))
    places = [exp(one) for one in spread([log(end) for end in ends], gap, log(low) + gap / 2, log(high) - gap / 2)]
    after = ticks[-1] * exp(LEADER / WIDTH * max(log(ticks[-1] / ticks[0]), 1.0))
    x = alt.X(
        "tokens:Q",
        title="tokens",
        scale=alt.Scale(type="log", nice=False, domain=[ticks[0] / 1.05, after]),
        axis=alt.Axis(values=ticks, format=",d"),
    )
    y = alt.Y(
        "value:Q",
        title=title,
        scale=alt.Scale(type="log", nice=False, domain=[low, high]),
        axis=alt.Axis(format="~g"),
    )
    colour = alt.Color("attention:N", sort=names, scale=cycled(names), legend=None)
    dashes = [DASHES[at // len(COLOURS) % len(DASHES)] for at in range(len(names))]
    dash = alt.StrokeDash("attention:N", sort=names, scale=cycled(names, dashes), legend=None)
    tips = ["attention:N", "tokens:Q", alt.Tooltip("value:Q", title=title, format=".3~g")]
    base = alt.Chart(records(points)).encode(x=x, y=y, color=colour)
    lines = base.mark_line(strokeWidth=2).encode(strokeDash=dash)
    dots = base.mark_point(filled=True, size=40, opacity=1).encode(tooltip=tips)
    marks = [
        {"attention": name, "tokens": tokens, "value": value}
        for name, end, place in zip(names, ends, places, strict=True)
        for tokens, value in ((ticks[-1], end), (after, place))
    ]
    leaders = alt.Chart(records(marks)).mark_line(strokeWidth=0.7).encode(x=x, y=y, color=colour)
    labels = alt.Chart(records(marks[1::2])).mark_text(align="left", dx=3, fontSize=10.5)
    layers = leaders + lines + dots + labels.encode(x=x, y=y, color=colour, text="attention:N")
    return layers.properties(width=WIDTH, height=HEIGHT)


def spread(values: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places from ``low`` to ``high`` for labels of these values, in the same order, none nearer than ``gap``.

    >>> spread([1.0, 1.1, 5.0], 1.0, 0.0, 10.0)
    [1.0, 2.0, 5.0]
    >>> spread([9.9, 9.8], 1.0, 0.0, 10.0)
    [10.0, 9.0]
    """
    order, places = sorted(range(len(values)), key=lambda at: values[at]), list(values)
    for before, at in zip([None, *order], order, strict=False):
        places[at] = max(places[at], low if before is None else places[before] + gap)
    for after, at in zip([None, *order[::-1]], order[::-1], strict=False):
        places[at] = min(places[at], high if after is None else places[after] - gap)
    return places


def _summary(measured: list[dict[str, Any]]) -> str:
    """The chart as text."""
    parts = []
    for one in measured:
        grows = "" if one["time_exponent"] is None else f", time grows as n^{one['time_exponent']:.2f}"
        parts.append(f"{one['attention']}: {one['seconds'][-1]:.3g} s at {one['lengths'][-1]:,} tokens{grows}")
    return plain("; ".join(parts))
