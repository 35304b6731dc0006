"""Word vectors in two dimensions: a dot and a label for each word, and arrows between pairs.

Both axes have the same scale, so that angles and lengths are those of the projection: pairs with the same difference of
vectors have parallel arrows. A label is beside its dot if there is room, else further away with a line to its dot. If
there is no room at all the label is left out; the tooltip of the dot shows the word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

from ensue.core.errors import InputError
from ensue.look.chart_parts import COLOURS, titled

SIDE = 640
"""The longer side of the map, in pixels; the shorter is at least half of it."""
MARGIN = 40
FONT = 12
MAX_WORDS = 5000
FROM, TO, OTHER = "from", "to", "word"

Box = tuple[float, float, float, float]
"""Left, top, right, bottom, in pixels."""


def word_map(
    words: Sequence[str],
    points: np.ndarray,
    *,
    pairs: Sequence[tuple[str, str]] = (),
    axes: tuple[str, str] = ("", ""),
    title: str = "Words in two dimensions",
    caption: str = "",
) -> Any:
    """A dot and a label for each word at its ``points`` (n, 2), and an arrow for each pair of words."""
    if not 1 < len(words) <= MAX_WORDS or np.shape(points) != (len(words), 2):
        what = f"cannot draw {len(words):,} words at points of the shape {np.shape(points)}"
        raise InputError(what, hint=f"give 2 to {MAX_WORDS:,} words, and a point for each")
    frame = Frame(points.min(0), points.max(0))
    pixels = frame.pixels(points)
    role = roles(pairs)
    boxes = place_labels(words, pixels, frame, arrows=[(words.index(a), words.index(b)) for a, b in pairs])
    rows = [{"word": w, "x": float(x), "y": float(y), "role": role.get(w, OTHER)} for w, (x, y) in zip(words, points)]
    labels = [{**row, **frame.centre(box)} for row, box in zip(rows, boxes) if box is not None]
    leaders = [frame.leader(dot, box) for dot, box in zip(pixels, boxes) if box is not None]
    if missing := len(words) - len(labels):
        caption = f"{caption} There is no room for {missing} labels.".strip()
    layers = Layers(frame, axes)
    parts = [*layers.leaders(leaders), *layers.arrows(words, points, pairs), layers.dots(rows), layers.labels(labels)]
    size = {"width": frame.width, "height": frame.height}
    return titled(alt.layer(*parts), title, caption, describe(words, points), wrap=frame.width // 6, **size)


class Frame:
    """The area of the map that holds points from ``low`` to ``high`` and a margin, in data units and in pixels."""

    def __init__(self, low: np.ndarray, high: np.ndarray) -> None:
        spans = np.maximum(high - low, 1e-9)
        longest = float(spans.max())
        spans = np.maximum(spans, longest / 2)  # words on a line also need room for their labels
        self.scale = (SIDE - 2 * MARGIN) / longest
        middle = (low + high) / 2
        half = spans / 2 + MARGIN / self.scale
        self.low, self.high = middle - half, middle + half
        self.width, self.height = (round(float(side)) for side in 2 * half * self.scale)

    def pixels(self, points: np.ndarray) -> np.ndarray:
        """Points in pixels from the left and the top."""
        from_left, from_bottom = ((points - self.low) * self.scale).T
        return np.stack([from_left, self.height - from_bottom], axis=1)

    def data(self, across: float, down: float) -> tuple[float, float]:
        """The coordinates of a pixel."""
        return float(self.low[0] + across / self.scale), float(self.low[1] + (self.height - down) / self.scale)

    def centre(self, box: Box) -> dict[str, float]:
        """The coordinates of the centre of a box."""
        x, y = self.data((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)
        return {"x": x, "y": y}

    def leader(self, dot: np.ndarray, box: Box) -> dict[str, float]:
        """The line from a dot to the nearest point of its label's box, and its length in pixels."""
        near = float(np.clip(dot[0], box[0], box[2])), float(np.clip(dot[1], box[1], box[3]))
        (x, y), (x2, y2) = self.data(*dot), self.data(*near)
        return {"x": x, "y": y, "x2": x2, "y2": y2, "length": float(np.hypot(near[0] - dot[0], near[1] - dot[1]))}


