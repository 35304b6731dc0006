"""Words on a map: their vectors in two dimensions, with labels that can be read, and arrows from word to word.

Both axes have one scale, so that angles and lengths are those of the projection: relations that are the same
difference of vectors are parallel arrows. A label stands beside its dot where there is room, else a little further off
with a line to it; where there is none it is left out, the dot stays, and its tooltip has the word.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

from ensue.core.errors import InputError
from ensue.look.chart_parts import COLOURS

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
        what = f"{len(words):,} words at points of the shape {np.shape(points)} make no map"
        raise InputError(what, hint=f"give 2 to {MAX_WORDS:,} words, and a point for each")
    frame = Frame.around(points)
    pixels = frame.pixels(points)
    role = roles(pairs)
    boxes = placed_labels(words, pixels, frame, arrows=[(words.index(a), words.index(b)) for a, b in pairs])
    places = [(word, float(x), float(y)) for word, (x, y) in zip(words, points)]
    rows = [{"word": word, "x": x, "y": y, "role": role.get(word, OTHER)} for word, x, y in places]
    labels = [{**row, **frame.centre(box)} for row, box in zip(rows, boxes) if box is not None]
    tied = [frame.tie(dot, box) for dot, box in zip(pixels, boxes) if box is not None]
    left_out = len(words) - len(labels)
    said = [caption, f"{left_out} labels had no room: their dots stand alone." if left_out else ""]
    draw = Layers(frame, axes)
    parts = [*draw.ties(tied), *draw.arrows(words, points, pairs), draw.dots(rows), draw.labels(labels)]
    return alt.layer(*parts).properties(
        width=frame.width,
        height=frame.height,
        title=alt.TitleParams(
            title, subtitle=textwrap.wrap(" ".join(filter(None, said)), frame.width // 6), anchor="start", offset=12
        ),
        description=f"{title}. {describe(words, points)}",
    )


class Frame:
    """The rectangle of the map: what it shows of the plane, and how many pixels that is."""

    def __init__(self, low: np.ndarray, high: np.ndarray) -> None:
        spans = np.maximum(high - low, 1e-9)
        longest = float(spans.max())
        spans = np.maximum(spans, longest / 2)  # words on a line still want room for their labels
        self.scale = (SIDE - 2 * MARGIN) / longest
        middle = (low + high) / 2
        half = spans / 2 + MARGIN / self.scale
        self.low, self.high = middle - half, middle + half
        self.width, self.height = (round(float(side)) for side in 2 * half * self.scale)

    @staticmethod
    def around(points: np.ndarray) -> Frame:
        """The frame that holds these points and some room for labels."""
        return Frame(points.min(0), points.max(0))

    def pixels(self, points: np.ndarray) -> np.ndarray:
        """Where points of the plane are, in pixels from the left and the top."""
        from_left, from_bottom = ((points - self.low) * self.scale).T
        return np.stack([from_left, self.height - from_bottom], axis=1)

    def plane(self, across: float, down: float) -> tuple[float, float]:
        """The point of the plane at a pixel."""
        return float(self.low[0] + across / self.scale), float(self.low[1] + (self.height - down) / self.scale)

    def centre(self, box: Box) -> dict[str, float]:
        """The middle of a box, as a point of the plane."""
        x, y = self.plane((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)
        return {"x": x, "y": y}

    def tie(self, dot: np.ndarray, box: Box) -> dict[str, float]:
        """The line from a dot to the nearest point of its label's box, and how many pixels it is long."""
        near = float(np.clip(dot[0], box[0], box[2])), float(np.clip(dot[1], box[1], box[3]))
        (x, y), (x2, y2) = self.plane(*dot), self.plane(*near)
        return {"x": x, "y": y, "x2": x2, "y2": y2, "length": float(np.hypot(near[0] - dot[0], near[1] - dot[1]))}


