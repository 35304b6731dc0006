"""The search tree: every expansion of a decoder, what it scored, and why it was kept or pruned.

A trace is plain data, what a search writes as JSON::

    {"method": "beam", "beam": 2, "length": "none", "source": "il a m' entarté",
     "nodes": [{"id": 0, "parent": None, "step": 0, "token": "<s>", "log_prob": 0.0, "total": 0.0, "score": 0.0,
                "fate": "kept", "why": "the start"}, …]}

``log_prob`` is log P(y_t | y_<t, x) of the node's own token, ``total`` = Σ_t log P(y_t | y_<t, x) the sum along its
path, and ``score`` what the length rule makes of the total. ``fate`` is kept, pruned, ended (a whole hypothesis) or
best: the end of what the search answers, or all of its path.

``tree_text`` draws it for a terminal, ``tree_html`` as one page that needs nothing else. In the page a column is a
step; the children of a node stand together, best first, in the order of their parents, so that no two lines cross; and
every column is moved up or down until the best hypothesis is one straight line.
"""

from __future__ import annotations

import html
import json
import math
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from string import Template
from typing import Any

from ensue.core.errors import InputError

FATES = ("kept", "pruned", "ended", "best")
MARKS = {"kept": "●", "pruned": "×", "ended": "■", "best": "★"}
ROW, GAP, PILL, MARGIN = 27, 46, 21, 24
LETTER, SMALL, PADDING = 7.9, 6.7, 8
LONGEST = 16
"""Letters of a token that are drawn; the rest is shown when the node is chosen."""


