"""The search tree as an offline page: tree.html is its body, tree.css its style and tree.js its script."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from ensue.look.formatting import decimals, readable
from ensue.look.page import filled, page
from ensue.look.tree import Tree, TreeNode, read_tree
from ensue.look.tree_layout import MARGIN, PADDING, Box, box_width, label, tree_layout
from ensue.look.tree_text import headline

BOX_HEIGHT = 21
"""In pixels."""


def tree_html(trace: Mapping[str, Any]) -> str:
    """The page of a trace: one file that fetches nothing."""
    tree = read_tree(trace)
    title, *source = headline(trace)
    hypotheses, steps = tree.hypotheses(), [node.step for node in tree.nodes.values()]
    pruned = sum(node.fate == "pruned" for node in tree.nodes.values())
    body = filled(
        "tree.html",
        source="".join(f"<p class=source>{html.escape(line)}</p>" for line in source),
        counts=f"{len(tree.nodes):,} nodes, {pruned:,} of them pruned, {len(hypotheses):,} hypotheses",
        whole=_svg(tree, tree_layout(tree), "whole", "The whole tree"),
        few=_svg(tree, tree_layout(tree, tree.survivors()), "few", "The tree without pruned nodes"),
        rows="\n".join(_hypothesis(tree, rank, node) for rank, node in enumerate(hypotheses, 1)),
        first=min(steps),
        last=max(steps),
        rule=html.escape(str(trace.get("length") or "none")),
    )
    data = {n.id: _details(tree, n) for n in tree.nodes.values()}
    return page("Search tree: " + title[:1].lower() + title[1:], body, data, ("tree",))


def _svg(tree: Tree, boxes: Mapping[int, Box], name: str, title: str) -> str:
    """The tree as SVG; only one node can be reached with Tab, arrow keys lead to the others."""
    width = max(box.x + box.width for box in boxes.values()) + MARGIN
    height = max(box.y for box in boxes.values()) + MARGIN
    order = sorted(boxes, key=lambda i: (i in tree.best, tree.nodes[i].fate != "pruned"))  # the best on top
    roots = [i for i in boxes if tree.nodes[i].parent is None]
    first = next((i for i in roots if i in tree.best), roots[0])
    middle = boxes[first].y if tree.best else sum(boxes[i].y for i in roots) / len(roots)
    start = Box(MARGIN, middle, box_width("START", ""))
    edges, nodes = [], [f'<g class="start" {_box(start, "START")}</g>'] if tree.forest else []
    for i in order:
        parent = tree.nodes[i].parent
        if parent is not None or tree.forest:
            edges.append(_edge(start if parent is None else boxes[parent], boxes[i], tree, tree.nodes[i]))
        nodes.append(_node(tree, tree.nodes[i], boxes[i], focus=i == first))
    return (
        f'<div class="tree {name}" data-line="{boxes[first].y:g}">'
        f'<svg width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}" role="group" '
        f'aria-label="{html.escape(title)}">\n' + "\n".join(edges + nodes) + "\n</svg></div>"
    )


def _edge(parent: Box, child: Box, tree: Tree, node: TreeNode) -> str:
    x, end = parent.x + parent.width, child.x
    middle = (x + end) / 2
    curve = f"M{x:g} {parent.y:g}C{middle:g} {parent.y:g} {middle:g} {child.y:g} {end:g} {child.y:g}"
    return f'<path class="{tree.status(node)}" data-step="{node.step}" d="{curve}"/>'


def _node(tree: Tree, node: TreeNode, box: Box, focus: bool) -> str:
    token, score = label(node)
    name = f"{readable(node.token)}, step {node.step}, score {decimals(node.score)}, {tree.status(node)}"
    ended = " end" if node.fate == "ended" or tree.best_end(node) else ""
    return (
        f'<g class="{tree.status(node)}{ended}" data-id="{node.id}" data-step="{node.step}" '
        f'tabindex="{0 if focus else -1}" role="img" aria-label="{html.escape(name)}" {_box(box, token)}'
        f'<text class="score" x="{box.width - PADDING:g}" y="4">{score}</text></g>'
    )


def _box(box: Box, text: str) -> str:
    """The end of a <g> tag, and the box with its text."""
    return (
        f'transform="translate({box.x:g} {box.y:g})"><rect y="{-BOX_HEIGHT / 2:g}" width="{box.width:g}" '
        f'height="{BOX_HEIGHT}" rx="6"/><text x="{PADDING}" y="4">{html.escape(text)}</text>'
    )


def _details(tree: Tree, node: TreeNode) -> dict[str, Any]:
    """What the page shows of a selected node; numbers are text, as JSON has no infinity."""
    return {
        "parent": node.parent,
        "children": tree.children.get(node.id, []),
        "token": readable(node.token),
        "step": node.step,
        **{name: decimals(getattr(node, name)) for name in ("log_prob", "total", "score")},
        "fate": "kept, on the best path" if node.fate == "kept" and node.id in tree.best else node.fate,
        "why": readable(node.why) if node.why else "",
    }


def _hypothesis(tree: Tree, rank: int, node: TreeNode) -> str:
    """A row of the table of hypotheses; a total that differs from the sum of its terms is reported."""
    path = tree.path(node.id)
    values = [n.log_prob for n in path]
    total, (texts, whole) = math.fsum(values), addends(values)
    terms = " ".join(
        f"<span class=term><b>{html.escape(readable(n.token))}</b><i>{text}</i></span>" for n, text in zip(path, texts)
    )
    same = total == node.total or math.isclose(total, node.total, rel_tol=1e-4, abs_tol=1e-3)
    warning = "" if same else f" <strong class=wrong>but the trace says {decimals(node.total)}</strong>"
    end = "best" if node.id in tree.best else "ended" if node.ended else "unfinished"
    return (
        f"<tr class={tree.status(node)}><td>{rank}<td>{decimals(node.score)}<td>{end}<td class=sum>{terms} "
        f"<span class=term><b>&nbsp;</b><i>= {whole}</i></span>{warning}"
    )


def addends(values: Sequence[float]) -> tuple[list[str], str]:
    """The terms of a sum and the sum to three decimals, rounded so that the printed terms add up.

    Each term is the difference of two rounded partial sums, and so at most 0.001 from its own value.

    >>> addends([-0.3333, -0.3333, -0.3333])
    (['−0.333', '−0.334', '−0.333'], '−1.000')
    """
    if not all(map(math.isfinite, values)):
        return [decimals(value) for value in values], decimals(sum(values))
    thousandths = [0, *(round(math.fsum(values[: i + 1]) * 1000) for i in range(len(values)))]
    terms = [decimals((after - before) / 1000) for before, after in pairwise(thousandths)]
    return terms, decimals(thousandths[-1] / 1000)
