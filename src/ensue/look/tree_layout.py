"""Positions of the nodes of a search tree on a page.

Each step is a column. Siblings are together, best first, in the order of their parents, so that no lines cross. Every
column is shifted up or down until the best hypothesis is one straight line.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len

from ensue.look.formatting import decimals, readable, shortened
from ensue.look.tree import Tree, TreeNode

ROW, GAP, MARGIN = 27, 46, 24
LETTER, SMALL, PADDING = 7.9, 6.7, 8
MAX_LETTERS = 16
"""Longer tokens are cut; the page shows them in full when the node is selected."""


@dataclass(frozen=True, slots=True)
class Box:
    """The box of a node: its left edge, its vertical centre and its width, in pixels."""

    x: float
    y: float
    width: float


def tree_layout(tree: Tree, shown: Iterable[int] | None = None) -> dict[int, Box]:
    """Boxes of nodes (all, or those shown): a column per step, at least a row apart, the best path in one line.

    Siblings are centred at the height of their parent. Where groups would overlap they are moved apart as little as
    possible in the least-squares sense (pool adjacent violators).
    """
    chosen = set(tree.nodes if shown is None else shown)
    steps: dict[int, list[int]] = defaultdict(list)
    for i in tree.nodes:
        if i in chosen:
            steps[tree.nodes[i].step].append(i)
    heights: dict[int | None, float] = {None: 0.0}
    boxes: dict[int, Box] = {}
    x = MARGIN + (box_width("START", "") + GAP if tree.forest else 0.0)
    for step in sorted(steps):
        order, wanted = _wanted_heights(tree, steps[step], heights)
        column = spread(wanted, ROW)
        shift = next((-y for node, y in zip(order, column) if node in tree.best), 0.0)
        widths = [box_width(*label(tree.nodes[node])) for node in order]
        for node, y, width in zip(order, column, widths):
            heights[node] = y + shift
            boxes[node] = Box(x, y + shift, width)
        x += max(widths) + GAP
    top = min(box.y for box in boxes.values()) - MARGIN
    return {node: replace(box, y=box.y - top) for node, box in boxes.items()}


def _wanted_heights(
    tree: Tree, column: list[int], heights: Mapping[int | None, float]
) -> tuple[list[int], list[float]]:
    """The nodes of a step in order, and their heights if they might overlap."""
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
    """The heights nearest to those wanted, in the same order and at least ``apart`` from each other.

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


def label(node: TreeNode) -> tuple[str, str]:
    """The texts in a node's box: its token and its score."""
    return shortened(readable(node.token), MAX_LETTERS), decimals(node.score)


def box_width(token: str, score: str) -> float:
    """The width in pixels of a box with these texts."""
    return round(cell_len(token) * LETTER + len(score) * SMALL + PADDING * (3 if score else 2), 1)