@dataclass(frozen=True, slots=True)
class Node:
    """One token that a search tried."""

    id: int
    parent: int | None
    step: int
    token: str
    log_prob: float
    total: float
    score: float
    fate: str
    why: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node is drawn: its left edge, its middle and its width, in pixels."""

    x: float
    y: float
    width: float


@dataclass(frozen=True, slots=True)
class Tree:
    """A trace, read: nodes by id, the children of each (best first) and the ids of the best path."""

    nodes: dict[int, Node]
    children: dict[int | None, list[int]]
    best: frozenset[int]

    @property
    def forest(self) -> bool:
        """Whether the first tokens have no common start in the trace; then a START is drawn for them."""
        return len(self.children[None]) > 1

    def path(self, node: int) -> list[Node]:
        """From the root to a node."""
        found = [self.nodes[node]]
        while found[-1].parent is not None:
            found.append(self.nodes[found[-1].parent])
        return found[::-1]

    def mark(self, node: Node) -> str:
        """How a node is shown: its fate, and best all along the best path."""
        return "best" if node.id in self.best else "ended" if node.fate == "best" else node.fate

    def hypotheses(self) -> list[Node]:
        """Ends of hypotheses by score: those that ended, and last those that search stopped before they did."""
        ends = [
            n for n in self.nodes.values() if n.fate == "ended" or (n.fate != "pruned" and n.id not in self.children)
        ]
        return sorted(ends, key=lambda n: (not _ended(n), -n.score, n.id not in self.best, n.id))

    def survivors(self) -> set[int]:
        """Nodes that were not pruned, and all that leads to them."""
        return {n.id for node in self.nodes.values() if node.fate != "pruned" for n in self.path(node.id)}


def read_tree(trace: Mapping[str, Any]) -> Tree:
    """A trace with its nodes joined to a tree; what does not fit together is named."""
    nodes: dict[int, Node] = {}
    for place, record in enumerate(trace.get("nodes", ())):
        node = _node(record, f"trace, nodes[{place}]")
        if node.id in nodes:
            raise InputError(f"two nodes have the id {node.id}", where="trace")
        nodes[node.id] = node
    if not nodes:
        raise InputError("the trace has no nodes", mend="record it with --trace while translating")
    children: dict[int | None, list[int]] = defaultdict(list)
    for node in sorted(nodes.values(), key=lambda n: (-n.score, n.id)):
        if node.parent is not None and (node.parent not in nodes or nodes[node.parent].step >= node.step):
            raise InputError(f"node {node.id} has no parent {node.parent} at an earlier step", where="trace")
        children[node.parent].append(node.id)
    tree = Tree(nodes, dict(children), frozenset())
    inner = {n.parent for n in nodes.values() if n.fate == "best"}  # a search may mark the end, or all of the path
    ends = [n for n in nodes.values() if n.fate == "best" and n.id not in inner]
    end = max(ends, key=lambda n: n.score, default=None)
    return Tree(nodes, tree.children, frozenset(n.id for n in tree.path(end.id)) if end else frozenset())


def _node(record: Mapping[str, Any], where: str) -> Node:
    missing = [name for name in Node.__slots__ if name not in record]
    if missing:
        raise InputError(f"{', '.join(missing)} missing", where=where)
    if record["fate"] not in FATES:
        raise InputError(f"unknown fate {record['fate']!r}", where=where, mend=f"there is {', '.join(FATES)}")
    try:
        return Node(
            id=int(record["id"]),
            parent=None if record["parent"] is None else int(record["parent"]),
            step=int(record["step"]),
            token=str(record["token"]),
            log_prob=float(record["log_prob"]),
            total=float(record["total"]),
            score=float(record["score"]),
            fate=record["fate"],
            why=str(record["why"] or ""),
        )
    except (TypeError, ValueError) as error:
        raise InputError(f"not a number ({error})", where=where) from error


# ---------------------------------------------------------------------------------------------------- for a terminal


def tree_text(trace: Mapping[str, Any], width: int = 100) -> list[str]:
    """The tree as lines of at most ``width`` columns, a node a line, figures first.

    A node's last child, the one that leads to the most or to the best, goes on straight below it; all other children
    branch off before that. So the trunk of the tree is the best path, however many steps it has.
    """
    tree = read_tree(trace)
    lines = [
        *headline(trace),
        "★ best path   ● kept   ■ ended   × pruned",
        "",
        "step    log P    total    score  tree",
        *([f"{'● START':>40}"] if tree.forest else []),
    ]
    for node, rails in _branches(tree):
        why = f"  ({readable(node.why)})" if node.why else ""
        text = f"{rails}{MARKS[tree.mark(node)]} {readable(node.token)}{' ■' if _best_end(tree, node) else ''}{why}"
        lines.append(f"{node.step:>4} {figure(node.log_prob)} {figure(node.total)} {figure(node.score)}  {text}")
    lines += ["", "   score    total  hypothesis"]
    for node in tree.hypotheses():
        text = " ".join(readable(n.token) for n in tree.path(node.id))
        end = "" if _ended(node) else " … (unfinished)"
        lines.append(f"{figure(node.score)} {figure(node.total)}  {MARKS[tree.mark(node)]} {text}{end}")
    return [shortened(line, width) for line in lines]


def _branches(tree: Tree) -> list[tuple[Node, str]]:
    """Nodes in the order of their lines, each with the rails before it."""
    size = dict.fromkeys(tree.nodes, 1)
    for node in sorted(tree.nodes.values(), key=lambda n: -n.step):
        if node.parent is not None:
            size[node.parent] += size[node.id]
    lines: list[tuple[Node, str]] = []
    waiting: list[tuple[int | None, str, str]] = [(None, "", "")]
    while waiting:
        at, rails, branch = waiting.pop()
        if at is not None:
            lines.append((tree.nodes[at], rails + branch))
        below = rails + ("│ " if branch else "")
        trunk = max(tree.children.get(at, ()), key=lambda c: (c in tree.best, size[c]), default=None)
        if trunk is not None:
            others = [child for child in tree.children[at] if child != trunk]
            waiting.append((trunk, below, ""))
            waiting += [(child, below, "├─") for child in reversed(others)]
    return lines


def _best_end(tree: Tree, node: Node) -> bool:
    return node.id in tree.best and not any(child in tree.best for child in tree.children.get(node.id, ()))


def _ended(node: Node) -> bool:
    return node.fate in ("ended", "best")


def headline(trace: Mapping[str, Any]) -> list[str]:
    """What search it was, and of what."""
    method = str(trace.get("method", "search"))
    beam, rule = trace.get("beam"), str(trace.get("length") or "none")
    parts = [method if method in ("search", "sampling") else f"{method} search"]
    parts += [f"beam {beam}"] * (beam is not None and method == "beam")
    parts += [f"length rule {rule}"]
    line = ", ".join(parts)
    source = trace.get("source")
    return [line[:1].upper() + line[1:], *([f"source: {readable(str(source))}"] if source else [])]


def figure(value: float) -> str:
    """A log-probability in eight columns.

    >>> figure(-1.23456), figure(-math.inf)
    ('  −1.235', '      −∞')
    """
    return f"{number(value):>8}"


def number(value: float) -> str:
    """A log-probability to three decimals, with a true minus."""
    return f"{value:.3f}".replace("inf", "∞").replace("-", "−")


def readable(token: str) -> str:
    """A token with what cannot be seen, or would disturb a terminal, made visible.

    >>> readable("a\\n"), readable(""), readable(" "), readable("\\x1b[2J")
    ('a⏎', '∅', '␣', '\\\\x1b[2J')
    """
    if not token.strip(" "):
        return "␣" * len(token) or "∅"
    shown = {"\n": "⏎", "\t": "⇥"}
    return "".join(shown.get(c) or (ascii(c)[1:-1] if _unseen(c) else c) for c in token)


def _unseen(letter: str) -> bool:
    """Control characters, lone surrogates, line separators, and marks that turn the direction of writing."""
    return (
        unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp")
        or letter in "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    )


def columns(text: str) -> int:
    """How many columns of a terminal a text takes: Chinese letters take two, accents none.

    >>> columns("abc"), columns("漢字"), columns("e\\u0301")
    (3, 4, 1)
    """
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def shortened(text: str, width: int) -> str:
    """A text cut to so many columns, with … where something was lost."""
    if columns(text) <= width:
        return text.rstrip()
    ends = list(accumulate(columns(letter) for letter in text))
    return text[: sum(end < width for end in ends)] + "…"


# -------------------------------------------------------------------------------------------------------- for a page


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


def tree_html(trace: Mapping[str, Any]) -> str:
    """The tree as a page of its own: nothing is fetched, so it works offline and as a file that one sends around."""
    tree = read_tree(trace)
    lines = headline(trace)
    pruned = sum(node.fate == "pruned" for node in tree.nodes.values())
    return Template(PAGE).substitute(
        title=html.escape("Search tree: " + lines[0][:1].lower() + lines[0][1:]),
        source="".join(f"<p class=source>{html.escape(line)}</p>" for line in lines[1:]),
        counts=f"{len(tree.nodes):,} nodes, {pruned:,} of them pruned, {len(tree.hypotheses()):,} hypotheses",
        style=STYLE,
        script=SCRIPT,
        whole=_svg(tree, tree_layout(tree), "whole", "The whole tree"),
        few=_svg(tree, tree_layout(tree, tree.survivors()), "few", "The tree without pruned nodes"),
        rows="\n".join(_hypothesis(tree, rank, node) for rank, node in enumerate(tree.hypotheses(), 1)),
        rule=html.escape(str(trace.get("length") or "none")),
        data=_json({n.id: _details(tree, n) for n in tree.nodes.values()}),
    )


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
            edges.append(_edge(start if parent is None else places[parent], places[i], tree.mark(tree.nodes[i])))
        nodes.append(_pill(tree, tree.nodes[i], places[i], focus=i == first))
    return (
        f'<div class="tree {name}" data-line="{places[first].y:g}">'
        f'<svg width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}" role="group" '
        f'aria-label="{html.escape(title)}">\n' + "\n".join(edges + nodes) + "\n</svg></div>"
    )


def _edge(parent: Place, child: Place, fate: str) -> str:
    x, end = parent.x + parent.width, child.x
    middle = (x + end) / 2
    return (
        f'<path class="{fate}" d="M{x:g} {parent.y:g}C{middle:g} {parent.y:g} {middle:g} {child.y:g} '
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
    ended = " end" if node.fate == "ended" or _best_end(tree, node) else ""
    return (
        f'<g class="{tree.mark(node)}{ended}" data-id="{node.id}" tabindex="{0 if focus else -1}" role="img" '
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


def _json(value: Any) -> str:
    """JSON that is safe inside a script element: no <, > or & is left that could end it."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hypothesis(tree: Tree, rank: int, node: Node) -> str:
    path = tree.path(node.id)
    total = math.fsum(n.log_prob for n in path)
    texts, whole = addends([n.log_prob for n in path])
    terms = " ".join(
        f"<span class=term><b>{html.escape(readable(n.token))}</b><i>{text}</i></span>" for n, text in zip(path, texts)
    )
    same = total == node.total or math.isclose(total, node.total, rel_tol=1e-4, abs_tol=1e-3)
    said = "" if same else f" <strong class=wrong>but the trace says {number(node.total)}</strong>"
    what = "best" if node.id in tree.best else "ended" if _ended(node) else "unfinished"
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


