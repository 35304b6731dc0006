"""Where a model looks: all heads at once, or the heads of one layer as lines between words.

A cell or a line is P_ts, the weight that token t gives to token s; what a token gives adds up to 1. Heads learn to look
at different things: the token before, the same word, the end of the sentence, what a pronoun stands for.

Legend: L layers, H heads, T tokens that look, S tokens that are looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

from ensue.look.alignment import COLOURS as SHADES
from ensue.look.marks import COLOURS, MOST_MARKS, heading, plain, records, words

FAINT = 0.02
"""Lines with less weight are not drawn."""
READABLE = 8
"""Pixels that a cell must have for words to stand beside it."""
GRID_CAPTION = (
    "A map a head, a row of maps a layer; within a map a row is a token: the stronger the colour, the more it "
    "looks there."
)
LINES_CAPTION = (
    "From each word on the left to what it looks at on the right; the stronger a line, the larger its weight."
)


def layers_that_fit(layers: int, heads: int, tokens: int, others: int) -> int:
    """How many layers a picture holds: it has at most 50,000 marks.

    >>> layers_that_fit(12, 12, 12, 12), layers_that_fit(12, 12, 40, 40), layers_that_fit(12, 12, 500, 500)
    (12, 2, 0)
    """
    return min(layers, MOST_MARKS // max(1, heads * tokens * others))


def heads_chart(
    who: Sequence[str], what: Sequence[str], layers: Mapping[int, np.ndarray], *, title: str, more: str = ""
) -> Any:
    """All heads of some layers, by the layers' numbers, each (H, T, S); ``more`` ends the caption."""
    heads = len(next(iter(layers.values())))
    across = heads if len(layers) > 1 else columns_of(heads, len(what))
    cell = int(np.clip(1100 // (across * len(what)), 2, 16))
    rows = [
        {"layer": layer, "head": h + 1, "t": t, "s": s, "from": who[t], "to": what[s], "weight": round(float(w), 5)}
        for layer, weights in layers.items()
        for (h, t, s), w in np.ndenumerate(weights)
    ]
    shade = alt.Scale(domain=[0, 1], range=SHADES, interpolate="lab", clamp=True)
    maps = (
        alt.Chart(records(rows))
        .mark_rect()
        .encode(
            x=alt.X("s:O", title="looked at", axis=_axis(what, cell)),
            y=alt.Y("t:O", title="token", axis=_axis(who, cell)),
            color=alt.Color("weight:Q", scale=shade, legend=alt.Legend(title="weight", format=".1f")),
            tooltip=[
                alt.Tooltip("from:N", title="token"),
                alt.Tooltip("to:N", title="looks at"),
                alt.Tooltip("weight:Q", format=".3f"),
                alt.Tooltip("layer:O"),
                alt.Tooltip("head:O"),
            ],
        )
        .properties(width=cell * len(what), height=cell * len(who))
    )
    if len(layers) > 1:
        down = alt.Row("layer:O", title="layer", header=alt.Header(labelAngle=0))
        grid = maps.facet(row=down, column=alt.Column("head:O"), spacing=4)
    else:
        named = alt.Facet("head:O", header=alt.Header(title=None, labelExpr="'head ' + datum.value", labelPadding=2))
        grid = maps.facet(facet=named, columns=across, spacing=10).resolve_axis(x="independent", y="independent")
    return grid.properties(
        title=heading(title, f"{GRID_CAPTION} {more}".strip()),
        description=plain(f"{title}. {_said(who, what, layers)}"),
    )


def columns_of(heads: int, tokens: int) -> int:
    """How many maps of one layer stand side by side, so that words can be read beside them.

    >>> columns_of(12, 5), columns_of(12, 16), columns_of(4, 60)
    (6, 3, 1)
    """
    fit = int(np.clip(1100 // (14 * (tokens + 6)), 1, heads))
    return -(-heads // -(-heads // fit))  # as many in each line


def _axis(names: Sequence[str], cell: int) -> Any:
    """Words beside the cells of a map, where they can be read."""
    how = {"ticks": False, "domain": False, "labelOverlap": False, "titleFontWeight": "normal"}
    if cell < READABLE:
        return alt.Axis(labels=False, **how)
    return alt.Axis(labelExpr=words(names), labelFontSize=min(11, cell - 1), labelLimit=80, labelPadding=3, **how)


def lines_chart(
    who: Sequence[str],
    what: Sequence[str],
    heads: Mapping[str, np.ndarray],
    *,
    title: str,
    caption: str = LINES_CAPTION,
    only: int | None = None,
) -> Any:
    """Heads by name, each (T, S), as lines between two columns of words, a colour a head; of token ``only`` alone."""
    names = list(heads)
    middle = (len(names) - 1) / 2
    aside = {name: 0.09 * (place - middle) for place, name in enumerate(names)}  # else heads would hide each other
    rows = [
        {"t": t, "s": s + aside[name], "from": who[t], "to": what[s], "weight": round(float(w), 5), "head": name}
        for name, weights in heads.items()
        for (t, s), w in np.ndenumerate(weights)
        if w >= FAINT and only in (None, t)
    ]
    most = max(len(who), len(what))
    places = alt.Scale(domain=[-0.5, most - 0.5], reverse=True, nice=False, zero=False)
    across = alt.Scale(domain=[-0.75, 1.75], nice=False)
    shades = alt.Scale(domain=names, range=[COLOURS[i % len(COLOURS)] for i in range(len(names))])
    legend = alt.Legend(title="head") if len(names) > 1 else None
    lines = (
        alt.Chart(records(rows))
        .mark_rule(strokeCap="round")
        .encode(
            x=alt.XDatum(0, scale=across, axis=None),
            x2=alt.X2Datum(1),
            y=alt.Y("t:Q", scale=places, axis=None),
            y2="s:Q",
            opacity=alt.Opacity("weight:Q", scale=alt.Scale(domain=[0, 1], range=[0.08, 1]), legend=None),
            strokeWidth=alt.StrokeWidth("weight:Q", scale=alt.Scale(domain=[0, 1], range=[0.5, 6]), legend=None),
            color=alt.Color("head:N", scale=shades, sort=names, legend=legend),
            tooltip=[
                alt.Tooltip("from:N", title="token"),
                alt.Tooltip("to:N", title="looks at"),
                alt.Tooltip("weight:Q", format=".3f"),
                alt.Tooltip("head:N"),
            ],
        )
    )
    left = _words(who, -0.04, "right", across, places, only)
    right = _words(what, 1.04, "left", across, places, None)
    said = "; ".join(_strongest(name, who, what, weights, only) for name, weights in heads.items())
    return (
        alt.layer(lines, left, right)
        .properties(
            width=420,
            height=int(np.clip(20 * most, 60, 4000)),
            title=heading(title, caption, 80),
            description=plain(f"{title}. {said}"),
        )
        .configure_view(stroke=None)
    )


def _words(words: Sequence[str], x: float, align: str, across: Any, places: Any, bold: int | None) -> Any:
    """A column of words; one of them may be bold."""
    rows = [{"x": x, "y": y, "word": word, "bold": int(y == bold)} for y, word in enumerate(words)]
    return (
        alt.Chart(records(rows))
        .mark_text(align=align, baseline="middle", fontSize=13, limit=170)
        .encode(
            x=alt.X("x:Q", scale=across, axis=None),
            y=alt.Y("y:Q", scale=places, axis=None),
            text="word:N",
            opacity=alt.condition("datum.bold == 1" if bold is not None else "true", alt.value(1), alt.value(0.45)),
        )
    )


def _strongest(name: str, who: Sequence[str], what: Sequence[str], weights: np.ndarray, only: int | None) -> str:
    """What a head looks at most, in words."""
    t, s = (only, int(weights[only].argmax())) if only is not None else divmod(int(weights.argmax()), len(what))
    return f"{name}: {who[t]} looks most at {what[s]} ({weights[t, s]:.2f})"


def _said(who: Sequence[str], what: Sequence[str], layers: Mapping[int, np.ndarray]) -> str:
    """The grid in words: the strongest look of each head."""
    parts = [
        _strongest(f"layer {number} head {h + 1}", who, what, head, None)
        for number, weights in layers.items()
        for h, head in enumerate(weights)
    ]
    return f"{len(parts)} maps; {'; '.join(parts)}"
