"""Charts of attention weights: heat maps of all heads, or the heads of one layer as lines between words.

A cell or a line is the weight P_ts with which query token t attends to key token s; the weights of a query sum to 1.

Legend: L layers, H heads, T query tokens, S key tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

from ensue.look.alignment_chart import check_weights
from ensue.look.chart_parts import MAX_MARKS, cycled, label_axis, records, shades, titled

MIN_WEIGHT = 0.02
"""Lines with less weight are not drawn."""
LABEL_CELL = 8
"""Cells of fewer pixels get no labels."""
QUERY, KEY = alt.Tooltip("from:N", title="query"), alt.Tooltip("to:N", title="key")
TOOLTIP = [QUERY, KEY, alt.Tooltip("weight:Q", format=".3f")]
GRID_CAPTION = (
    "A map per head, a row of maps per layer. Rows of a map are query tokens, columns key tokens; the stronger the "
    "colour, the larger the weight."
)
LINES_CAPTION = "From query tokens on the left to key tokens on the right; the stronger a line, the larger its weight."


def layers_that_fit(layers: int, heads: int, queries: int, keys: int) -> int:
    """How many layers fit into the 50,000 marks of a chart.

    >>> layers_that_fit(12, 12, 12, 12), layers_that_fit(12, 12, 40, 40), layers_that_fit(12, 12, 500, 500)
    (12, 2, 0)
    """
    return min(layers, MAX_MARKS // max(1, heads * queries * keys))


def heads_chart(
    queries: Sequence[str], keys: Sequence[str], layers: Mapping[int, Any], *, title: str, note: str = ""
) -> Any:
    """Heat maps of all heads of some layers, by layer number, each (H, T, S); ``note`` ends the caption."""
    heads = len(next(iter(layers.values())))
    shape, legend = (len(layers), heads, len(queries), len(keys)), "L layers × H heads × T queries × S keys"
    weights = check_weights(np.stack([np.asarray(layer) for layer in layers.values()]), shape, legend)
    across = heads if len(layers) > 1 else grid_columns(heads, len(keys))
    cell = int(np.clip(1100 // (across * len(keys)), 2, 16))
    numbers = list(layers)
    rows = [
        {"layer": numbers[n], "head": h + 1, "t": t, "s": s, "from": queries[t], "to": keys[s], "weight": round(w, 5)}
        for (n, h, t, s), w in np.ndenumerate(weights)
    ]
    maps = (
        alt.Chart(records(rows))
        .mark_rect()
        .encode(
            x=alt.X("s:O", title="key", axis=_axis(keys, cell)),
            y=alt.Y("t:O", title="query", axis=_axis(queries, cell)),
            color=shades("weight:Q", "weight"),
            tooltip=[*TOOLTIP, "layer:O", "head:O"],
        )
        .properties(width=cell * len(keys), height=cell * len(queries))
    )
    if len(layers) > 1:
        down = alt.Row("layer:O", title="layer", header=alt.Header(labelAngle=0))
        grid = maps.facet(row=down, column=alt.Column("head:O"), spacing=4)
    else:
        header = alt.Header(title=None, labelExpr="'head ' + datum.value", labelPadding=2)
        grid = maps.facet(facet=alt.Facet("head:O", header=header), columns=across, spacing=10)
        grid = grid.resolve_axis(x="independent", y="independent")
    strongest = [
        _strongest(f"layer {number} head {h + 1}", queries, keys, head)
        for number, layer in zip(layers, weights)
        for h, head in enumerate(layer)
    ]
    return titled(grid, title, f"{GRID_CAPTION} {note}", f"{len(strongest)} maps; {'; '.join(strongest)}")


def grid_columns(heads: int, tokens: int) -> int:
    """How many maps of one layer fit side by side with readable labels.

    >>> grid_columns(12, 5), grid_columns(12, 16), grid_columns(4, 60)
    (6, 3, 1)
    """
    fit = int(np.clip(1100 // (14 * (tokens + 6)), 1, heads))
    return -(-heads // -(-heads // fit))  # equally long lines


def _axis(names: Sequence[str], cell: int) -> Any:
    """An axis with a label per token, if the cells are large enough."""
    style = {"labelOverlap": False, "labelFontSize": min(11, cell - 1), "labelLimit": 80, "labelPadding": 3}
    return label_axis(names if cell >= LABEL_CELL else [""], titleFontWeight="normal", **style)


def lines_chart(
    queries: Sequence[str],
    keys: Sequence[str],
    heads: Mapping[str, np.ndarray],
    *,
    title: str,
    caption: str = LINES_CAPTION,
    only: int | None = None,
) -> Any:
    """Heads by name, each (T, S), as lines between two columns of words, a colour per head; ``only`` one query."""
    names = list(heads)
    middle = (len(names) - 1) / 2
    shift = {name: 0.09 * (i - middle) for i, name in enumerate(names)}  # else lines of heads would overlap
    rows = [
        {"t": t, "s": s + shift[name], "from": queries[t], "to": keys[s], "weight": round(float(w), 5), "head": name}
        for name, weights in heads.items()
        for (t, s), w in np.ndenumerate(weights)
        if w >= MIN_WEIGHT and only in (None, t)
    ]
    longest = max(len(queries), len(keys))
    down = alt.Scale(domain=[-0.5, longest - 0.5], reverse=True, nice=False, zero=False)
    across = alt.Scale(domain=[-0.75, 1.75], nice=False)
    lines = (
        alt.Chart(records(rows))
        .mark_rule(strokeCap="round")
        .encode(
            x=alt.XDatum(0, scale=across, axis=None),
            x2=alt.X2Datum(1),
            y=alt.Y("t:Q", scale=down, axis=None),
            y2="s:Q",
            opacity=alt.Opacity("weight:Q", scale=alt.Scale(domain=[0, 1], range=[0.08, 1]), legend=None),
            strokeWidth=alt.StrokeWidth("weight:Q", scale=alt.Scale(domain=[0, 1], range=[0.5, 6]), legend=None),
            color=alt.Color(
                "head:N", scale=cycled(names), sort=names, legend=alt.Legend(title="head") if len(names) > 1 else None
            ),
            tooltip=[*TOOLTIP, "head:N"],
        )
    )

    def column(words: Sequence[str], x: float, align: str, bold: int | None) -> Any:
        """A column of words; all but ``bold`` are faded if it is given."""
        opacity = [1 if bold in (None, y) else 0.45 for y in range(len(words))]
        rows = [{"x": x, "y": y, "word": word, "opacity": opacity[y]} for y, word in enumerate(words)]
        return (
            alt.Chart(records(rows))
            .mark_text(align=align, baseline="middle", fontSize=13, limit=170)
            .encode(
                x=alt.X("x:Q", scale=across, axis=None),
                y=alt.Y("y:Q", scale=down, axis=None),
                text="word:N",
                opacity=alt.Opacity("opacity:Q", scale=None),
            )
        )

    chart = alt.layer(lines, column(queries, -0.04, "right", only), column(keys, 1.04, "left", None))
    strongest = "; ".join(_strongest(name, queries, keys, weights, only) for name, weights in heads.items())
    height = int(np.clip(20 * longest, 60, 4000))
    return titled(chart, title, caption, strongest, wrap=80, width=420, height=height).configure_view(stroke=None)


def _strongest(
    name: str, queries: Sequence[str], keys: Sequence[str], weights: np.ndarray, only: int | None = None
) -> str:
    """The largest weight of a head, or of ``only`` one query, in words."""
    t, s = divmod(int(weights.argmax()), len(keys)) if only is None else (only, int(weights[only].argmax()))
    return f"{name}: {queries[t]} attends most to {keys[s]} ({weights[t, s]:.2f})"
