"""The search tree as a page of its own: one file that needs nothing else.

tree.html is its body, tree.css and tree.js go into the frame of ``ensue.look.page`` as they are.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from ensue.look.page import filled, page
from ensue.look.tree import Node, Tree, read_tree
from ensue.look.tree_layout import MARGIN, PADDING, Place, label, pill_width, tree_layout
from ensue.look.tree_text import headline, number, readable

PILL = 21
"""The height of a node in pixels."""


def tree_html(trace: Mapping[str, Any]) -> str:
    """The tree as a page of its own: nothing is fetched, so it works offline and as a file that one sends around."""
    tree = read_tree(trace)
    lines = headline(trace)
    pruned = sum(node.fate == "pruned" for node in tree.nodes.values())
    body = filled(
        "tree.html",
        source="".join(f"<p class=source>{html.escape(line)}</p>" for line in lines[1:]),
        counts=f"{len(tree.nodes):,} nodes, {pruned:,} of them pruned, {len(tree.hypotheses()):,} hypotheses",
        whole=_svg(tree, tree_layout(tree), "whole", "The whole tree"),
        few=_svg(tree, tree_layout(tree, tree.survivors()), "few", "The tree without pruned nodes"),
        rows="\n".join(_hypothesis(tree, rank, node) for rank, node in enumerate(tree.hypotheses(), 1)),
        first=min(node.step for node in tree.nodes.values()),
        last=max(node.step for node in tree.nodes.values()),
        rule=html.escape(str(trace.get("length") or "none")),
    )
    data = {n.id: _details(tree, n) for n in tree.nodes.values()}
    return page("Search tree: " + lines[0][:1].lower() + lines[0][1:], body, data, ("tree",))


def _svg(tree: Tree, places: Mapping[int, Place], name: str, title: str) -> str:
    width = max(p.x + p.width for p in places.values()) + MARGIN
    height = max(p.y for p in places.values()) + MARGIN
    drawn = sorted(places, key=lambda i: (i in tree.best, tree.nodes[i].fate != "pruned"))  # the best on top
    roots = [i for i in places if tree.nodes[i].parent is None]
    first = next((i for i in roots if i in tree.best), roots[0])
    middle = places[first].y if tree.best else sum(places[i].y for i in roots) / len(roots)
    start = Place(MARGIN, middle, pill_width("START", ""))
    edges, nodes = [], [_start(start)] if tree.forest else []
    for i in drawn:
        parent = tree.nodes[i].parent
        if parent is not None or tree.forest:
            edges.append(_edge(start if parent is None else places[parent], places[i], tree, tree.nodes[i]))
        nodes.append(_pill(tree, tree.nodes[i], places[i], focus=i == first))
    return (
        f'<div class="tree {name}" data-line="{places[first].y:g}">'
        f'<svg width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}" role="group" '
        f'aria-label="{html.escape(title)}">\n' + "\n".join(edges + nodes) + "\n</svg></div>"
    )


def _edge(parent: Place, child: Place, tree: Tree, node: Node) -> str:
    x, end = parent.x + parent.width, child.x
    middle = (x + end) / 2
    return (
        f'<path class="{tree.mark(node)}" data-step="{node.step}" '
        f'd="M{x:g} {parent.y:g}C{middle:g} {parent.y:g} {middle:g} {child.y:g} '
        f'{end:g} {child.y:g}"/>'
    )


def _start(place: Place) -> str:
    return (
        f'<g class="start" transform="translate({place.x:g} {place.y:g})"><rect y="{-PILL / 2:g}" '
        f'width="{place.width:g}" height="{PILL}" rx="6"/><text x="{PADDING}" y="4">START</text></g>'
    )


def _pill(tree: Tree, node: Node, place: Place, focus: bool) -> str:
    token, score = label(node)
    spoken = f"{readable(node.token)}, step {node.step}, score {number(node.score)}, {tree.mark(node)}"
    ended = " end" if node.fate == "ended" or tree.best_end(node) else ""
    return (
        f'<g class="{tree.mark(node)}{ended}" data-id="{node.id}" data-step="{node.step}" '
        f'tabindex="{0 if focus else -1}" role="img" '
        f'aria-label="{html.escape(spoken)}" transform="translate({place.x:g} {place.y:g})">'
        f'<rect y="{-PILL / 2:g}" width="{place.width:g}" height="{PILL}" rx="6"/>'
        f'<text x="{PADDING}" y="4">{html.escape(token)}</text>'
        f'<text class="score" x="{place.width - PADDING:g}" y="4">{score}</text></g>'
    )


def _details(tree: Tree, node: Node) -> dict[str, Any]:
    """What the page tells of a node when it is chosen; figures are written out here, for JSON has no infinity."""
    return {
        "parent": node.parent,
        "children": tree.children.get(node.id, []),
        "token": readable(node.token),
        "step": node.step,
        "log_prob": number(node.log_prob),
        "total": number(node.total),
        "score": number(node.score),
        "fate": "kept, on the best path" if node.fate == "kept" and node.id in tree.best else node.fate,
        "why": readable(node.why) if node.why else "",
    }


def _hypothesis(tree: Tree, rank: int, node: Node) -> str:
    path = tree.path(node.id)
    total = math.fsum(n.log_prob for n in path)
    texts, whole = addends([n.log_prob for n in path])
    terms = " ".join(
        f"<span class=term><b>{html.escape(readable(n.token))}</b><i>{text}</i></span>" for n, text in zip(path, texts)
    )
    same = total == node.total or math.isclose(total, node.total, rel_tol=1e-4, abs_tol=1e-3)
    said = "" if same else f" <strong class=wrong>but the trace says {number(node.total)}</strong>"
    what = "best" if node.id in tree.best else "ended" if node.ended else "unfinished"
    return (
        f"<tr class={tree.mark(node)}><td>{rank}<td>{number(node.score)}<td>{what}<td class=sum>{terms} "
        f"<span class=term><b>&nbsp;</b><i>= {whole}</i></span>{said}"
    )


def addends(values: Sequence[float]) -> tuple[list[str], str]:
    """The terms of a sum and the sum to three decimals, rounded so that what is printed adds up.

    Each term is the difference of two rounded partial sums, and so at most 0.001 from its own value.

    >>> addends([-0.3333, -0.3333, -0.3333])
    (['−0.333', '−0.334', '−0.333'], '−1.000')
    """
    if not all(map(math.isfinite, values)):
        return [number(value) for value in values], number(sum(values))
    thousandths = [0, *(round(math.fsum(values[: i + 1]) * 1000) for i in range(len(values)))]
    terms = [number((after - before) / 1000) for before, after in pairwise(thousandths)]
    return terms, number(thousandths[-1] / 1000)
