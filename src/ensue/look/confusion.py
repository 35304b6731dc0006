"""Which classes a model takes for which others: the table of confusions as a heat map.

A row is what was wanted, a column what was given; a perfect model fills only the diagonal. Colour is the share of the
row, so that a rare class shows its errors as much as a frequent one; it grows with the root of the share, since the
cells to look for hold a few per cent. The number in a cell counts its texts.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

from ensue.core.errors import InputError
from ensue.look.alignment_chart import COLOURS

MOST_CLASSES = 40
CAPTION = "Rows: the label wanted; columns: the label given. The stronger the colour, the larger the share of its row."


def confusion_chart(confusion: Any, names: Sequence[str], *, title: str = "Confusions", caption: str = "") -> Any:
    """A cell for each pair of classes from ``confusion`` (K, K), rows wanted, columns given, as in ``LabelScores``.

    Of more than 40 classes the 40 with the most confusions are drawn, in their order, and the title says so. Without a
    ``caption`` it is how to read the table, with the share that is right.
    """
    counts = _checked(confusion, names)
    caption = caption or f"{CAPTION} {_share_right(counts)} are right."
    description = f"{title}. {describe(counts, names)}"
    shares, shown = counts / np.maximum(counts.sum(1, keepdims=True), 1), most_confused(counts)
    if len(shown) < len(names):
        title = f"{title}: the {len(shown)} most confused of {len(names)} classes"
    labels = [names[k] for k in shown]
    size = cell_size(len(shown))
    rows = [
        {"wanted": names[k], "given": names[j], "row": row, "column": column}
        | {"count": int(counts[k, j]), "share": round(float(shares[k, j]), 6), "text": written(int(counts[k, j]), size)}
        for row, k in enumerate(shown)
        for column, j in enumerate(shown)
    ]
    letters = (len(shown) * size + 9 * min(20, max(map(len, labels))) + 110) // 6
    return _cells(rows, labels, size).properties(
        width=alt.Step(size),
        height=alt.Step(size),
        title=alt.TitleParams(title, subtitle=textwrap.wrap(caption, max(50, letters)), anchor="start", offset=12),
        description=description,
    )


def most_confused(counts: np.ndarray, most: int = MOST_CLASSES) -> list[int]:
    """The classes that take part in the most confusions, on either side; at most so many, in their own order.

    >>> most_confused(np.array([[5, 0, 2], [0, 9, 0], [1, 0, 3]]), most=2)
    [0, 2]
    """
    wrong = counts.sum(0) + counts.sum(1) - 2 * counts.diagonal()
    return sorted(int(k) for k in np.argsort(-wrong, kind="stable")[:most])


def describe(counts: np.ndarray, names: Sequence[str]) -> str:
    r"""The picture in words: the share that is right and the three confusions that are the most frequent.

    >>> describe(np.array([[5, 1], [3, 1]]), ["no", "yes"])
    '60.0\xa0% of 10 are right; most confused: yes taken for no (3), no taken for yes (1)'
    """
    wrong = [(int(counts[k, j]), k, j) for k, j in zip(*np.nonzero(counts)) if k != j]
    worst = sorted(wrong, key=lambda cell: (-cell[0], cell[1], cell[2]))[:3]
    said = ", ".join(f"{names[k]} taken for {names[j]} ({count:,})" for count, k, j in worst)
    return f"{_share_right(counts)} are right; most confused: {said or 'none'}"


def cell_size(classes: int) -> int:
    """Pixels of a cell: large for a few classes, and for many as small as their labels can still be read.

    >>> cell_size(2), cell_size(7), cell_size(40)
    (64, 64, 24)
    """
    return int(np.clip(640 // classes, 24, 64))


def written(count: int, size: int) -> str:
    """A number for a cell, rounded to fit where the cell is small; nothing for 0, so that confusions stand out.

    >>> written(1593, 64), written(1593, 24), written(23_400, 24), written(87, 24), written(0, 24)
    ('1,593', '1.6k', '23k', '87', '')
    """
    if count < 1000 or size >= 40:
        return f"{count:,}" if count else ""
    return f"{count / 1000:.1f}k" if count < 9950 else f"{count / 1000:.0f}k"


def _checked(confusion: Any, names: Sequence[str]) -> np.ndarray:
    counts = np.asarray(confusion)
    if counts.shape != (len(names), len(names)):
        raise InputError(
            f"confusions have the shape {counts.shape} and there are {len(names)} names",
            hint="give a row and a column for each class",
        )
    if not counts.any():
        raise InputError("there is nothing to draw: no text was scored")
    return counts


def _share_right(counts: np.ndarray) -> str:
    return f"{100 * counts.trace() / counts.sum():.1f}\N{NO-BREAK SPACE}% of {counts.sum():,}"


def _cells(rows: list[dict[str, Any]], labels: Sequence[str], size: int) -> Any:
    """Places are numbers, which never repeat; the names are only their labels."""
    font = int(np.clip(size - 8, 10, 13))
    level = max(map(len, labels)) * font * 0.6 < size  # names fit side by side
    look: dict[str, Any] = {
        "labelOverlap": False,
        "labelFontSize": font,
        "labelLimit": 160,
        "ticks": False,
        "domain": False,
    }
    look |= {"labelExpr": f"{json.dumps(list(labels))}[datum.value]", "labelPadding": 6}
    turn: dict[str, Any] = {"labelAngle": 0} if level else {"labelAngle": -55, "labelAlign": "left"}
    colours = alt.Scale(type="sqrt", domain=[0, 1], range=COLOURS, interpolate="lab", clamp=True)
    # as text: Altair would check each of so many records against its schema
    data = alt.Data(values=json.dumps(rows), format=alt.DataFormat(type="json"))
    table = alt.Chart(data).encode(
        x=alt.X("column:O", title="given", axis=alt.Axis(orient="top", titlePadding=8, **turn, **look)),
        y=alt.Y("row:O", title="wanted", axis=alt.Axis(**look)),
        tooltip=[
            alt.Tooltip("wanted:N"),
            alt.Tooltip("given:N"),
            alt.Tooltip("count:Q", format=","),
            alt.Tooltip("share:Q", title="share of the row", format=".1%"),
        ],
    )
    legend = alt.Legend(title="share of row", format="%", values=[0, 0.05, 0.2, 0.5, 1], labelOverlap=False)
    squares = table.mark_rect(stroke="#d9d9d9", strokeWidth=0.5).encode(
        color=alt.Color("share:Q", scale=colours, legend=legend)
    )
    widest = max(len(row["text"]) for row in rows)
    numbers = table.mark_text(fontSize=int(np.clip(size / (0.7 * widest), 8, 14))).encode(
        text="text:N", color=alt.condition("datum.share > 0.2", alt.value("white"), alt.value("#222222"))
    )
    return squares + numbers
