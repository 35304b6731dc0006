"""The search tree: every expansion of a decoder, what it scored, and why it was kept or pruned.

A trace is plain data, what a search writes as JSON::

    {"method": "beam", "beam": 2, "length": "none", "source": "il a m' entarté",
     "nodes": [{"id": 0, "parent": None, "step": 0, "token": "<s>", "log_prob": 0.0, "total": 0.0, "score": 0.0,
                "fate": "kept", "why": "the start"}, …]}

``log_prob`` is log P(y_t | y_<t, x) of the node's own token, ``total`` = Σ_t log P(y_t | y_<t, x) the sum along its
path, and ``score`` what the length rule makes of the total. ``fate`` is kept, pruned, ended (a whole hypothesis) or
best: the end of what the search answers, or all of its path.

``ensue.look.tree_text`` draws it for a terminal, ``ensue.look.tree_page`` as one page that needs nothing else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ensue.core.errors import InputError

FATES = ("kept", "pruned", "ended", "best")


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

    @property
    def ended(self) -> bool:
        """Whether a hypothesis that stops here is a whole one."""
        return self.fate in ("ended", "best")


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
        return sorted(ends, key=lambda n: (not n.ended, -n.score, n.id not in self.best, n.id))

    def best_end(self, node: Node) -> bool:
        """Whether the best path ends in this node."""
        return node.id in self.best and not any(child in self.best for child in self.children.get(node.id, ()))

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
        raise InputError("the trace has no nodes", hint="record it with --trace while translating")
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
        raise InputError(f"unknown fate {record['fate']!r}", where=where, hint=f"there is {', '.join(FATES)}")
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
