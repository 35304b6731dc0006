"""Attention weights as one heat map: the soft alignment of a translation, or attention rollout.

A cell is α_ti, the weight of source word i for target word t; each row sums to 1. Translations in the same word order
show a diagonal, reordered words leave it, and a word without a counterpart spreads its weight.

Colours go from white to dark blue in even steps of lightness (CIELAB). The scale always goes from 0 to 1, so that equal
colours are equal weights in all charts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

from ensue.core.errors import InputError
from ensue.look.chart_parts import MAX_MARKS, label_axis, records, shades, titled

CAPTION = (
    "A row is a target word and sums to 1: the stronger the colour of a cell, the more the target word attends to that "
    "source word."
)


def alignment_chart(
    source: Sequence[str],
    target: Sequence[str],
    weights: Any,
    *,
    title: str = "Attention as alignment",
    caption: str = CAPTION,
    axes: tuple[str, str] = ("source", "target"),
) -> Any:
    """A heat map of ``weights`` (T, S), an array or a tensor: source words along the top, target words down the side.

    Words may repeat; each has its own row or column.
    """
    alpha = check_weights(weights, (len(target), len(source)), "T target words × S source words")
    size = cell_size(len(source), len(target))
    rows = [
        {"t": t, "s": s, "target": target[t], "source": source[s], "weight": round(float(weight), 6)}
        for (t, s), weight in np.ndenumerate(alpha)
    ]
    style = {"labelOverlap": False, "labelFontSize": int(np.clip(size - 3, 10, 14)), "labelLimit": 140}
    top = label_axis(source, orient="top", labelAngle=-55, labelAlign="left", labelPadding=4, **style)
    chart = (
        alt.Chart(records(rows))
        .mark_rect(stroke="#d9d9d9", strokeWidth=0.5)
        .encode(
            x=alt.X("s:O", title=axes[0], axis=top),
            y=alt.Y("t:O", title=axes[1], axis=label_axis(target, labelPadding=6, **style)),
            color=shades("weight:Q", "weight", gradientLength=120),
            tooltip=["target:N", "source:N", alt.Tooltip("weight:Q", format=".4f")],
        )
    )
    wrap, step = 30 + max(12, len(source)) * size // 6, alt.Step(size)
    return titled(chart, title, caption, describe(source, target, alpha), wrap=wrap, width=step, height=step)


def describe(source: Sequence[str], target: Sequence[str], alpha: np.ndarray) -> str:
    """The chart as text: the source word with the largest weight for each target word.

    >>> describe(["il", "rit"], ["he", "laughs"], np.array([[0.9, 0.1], [0.25, 0.75]]))
    'he attends most to il (0.90), laughs attends most to rit (0.75)'
    """
    return ", ".join(
        f"{word} attends most to {source[i]} ({row[i]:.2f})" for word, i, row in zip(target, alpha.argmax(1), alpha)
    )


def cell_size(across: int, down: int) -> int:
    """The size of a cell in pixels: smaller for more words, but large enough for readable labels.

    >>> cell_size(5, 4), cell_size(30, 28), cell_size(200, 10)
    (34, 30, 13)
    """
    return int(np.clip(900 // max(across, down), 13, 34))


def check_weights(weights: Any, shape: tuple[int, ...], legend: str) -> np.ndarray:
    """Attention weights as an array, checked to be of this shape, not negative and few enough to draw."""
    alpha = np.asarray(weights.detach().cpu() if hasattr(weights, "detach") else weights, dtype=np.float64)
    if alpha.shape != shape:
        raise InputError(f"weights have the shape {alpha.shape} and not {shape}", hint=f"give {legend}")
    if alpha.size == 0:
        raise InputError("there are no words to align", hint="give at least one source and one target word")
    if alpha.size > MAX_MARKS:
        what = f"{alpha.size:,} cells are more than the {MAX_MARKS:,} marks of a chart"
        raise InputError(what, hint="choose one head with --head, or a shorter text")
    if not np.isfinite(alpha).all() or alpha.min() < 0:
        raise InputError("attention weights must be finite and not negative", hint="give them after the softmax")
    return alpha