def roles(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The role of each word of the pairs: an arrow starts or ends there.

    >>> roles([("king", "queen")])
    {'king': 'from', 'queen': 'to'}
    """
    starts = dict.fromkeys((a for a, _ in pairs), FROM)
    return {**starts, **{b: TO for _, b in pairs if b not in starts}}


def place_labels(
    words: Sequence[str], pixels: np.ndarray, frame: Frame, arrows: Sequence[tuple[int, int]] = ()
) -> list[Box | None]:
    """A box for each label near its dot that overlaps no other label, dot, arrow or edge; None if there is none.

    The words of ``arrows`` come first, then the others in their order.
    """
    first = {index for arrow in arrows for index in arrow}
    order = sorted(range(len(words)), key=lambda index: (index not in first, index))
    dots = np.concatenate([pixels - 4, pixels + 4], axis=1)  # (n, 4)
    taken = np.concatenate([np.empty((0, 4)), *(_along(pixels[a], pixels[b]) for a, b in arrows)])
    boxes: list[Box | None] = [None] * len(words)
    for index in order:
        others = np.concatenate([np.delete(dots, index, axis=0), taken])
        for box in _candidates(words[index], *pixels[index]):
            inside = box[0] >= 0 and box[1] >= 0 and box[2] <= frame.width and box[3] <= frame.height
            if inside and not _overlaps(box, others):
                boxes[index], taken = box, np.concatenate([taken, [box]])
                break
    return boxes


def _candidates(word: str, x: float, y: float) -> list[Box]:
    """The boxes that a label may have, best first: right, left, above, below, corners; then further away."""
    width, height = 0.55 * FONT * len(word) + 4, FONT + 3
    boxes = []
    for gap in (6, 20, 34):
        slant = 3 + 0.7 * (gap - 6)
        centres = [(gap + width / 2, 0.0), (-gap - width / 2, 0.0), (0.0, -gap - height / 2), (0.0, gap + height / 2)]
        corner = slant + width / 2, slant + height / 2
        centres += [(across * corner[0], down * corner[1]) for across in (1, -1) for down in (-1, 1)]
        boxes += [
            (x + dx - width / 2, y + dy - height / 2, x + dx + width / 2, y + dy + height / 2) for dx, dy in centres
        ]
    return boxes


def _along(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Small boxes along an arrow, (n, 4), that labels must not overlap, except at its ends."""
    length = max(float(np.linalg.norm(end - start)), 1.0)
    centres = start + np.arange(9, length - 9, 6)[:, None] / length * (end - start)
    return np.concatenate([centres - 3, centres + 3], axis=1)


def _overlaps(box: Box, others: np.ndarray) -> bool:
    """Whether a box overlaps any of the others (n, 4)."""
    left, top, right, bottom = box
    apart = (others[:, 0] > right) | (others[:, 2] < left) | (others[:, 1] > bottom) | (others[:, 3] < top)
    return not bool(apart.all())


class Layers:
    """The layers of the map, all with the same axes."""

    def __init__(self, frame: Frame, axes: tuple[str, str]) -> None:
        self.frame = frame
        bare = alt.Axis(labels=False, ticks=False, grid=False)  # only relative positions mean something
        domains = np.stack([frame.low, frame.high], axis=1).tolist()
        scales = [alt.Scale(domain=domain, nice=False, zero=False) for domain in domains]
        self.position = {
            "x": alt.X("x:Q", title=axes[0] or None, scale=scales[0], axis=bare),
            "y": alt.Y("y:Q", title=axes[1] or None, scale=scales[1], axis=bare),
        }
        colours = alt.Scale(domain=[OTHER, FROM, TO], range=["#444444", COLOURS[0], COLOURS[1]])
        self.colour = alt.Color("role:N", scale=colours, legend=None)

    def dots(self, rows: list[dict[str, Any]]) -> Any:
        """A dot for each word."""
        dots = alt.Chart(alt.Data(values=rows)).mark_circle(size=36, opacity=0.9)
        return dots.encode(**self.position, color=self.colour, tooltip=["word:N"])

    def labels(self, rows: list[dict[str, Any]]) -> Any:
        """The words, each in the centre of its box."""
        texts = alt.Chart(alt.Data(values=rows)).mark_text(fontSize=FONT, align="center", baseline="middle")
        return texts.encode(**self.position, text="word:N", color=self.colour)

    def leaders(self, rows: list[dict[str, float]]) -> list[Any]:
        """Lines from dots to labels that are further away."""
        far = [row for row in rows if row["length"] > 10]
        lines = alt.Chart(alt.Data(values=far)).mark_rule(color="#bbbbbb", strokeWidth=0.8)
        return [lines.encode(**self.position, x2="x2:Q", y2="y2:Q")] if far else []

    def arrows(self, words: Sequence[str], points: np.ndarray, pairs: Sequence[tuple[str, str]]) -> list[Any]:
        """Lines from word to word, a little shorter than the distance of the dots, with arrowheads."""
        rows = []
        for a, b in pairs:
            start, end = points[words.index(a)], points[words.index(b)]
            length = float(np.linalg.norm(end - start))
            if length * self.frame.scale < 20:  # the dots overlap
                continue
            pixel = (end - start) / length / self.frame.scale
            (x, y), (x2, y2) = (start + 6 * pixel).tolist(), (end - 10 * pixel).tolist()
            angle = float(np.degrees(np.arctan2(end[0] - start[0], end[1] - start[1])))  # clockwise from the top
            rows.append({"pair": f"{a} → {b}", "x": x, "y": y, "x2": x2, "y2": y2, "angle": angle})
        if not rows:
            return []
        heads = [{"x": row["x2"], "y": row["y2"], "angle": row["angle"]} for row in rows]
        lines = alt.Chart(alt.Data(values=rows)).mark_rule(color="#888888", strokeWidth=1.2)
        tips = alt.Chart(alt.Data(values=heads)).mark_point(shape="triangle-up", size=50, filled=True, opacity=1)
        return [
            lines.encode(**self.position, x2="x2:Q", y2="y2:Q", tooltip=["pair:N"]),
            tips.encode(**self.position, angle=alt.Angle("angle:Q", scale=None), color=alt.value("#888888")),
        ]


def describe(words: Sequence[str], points: np.ndarray, most: int = 40) -> str:
    """The chart as text: each of the first words with its nearest word.

    >>> describe(["a", "b", "c"], np.array([[0.0, 0.0], [1.0, 0.0], [3.0, 0.0]]))
    'a is nearest to b, b to a, c to b'
    """
    distances = np.linalg.norm(points[:most, None] - points[None], axis=-1)
    np.fill_diagonal(distances, np.inf)
    near = [f"{word} to {words[int(row.argmin())]}" for word, row in zip(words, distances)]
    return ", ".join(near).replace(" to ", " is nearest to ", 1)
