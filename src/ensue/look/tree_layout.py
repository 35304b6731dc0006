"""Where the nodes of a search tree stand on a page.

A column is a step; the children of a node stand together, best first, in the order of their parents, so that no two
lines cross; and every column is moved up or down until the best hypothesis is one straight line.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ensue.look.tree import Node, Tree
from ensue.look.tree_text import columns, number, readable, shortened

ROW, GAP, MARGIN = 27, 46, 24
LETTER, SMALL, PADDING = 7.9, 6.7, 8
LONGEST = 16
"""Letters of a token that are drawn; the rest is shown when the node is chosen."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node is drawn: its left edge, its middle and its width, in pixels."""

    x: float
    y: float
    width: float


def tree_layout(tree: Tree, shown: Iterable[int] | None = None) -> dict[int, Place]:
    """Places of nodes (all, or those shown): a column a step, at least a row apart, the best path in one line.

    A node wants to stand with its siblings around the height of their parent. Where groups would overlap they are
    moved apart as little as possible, in the sense of least squares (pool adjacent violators).
    """
    chosen = set(tree.nodes if shown is None else shown)
    steps: dict[int, list[int]] = defaultdict(list)
    for node in tree.nodes.values():
        if node.id in chosen:
            steps[node.step].append(node.id)
    heights: dict[int | None, float] = {None: 0.0}
    places: dict[int, Place] = {}
    x = MARGIN + (pill_width("START", "") + GAP if tree.forest else 0.0)
    for step in sorted(steps):
        order, wanted = _wishes(tree, steps[step], heights)
        found = spread(wanted, ROW)
        shift = next((-y for at, y in zip(order, found) if at in tree.best), 0.0)
        widths = [pill_width(*label(tree.nodes[at])) for at in order]
        for at, y, width in zip(order, found, widths):
            heights[at] = y + shift
            places[at] = Place(x, y + shift, width)
        x += max(widths) + GAP
    lowest = min(place.y for place in places.values()) - MARGIN
    return {node: Place(p.x, p.y - lowest, p.width) for node, p in places.items()}


def _wishes(tree: Tree, column: list[int], heights: Mapping[int | None, float]) -> tuple[list[int], list[float]]:
    """The nodes of a step in order, and the heights at which they would like to be."""
    families: dict[int | None, list[int]] = defaultdict(list)
    for node in column:
        families[tree.nodes[node].parent].append(node)
    order: list[int] = []
    wanted: list[float] = []
    for parent in sorted(families, key=lambda p: heights[p]):
        family = sorted(families[parent], key=lambda n: (-tree.nodes[n].score, n))
        order += family
        wanted += [heights[parent] + (i - (len(family) - 1) / 2) * ROW for i in range(len(family))]
    return order, wanted


def spread(wanted: Sequence[float], apart: float) -> list[float]:
    """Heights nearest to those wanted, in the same order, at least so far apart.

    >>> spread([0, 0, 10], 2)
    [-1.0, 1.0, 10.0]
    """
    blocks: list[tuple[float, int]] = []  # mean and size, of heights less the rows above them
    for i, want in enumerate(wanted):
        mean, size = want - i * apart, 1
        while blocks and blocks[-1][0] > mean:
            before, many = blocks.pop()
            mean, size = (before * many + mean * size) / (many + size), many + size
        blocks.append((mean, size))
    means = [mean for mean, size in blocks for _ in range(size)]
    return [float(mean + i * apart) for i, mean in enumerate(means)]


def label(node: Node) -> tuple[str, str]:
    """What is written into a node: its token and its score."""
    return shortened(readable(node.token), LONGEST), number(node.score)


def pill_width(token: str, score: str) -> float:
    """Pixels that a node with this label needs."""
    return round(columns(token) * LETTER + len(score) * SMALL + PADDING * (3 if score else 2), 1)