STYLE = """
:root { color-scheme: light dark; --back: #fff; --ink: #1b1f24; --soft: #57606a; --faint: #7b848d; --line: #8c959f;
  --rule: #d0d7de; --kept: #eef2f6; --best: #0b57a4; --on-best: #fff; --glow: #b35900; --wrong: #b00020; }
@media (prefers-color-scheme: dark) { :root { --back: #0f1419; --ink: #e6e9ed; --soft: #9aa5b1; --faint: #7d8894;
  --line: #6b7683; --rule: #3a444f; --kept: #222b35; --best: #5aa9f5; --on-best: #08131f; --glow: #ffb454;
  --wrong: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem clamp(.75rem, 3vw, 2rem); background: var(--back); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0 0 .25rem; } h2 { font-size: 1.1rem; margin: 1.5rem 0 .25rem; }
p { margin: .25rem 0; max-width: 75ch; } .source { font-weight: 600; } .soft { color: var(--soft); }
label { display: inline-block; padding: .4rem 0; } input { width: 1.1rem; height: 1.1rem; vertical-align: -.2rem; }
.tree { overflow: auto; max-height: 62vh; border: 1px solid var(--rule); border-radius: 8px; }
.tree.few { display: none; } #hide:checked ~ .few { display: block; } #hide:checked ~ .whole { display: none; }
svg { display: block; font: 13px ui-monospace, monospace; } svg g { cursor: pointer; outline: none; }
svg path { fill: none; stroke: var(--line); stroke-width: 1.3; }
svg rect { fill: var(--kept); stroke: var(--line); } svg text { fill: var(--ink); }
svg .score { font-size: 11px; text-anchor: end; fill: var(--soft); }
svg g.pruned rect { fill: var(--back); stroke: var(--rule); stroke-dasharray: 3 3; }
svg g.pruned text { fill: var(--faint); } svg path.pruned { stroke: var(--rule); stroke-dasharray: 3 3; }
svg g.start rect { fill: none; stroke: none; } svg g.start { cursor: default; }
svg g.end rect { stroke-width: 2.5; stroke: var(--ink); }
svg path.best { stroke: var(--best); stroke-width: 3.5; }
svg g.best rect { fill: var(--best); stroke: var(--best); } svg g.best text { fill: var(--on-best); font-weight: 600; }
svg g.best .score { font-weight: 400; } svg g.best.end rect { stroke: var(--ink); }
svg g.pruned:is(:hover, :focus, .chosen) text { fill: var(--ink); }
svg g:is(:focus, .chosen) rect { stroke: var(--glow); stroke-width: 3; stroke-dasharray: none; }
#node { position: sticky; bottom: 0; margin: .5rem 0; padding: .5rem .75rem; border: 1px solid var(--rule);
  border-radius: 8px; background: var(--back); min-height: 5.2rem; }
#node b { font-family: ui-monospace, monospace; overflow-wrap: anywhere; }
#node dl { display: flex; flex-wrap: wrap; gap: .1rem 1.2rem; margin: 0; } #node dl div { display: flex; gap: .4rem; }
dt { color: var(--soft); } dd { margin: 0; font-variant-numeric: tabular-nums; }
.table { overflow-x: auto; } table { border-collapse: collapse; min-width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .4rem .75rem .4rem 0; border-top: 1px solid var(--rule);
  font-variant-numeric: tabular-nums; } th { border: 0; color: var(--soft); font-weight: 500; }
td.sum { min-width: 12rem; } tr.best td { font-weight: 600; }
.term { display: inline-block; text-align: center; margin: 0 .35rem .25rem 0; }
.term b { display: block; font: 13px ui-monospace, monospace; white-space: pre; }
.term i { font-style: normal; font-weight: 400; font-size: .8rem; color: var(--soft); } .wrong { color: var(--wrong); }
@media print { .tree { max-height: none; overflow: visible; } #node, label, input { display: none; } }
"""

