"""One word in many contexts: where each stands in two dimensions, and which other context is nearest to it."""

from __future__ import annotations

from typing import Any

import altair as alt

from ensue.look.chart_parts import COLOURS

AROUND = 5
"""Words that are shown on each side of the word."""
LISTED = 5
"""Contexts of each sense whose neighbours are written out."""


def snippet(words: list[str], place: int, around: int = AROUND) -> str:
    """The word between its neighbours.

    >>> snippet("a nice walk by the river bank in spring".split(), 6, 2)
    '… the river [bank] in spring'
    """
    first, last = max(0, place - around), min(len(words), place + around + 1)
    shown = [f"[{word}]" if at == place else word for at, word in enumerate(words[first:last], start=first)]
    return " ".join([*(["…"] if first else []), *shown, *(["…"] if last < len(words) else [])])


def senses_chart(numbers: dict[str, Any], title: str, caption: str) -> Any:
    """Points of contexts, coloured by sense, beside a list of some with their nearest neighbours."""
    rows = [_row(one) for one in numbers["contexts"]]
    labelled = sorted({row["sense"] for row in rows})
    colour = alt.Color(
        "sense:N",
        title="sense" if any(labelled) else None,
        scale=alt.Scale(domain=labelled, range=[COLOURS[n % len(COLOURS)] for n in range(len(labelled))]),
        legend=alt.Legend() if any(labelled) else None,
    )
    axes = [f"{name} component ({share:.0%})" for name, share in zip(("first", "second"), numbers["variance"])]
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
    whole = alt.hconcat(points, _listed(rows, labelled, colour))
    return whole.configure_view(stroke=None).properties(
        title=alt.TitleParams(title, subtitle=caption, anchor="start", offset=12),
        description=f"{title}. {caption}",
    )


def _row(one: dict[str, Any]) -> dict[str, Any]:
    """What the chart shows of a context."""
    near = one["nearest"][0]
    return {
        "x": one["x"],
        "y": one["y"],
        "sense": one["sense"],
        "context": snippet(one["words"], one["place"]),
        "nearest": snippet(near["words"], near["place"]),
        "nearest sense": near["sense"],
        "similarity": near["similarity"],
    }


def _listed(rows: list[dict[str, Any]], senses: list[str], colour: Any) -> Any:
    """Some contexts of each sense, each over its nearest neighbour, as lines of text."""
    lines: list[dict[str, Any]] = []
    for sense in senses:
        for row in [row for row in rows if row["sense"] == sense][:LISTED]:
            lines.append({"line": len(lines), "text": row["context"], "sense": row["sense"], "side": 0})
            near = {"text": f"→ {row['nearest']}", "sense": row["nearest sense"], "side": 1}
            lines.append({"line": len(lines), **near})
    return (
        alt.Chart(alt.Data(values=lines))
        .mark_text(align="left", fontSize=11)
        .encode(
            x=alt.X("side:Q", scale=alt.Scale(domain=[0, 24]), axis=None),
            y=alt.Y("line:O", axis=None, sort="ascending"),
            text="text:N",
            color=colour,
        )
        .properties(
            width=440, height=430, title=alt.TitleParams("some contexts, and the nearest other to each", anchor="start")
        )
    )
