"""The confusion matrix of a classifier as a heat map.

A row is a true class, a column a predicted class; a perfect model fills only the diagonal. Colour is the share of the
row, so that errors of rare classes are as visible as those of frequent ones. It follows the square root of the share,
as most errors are a few per cent. The number in a cell counts its texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

from ensue.core.errors import InputError
from ensue.look.chart_parts import label_axis, records, shades, titled

MAX_CLASSES = 40
CAPTION = "Rows: true labels; columns: predicted labels. The stronger the colour, the larger the share of its row."


def confusion_chart(confusion: Any, names: Sequence[str], *, title: str = "Confusion matrix") -> Any:
    """A heat map of ``confusion`` (K, K), rows true and columns predicted classes, as in ``LabelScores``.

    Of more than 40 classes only the 40 with the most errors are drawn, and the title says so.
    """
    counts = _checked(confusion, names)
    caption, summary = f"{CAPTION} {_accuracy(counts)} are correct.", describe(counts, names)
    shares, shown = counts / np.maximum(counts.sum(1, keepdims=True), 1), most_confused(counts)
    if len(shown) < len(names):
        title = f"{title}: the {len(shown)} most confused of {len(names)} classes"
    labels, size = [names[k] for k in shown], cell_size(len(shown))
    rows: list[dict[str, Any]] = [
        {"true": names[k], "predicted": names[j], "row": row, "column": column, "count": (count := int(counts[k, j]))}
        | {"share": round(float(shares[k, j]), 6), "text": count_text(count, size)}
        for row, k in enumerate(shown)
        for column, j in enumerate(shown)
    ]
    longest = max(map(len, labels))
    wrap = max(50, (len(shown) * size + 9 * min(20, longest) + 110) // 6)
    font = int(np.clip(size - 8, 10, 13))
    style = {"labelOverlap": False, "labelFontSize": font, "labelLimit": 160, "labelPadding": 6}
    side_by_side = longest * font * 0.6 < size
    turn: dict[str, Any] = {"labelAngle": 0} if side_by_side else {"labelAngle": -55, "labelAlign": "left"}
    top = label_axis(labels, orient="top", titlePadding=8, **turn, **style)
    table = alt.Chart(records(rows)).encode(
        x=alt.X("column:O", title="predicted label", axis=top),
        y=alt.Y("row:O", title="true label", axis=label_axis(labels, **style)),
        tooltip=["true:N", "predicted:N", "count:Q", alt.Tooltip("share:Q", title="share of the row", format=".1%")],
    )
    ticks = [0, 0.05, 0.2, 0.5, 1]
    colour = shades("share:Q", "share of row", kind="sqrt", form="%", values=ticks, labelOverlap=False)
    squares = table.mark_rect(stroke="#d9d9d9", strokeWidth=0.5).encode(color=colour)
    longest_number = max(len(row["text"]) for row in rows)
    numbers = table.mark_text(fontSize=int(np.clip(size / (0.7 * longest_number), 8, 14))).encode(
        text="text:N", color=alt.condition("datum.share > 0.2", alt.value("white"), alt.value("#222222"))
    )
    step = alt.Step(size)
    return titled(squares + numbers, title, caption, summary, wrap=wrap, width=step, height=step)


def most_confused(counts: np.ndarray, most: int = MAX_CLASSES) -> list[int]:
    """The ``most`` classes with the most errors, as true or predicted class, in their own order.

    >>> most_confused(np.array([[5, 0, 2], [0, 9, 0], [1, 0, 3]]), most=2)
    [0, 2]
    """
    errors = counts.sum(0) + counts.sum(1) - 2 * counts.diagonal()
    return sorted(int(k) for k in np.argsort(-errors, kind="stable")[:most])


def describe(counts: np.ndarray, names: Sequence[str]) -> str:
    r"""The chart as text: the accuracy and the three most frequent errors.

    >>> describe(np.array([[5, 1], [3, 1]]), ["no", "yes"])
    '60.0\xa0% of 10 are correct; most frequent errors: yes taken for no (3), no taken for yes (1)'
    """
    errors = [(-int(counts[k, j]), k, j) for k, j in zip(*np.nonzero(counts)) if k != j]
    worst = ", ".join(f"{names[k]} taken for {names[j]} ({-count:,})" for count, k, j in sorted(errors)[:3])
    return f"{_accuracy(counts)} are correct; most frequent errors: {worst or 'none'}"


def cell_size(classes: int) -> int:
    """The size of a cell in pixels: smaller for more classes, but large enough for readable labels.

    >>> cell_size(2), cell_size(7), cell_size(40)
    (64, 64, 24)
    """
    return int(np.clip(640 // classes, 24, 64))


def count_text(count: int, size: int) -> str:
    """A count, rounded to fit into a small cell; nothing for 0, so that errors stand out.

    >>> count_text(1593, 64), count_text(1593, 24), count_text(23_400, 24), count_text(87, 24), count_text(0, 24)
    ('1,593', '1.6k', '23k', '87', '')
    """
    if count < 1000 or size >= 40:
        return f"{count:,}" if count else ""
    return f"{count / 1000:.1f}k" if count < 9950 else f"{count / 1000:.0f}k"


def _checked(confusion: Any, names: Sequence[str]) -> np.ndarray:
    counts = np.asarray(confusion)
    if counts.shape != (len(names), len(names)):
        what = f"the confusion matrix has the shape {counts.shape} and there are {len(names)} names"
        raise InputError(what, hint="give a row and a column for each class")
    if not counts.any():
        raise InputError("the confusion matrix is empty: no text was scored")
    return counts


def _accuracy(counts: np.ndarray) -> str:
    return f"{100 * counts.trace() / counts.sum():.1f}\N{NO-BREAK SPACE}% of {counts.sum():,}"