SCRIPT = """
"use strict";
const nodes = JSON.parse(document.getElementById("data").textContent);
const panel = document.getElementById("node");
const names = [["step", "step"], ["log_prob", "log P of this token"], ["total", "total"], ["score", "score"],
  ["fate", "fate"], ["why", "why"]];
function make(kind, text) { const made = document.createElement(kind); made.textContent = text; return made; }
function show(shape) {
  const node = nodes[shape.dataset.id], list = document.createElement("dl");
  for (const [key, name] of names) {
    if (node[key] === "") continue;
    const pair = document.createElement("div");
    pair.append(make("dt", name), make("dd", node[key]));
    list.append(pair);
  }
  const text = [];
  for (let at = shape.dataset.id; at !== null; at = nodes[at].parent) text.unshift(nodes[at].token);
  panel.replaceChildren(make("b", text.join(" ")), list);
  document.querySelectorAll("svg .chosen").forEach(other => other.classList.remove("chosen"));
  document.querySelectorAll('svg [data-id="' + shape.dataset.id + '"]').forEach(same => same.classList.add("chosen"));
}
function step(shape, key) {
  const tree = shape.closest("svg"), node = nodes[shape.dataset.id];
  const find = id => tree.querySelector('[data-id="' + id + '"]');
  if (key === "ArrowLeft") return node.parent === null ? null : find(node.parent);
  if (key === "ArrowRight") {
    const children = node.children.map(find).filter(Boolean);
    return children.find(child => child.classList.contains("best")) || children[0];
  }
  const y = g => g.transform.baseVal.getItem(0).matrix.f, sign = key === "ArrowDown" ? 1 : -1;
  return [...tree.querySelectorAll("[data-id]")]
    .filter(g => nodes[g.dataset.id].step === node.step && sign * (y(g) - y(shape)) > 0)
    .sort((a, b) => sign * (y(a) - y(b)))[0];
}
for (const tree of document.querySelectorAll(".tree")) {
  const shape = event => event.target.closest("[data-id]");
  for (const kind of ["pointerover", "focusin", "click"])
    tree.addEventListener(kind, event => { if (shape(event)) show(shape(event)); });
  tree.addEventListener("keydown", event => {
    const at = shape(event);
    if (!at || !/^Arrow/.test(event.key)) return;
    event.preventDefault();
    const next = step(at, event.key);
    if (!next) return;
    at.setAttribute("tabindex", -1);
    next.setAttribute("tabindex", 0);
    next.focus();
    next.scrollIntoView({ block: "nearest", inline: "nearest" });
  });
}
function centre() {
  for (const tree of document.querySelectorAll(".tree"))
    tree.scrollTop = tree.dataset.line - tree.clientHeight / 2;
}
document.getElementById("hide").addEventListener("change", centre);
centre();
"""

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:">
<link rel="icon" href="data:,">
<title>$title</title>
<style>$style</style>
</head>
<body>
<h1>$title</h1>
$source
<p>Each column is a step, each box a token that was tried, with the score of the text so far. The thick straight line is
the best hypothesis; faint boxes were pruned, framed ones ended. Choose a box to see how its score came about: with the
pointer, by touch, or with Tab and the arrow keys.</p>
<p class="soft">$counts</p>
<main>
<input type="checkbox" id="hide"> <label for="hide">hide what was pruned</label>
$whole
$few
<div id="node" aria-live="polite"><span class="soft">No box chosen.</span></div>
</main>
<h2>Hypotheses by score</h2>
<p>log P of each token adds up to the total; the length rule ($rule) makes the score of it. Terms are rounded so that
what is printed adds up.</p>
<div class="table"><table>
<thead><tr><th>rank<th>score<th>end<th>log P of each token and their sum</thead>
<tbody>
$rows
</tbody></table></div>
<script type="application/json" id="data">$data</script>
<script>$script</script>
</body>
</html>
"""
