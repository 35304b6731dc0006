"""Which source words a translation looks at: attention as a soft alignment, one heat map or one for each head.

A cell is α_ti, the weight that target word t gives to source word i; a row adds up to 1. Words in the same order make
a diagonal, words that change places cross it, and a word that has no counterpart spreads its weight.

The scale of colours goes in even steps of lightness (CIELAB) from white to dark blue: it reads the same for
colour-blind eyes and in grey print, and the same colour is the same weight in every picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

from ensue.core.errors import InputError
from ensue.look.chart_parts import MAX_MARKS, heading, plain, records, words

CAPTION = (
    "A row is a target word and adds up to 1; the stronger a cell's colour, the more it looks at that source word."
)
GRID_CAPTION = "One map a head; rows are target words and add up to 1, cells of stronger colour are looked at more."
COLOURS = ["#ffffff", "#08306b"]


def alignment_chart(
    source: Sequence[str],
    target: Sequence[str],
    weights: Any,
    *,
    title: str = "Attention as alignment",
    caption: str = CAPTION,
    top: float = 1.0,
    axes: tuple[str, str] = ("source", "target"),
) -> Any:
    """Source words along the top, target words down the side, a cell for each pair; ``top`` has full colour.

    ``weights`` (T, S) is an array or tensor; words may repeat, each keeps its own row or column.
    """
    alpha = _checked(weights, (len(target), len(source)), "T target words × S source words")
    size = cell_size(len(source), len(target), 900)
    return (
        _cells(_rows(source, target, alpha[None], [""]), source, target, size, top, axes)
        .encode(tooltip=_tips(several=False))
        .properties(
            width=alt.Step(size),
            height=alt.Step(size),
            title=heading(title, caption, 30 + max(12, len(source)) * size // 6),
            description=f"{title}. {describe(source, target, alpha)}",
        )
    )


def alignment_grid(
    source: Sequence[str],
    target: Sequence[str],
    weights: Any,
    names: Sequence[str],
    *,
    title: str = "Attention of each head",
    caption: str = GRID_CAPTION,
    columns: int = 4,
    top: float = 1.0,
) -> Any:
    """A heat map for each of several heads or layers, ``weights`` (H, T, S), all with the same colours and words."""
    alpha = _checked(weights, (len(names), len(target), len(source)), "H names × T target words × S source words")
    across = min(columns, len(names))
    size = cell_size(len(source) * across, len(target), 1200)
    strongest = [f"{name}: {_strongest(source, target, head)}" for name, head in zip(names, alpha)]
    chart = _cells(_rows(source, target, alpha, names), source, target, size, top).encode(tooltip=_tips(several=True))
    header = alt.Header(title=None, labelExpr=words(names), labelFontSize=12, labelFontWeight="bold")
    return (
        chart.properties(width=alt.Step(size), height=alt.Step(size))
        .facet(facet=alt.Facet("h:O", header=header), columns=across)
        .resolve_axis(x="independent", y="independent")
        .properties(
            title=heading(title, caption, 30 + max(24, len(source) * across) * size // 6),
            description=f"{title}. {len(names)} heat maps; strongest in each: {'; '.join(strongest)}",
        )
    )


def describe(source: Sequence[str], target: Sequence[str], alpha: np.ndarray) -> str:
    """The picture in words: for every target word the source word that it looks at most.

    >>> describe(["il", "rit"], ["he", "laughs"], np.array([[0.9, 0.1], [0.25, 0.75]]))
    'he looks most at il (0.90), laughs looks most at rit (0.75)'
    """
    at = alpha.argmax(1)
    text = ", ".join(f"{w} looks most at {source[i]} ({row[i]:.2f})" for w, i, row in zip(target, at, alpha))
    return plain(text)


def cell_size(across: int, down: int, room: int) -> int:
    """Pixels of a cell: large for a few words, and for many as small as their labels can still be read.

    >>> cell_size(5, 4, 900), cell_size(30, 28, 900), cell_size(200, 10, 900)
    (34, 30, 13)
    """
    return int(np.clip(room // max(across, down), 13, 34))


def _checked(weights: Any, shape: tuple[int, ...], legend: str) -> np.ndarray:
    alpha = np.asarray(weights.detach().cpu() if hasattr(weights, "detach") else weights, dtype=np.float64)
    if alpha.shape != shape:
        raise InputError(f"weights have the shape {alpha.shape} and not {shape}", hint=f"give {legend}")
    if alpha.size == 0:
        raise InputError("there are no words to align", hint="give at least one source and one target word")
    if alpha.size > MAX_MARKS:
        raise InputError(
            f"{alpha.size:,} cells are more than a picture of {MAX_MARKS:,} marks holds",
            hint="choose fewer heads or layers (weights[[0, 5]]), or part of the words (weights[..., :40, :40])",
        )
    if not np.isfinite(alpha).all() or alpha.min() < 0:
        raise InputError("attention weights must be numbers from 0 on", hint="give them after the softmax")
    return alpha


def _rows(
    source: Sequence[str], target: Sequence[str], alpha: np.ndarray, names: Sequence[str]
) -> list[dict[str, Any]]:
    return [
        {"h": h, "t": t, "s": s, "head": name, "target": to, "source": of, "weight": round(float(alpha[h, t, s]), 6)}
        for h, name in enumerate(names)
        for t, to in enumerate(target)
        for s, of in enumerate(source)
    ]


def _cells(
    rows: list[dict[str, Any]],
    source: Sequence[str],
    target: Sequence[str],
    size: int,
    top: float,
    axes: tuple[str, str] = ("source", "target"),
) -> Any:
    """Places are numbers, which never repeat; the words are only their labels."""
    font = int(np.clip(size - 3, 10, 14))
    look = {"labelOverlap": False, "labelFontSize": font, "labelLimit": 140, "ticks": False, "domain": False}
    on_top = alt.Axis(orient="top", labelAngle=-55, labelAlign="left", labelExpr=words(source), labelPadding=4, **look)
    aside = alt.Axis(labelExpr=words(target), labelPadding=6, **look)
    colours = alt.Scale(domain=[0, top], range=COLOURS, interpolate="lab", clamp=True)
    legend = alt.Legend(title="weight", format=".1f", gradientLength=120)
    return (
        alt.Chart(records(rows))
        .mark_rect(stroke="#d9d9d9", strokeWidth=0.5)
        .encode(
            x=alt.X("s:O", title=axes[0], axis=on_top),
            y=alt.Y("t:O", title=axes[1], axis=aside),
            color=alt.Color("weight:Q", scale=colours, legend=legend),
        )
    )


def _tips(several: bool) -> list[Any]:
    tips = [alt.Tooltip(f"{name}:N") for name in (("head",) if several else ()) + ("target", "source")]
    return [*tips, alt.Tooltip("weight:Q", format=".4f")]


def _strongest(source: Sequence[str], target: Sequence[str], alpha: np.ndarray) -> str:
    t, s = divmod(int(alpha.argmax()), len(source))
    return plain(f"{target[t]} looks at {source[s]} ({alpha[t, s]:.2f})")
