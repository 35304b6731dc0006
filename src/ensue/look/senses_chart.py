"""One word in many contexts: a scatter plot of its vectors, and some contexts with their nearest neighbours."""

from __future__ import annotations

from typing import Any

import altair as alt

from ensue.look.chart_parts import component_axes, cycled, titled

AROUND = 5
"""Words that are shown on each side of the word."""
LISTED = 5
"""Contexts of each sense that are listed."""


def snippet(words: list[str], position: int, around: int = AROUND) -> str:
    """The word at ``position``, in brackets, with the words ``around`` it.

    >>> snippet("a nice walk by the river bank in spring".split(), 6, 2)
    '… the river [bank] in spring'
    """
    first, last = max(0, position - around), min(len(words), position + around + 1)
    shown = [f"[{word}]" if i == position else word for i, word in enumerate(words[first:last], start=first)]
    return " ".join([*(["…"] if first else []), *shown, *(["…"] if last < len(words) else [])])


def senses_chart(numbers: dict[str, Any], title: str, caption: str) -> Any:
    """A point for each context, coloured by sense, beside a list of some with their nearest neighbours."""
    rows = [_row(context) for context in numbers["contexts"]]
    senses = sorted({row["sense"] for row in rows})
    legend = alt.Legend(title="sense") if any(senses) else None
    colour = alt.Color("sense:N", scale=cycled(senses), legend=legend)
    axes = component_axes(numbers["variance"])
    points = (
        alt.Chart(alt.Data(values=rows))
        .mark_circle(size=90, opacity=0.75)
        .encode(
            x=alt.X("x:Q", title=axes[0], axis=alt.Axis(labels=False, ticks=False)),
            y=alt.Y("y:Q", title=axes[1], axis=alt.Axis(labels=False, ticks=False)),
            color=colour,
            tooltip=["context:N", "sense:N", "nearest:N", alt.Tooltip("similarity:Q", format=".3f")],
        )
        .properties(width=430, height=430)
    )
    chart = alt.hconcat(points, _list(rows, senses, colour)).configure_view(stroke=None)
    return titled(chart, title, caption, caption)


def _row(context: dict[str, Any]) -> dict[str, Any]:
    """The chart data of a context."""
    nearest = context["nearest"][0]
    return {
        **{name: context[name] for name in ("x", "y", "sense")},
        "context": snippet(context["words"], context["place"]),
        "nearest": snippet(nearest["words"], nearest["place"]),
        "nearest sense": nearest["sense"],
        "similarity": nearest["similarity"],
    }


def _list(rows: list[dict[str, Any]], senses: list[str], colour: Any) -> Any:
    """Some contexts of each sense, each above its nearest neighbour, as lines of text."""
    lines: list[dict[str, Any]] = []
    for sense in senses:
        for row in [row for row in rows if row["sense"] == sense][:LISTED]:
            lines.append({"line": len(lines), "text": row["context"], "sense": sense, "side": 0})
            nearest = {"text": f"→ {row['nearest']}", "sense": row["nearest sense"], "side": 1}
            lines.append({"line": len(lines), **nearest})
    title = alt.TitleParams("some contexts, each with its nearest one", anchor="start")
    return (
        alt.Chart(alt.Data(values=lines), title=title)
        .mark_text(align="left", fontSize=11)
        .encode(
            x=alt.X("side:Q", scale=alt.Scale(domain=[0, 24]), axis=None),
            y=alt.Y("line:O", axis=None, sort="ascending"),
            text="text:N",
            color=colour,
        )
        .properties(width=440, height=430)
    )