def roles(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """What each word of the pairs is: where an arrow begins, or where it ends.

    >>> roles([("king", "queen")])
    {'king': 'from', 'queen': 'to'}
    """
    starts = dict.fromkeys((a for a, _ in pairs), FROM)
    return {**starts, **{b: TO for _, b in pairs if b not in starts}}


def placed_labels(
    words: Sequence[str], pixels: np.ndarray, frame: Frame, arrows: Sequence[tuple[int, int]] = ()
) -> list[Box | None]:
    """A box for each label near its dot that meets no other label, dot or arrow, nor the edge; None if there is none.

    Words come first that stand first, but those of ``arrows`` before all others, as the picture is about them.
    """
    first = {place for arrow in arrows for place in arrow}
    order = sorted(range(len(words)), key=lambda place: (place not in first, place))
    dots = np.concatenate([pixels - 4, pixels + 4], axis=1)  # (n, 4)
    taken = np.concatenate([np.empty((0, 4)), *(_along(pixels[a], pixels[b]) for a, b in arrows)])
    found: list[Box | None] = [None] * len(words)
    for place in order:
        others = np.concatenate([np.delete(dots, place, axis=0), taken])
        for box in _beside(words[place], *pixels[place]):
            inside = box[0] >= 0 and box[1] >= 0 and box[2] <= frame.width and box[3] <= frame.height
            if inside and not _meet(box, others):
                found[place], taken = box, np.concatenate([taken, [box]])
                break
    return found


def _beside(word: str, x: float, y: float) -> list[Box]:
    """The boxes that a label may have, best first: right of the dot, left, above, below, the corners; then further."""
    width, height = 0.55 * FONT * len(word) + 4, FONT + 3
    boxes = []
    for gap in (6, 20, 34):
        slant = 3 + 0.7 * (gap - 6)
        middles = [(gap + width / 2, 0.0), (-gap - width / 2, 0.0), (0.0, -gap - height / 2), (0.0, gap + height / 2)]
        corner = slant + width / 2, slant + height / 2
        middles += [(across * corner[0], down * corner[1]) for across in (1, -1) for down in (-1, 1)]
        boxes += [
            (x + dx - width / 2, y + dy - height / 2, x + dx + width / 2, y + dy + height / 2) for dx, dy in middles
        ]
    return boxes


def _along(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Small boxes along an arrow, (n, 4), that labels keep off; its ends are the dots' own."""
    length = max(float(np.linalg.norm(end - start)), 1.0)
    middles = start + np.arange(9, length - 9, 6)[:, None] / length * (end - start)
    return np.concatenate([middles - 3, middles + 3], axis=1)


def _meet(box: Box, others: np.ndarray) -> bool:
    """Whether a box and any of the others (n, 4) have a point in common."""
    left, top, right, bottom = box
    apart = (others[:, 0] > right) | (others[:, 2] < left) | (others[:, 1] > bottom) | (others[:, 3] < top)
    return not bool(apart.all())


class Layers:
    """What is drawn in a frame; all layers share its axes."""

    def __init__(self, frame: Frame, axes: tuple[str, str]) -> None:
        self.frame = frame
        # no numbers: only places relative to each other mean something
        bare = alt.Axis(labels=False, ticks=False, grid=False)
        domains = [[float(frame.low[side]), float(frame.high[side])] for side in (0, 1)]
        scales = [alt.Scale(domain=domain, nice=False, zero=False) for domain in domains]
        self.place = {
            "x": alt.X("x:Q", title=axes[0] or None, scale=scales[0], axis=bare),
            "y": alt.Y("y:Q", title=axes[1] or None, scale=scales[1], axis=bare),
        }
        colours = alt.Scale(domain=[OTHER, FROM, TO], range=["#444444", COLOURS[0], COLOURS[1]])
        self.colour = alt.Color("role:N", scale=colours, legend=None)

    def dots(self, rows: list[dict[str, Any]]) -> Any:
        """A dot a word."""
        dots = alt.Chart(alt.Data(values=rows)).mark_circle(size=36, opacity=0.9)
        return dots.encode(**self.place, color=self.colour, tooltip=[alt.Tooltip("word:N")])

    def labels(self, rows: list[dict[str, Any]]) -> Any:
        """The words, each in the middle of its box."""
        texts = alt.Chart(alt.Data(values=rows)).mark_text(fontSize=FONT, align="center", baseline="middle")
        return texts.encode(**self.place, text="word:N", color=self.colour)

    def ties(self, rows: list[dict[str, float]]) -> list[Any]:
        """Lines to the labels that had to go further off."""
        far = [row for row in rows if row["length"] > 10]
        lines = alt.Chart(alt.Data(values=far)).mark_rule(color="#bbbbbb", strokeWidth=0.8)
        return [lines.encode(**self.place, x2="x2:Q", y2="y2:Q")] if far else []

    def arrows(self, words: Sequence[str], points: np.ndarray, pairs: Sequence[tuple[str, str]]) -> list[Any]:
        """Lines from word to word, which stop short of the dots, and the heads of the arrows."""
        rows, heads = [], []
        for a, b in pairs:
            start, end = points[words.index(a)], points[words.index(b)]
            length = float(np.linalg.norm(end - start))
            if length * self.frame.scale < 20:  # the words lie on each other
                continue
            pixel = (end - start) / length / self.frame.scale
            (x, y), (x2, y2) = start + 6 * pixel, end - 10 * pixel
            angle = float(np.degrees(np.arctan2(end[0] - start[0], end[1] - start[1])))  # from upwards, clockwise
            rows.append({"pair": f"{a} → {b}", "x": float(x), "y": float(y), "x2": float(x2), "y2": float(y2)})
            heads.append({"x": float(x2), "y": float(y2), "angle": angle})
        if not rows:
            return []
        lines = alt.Chart(alt.Data(values=rows)).mark_rule(color="#888888", strokeWidth=1.2)
        tips = alt.Chart(alt.Data(values=heads)).mark_point(shape="triangle-up", size=50, filled=True, opacity=1)
        return [
            lines.encode(**self.place, x2="x2:Q", y2="y2:Q", tooltip=[alt.Tooltip("pair:N")]),
            tips.encode(**self.place, angle=alt.Angle("angle:Q", scale=None), color=alt.value("#888888")),
        ]


def describe(words: Sequence[str], points: np.ndarray, most: int = 40) -> str:
    """The picture in words: each of the first words with the one that stands nearest to it.

    >>> describe(["a", "b", "c"], np.array([[0.0, 0.0], [1.0, 0.0], [3.0, 0.0]]))
    'a is nearest to b, b to a, c to b'
    """
    distances = np.linalg.norm(points[:most, None] - points[None], axis=-1)
    distances[np.arange(len(distances)), np.arange(len(distances))] = np.inf
    near = [f"{word} to {words[int(row.argmin())]}" for word, row in zip(words, distances)]
    return ", ".join(near).replace(" to ", " is nearest to ", 1)
