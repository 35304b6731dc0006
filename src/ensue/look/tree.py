"""The search tree: every token that a decoder tried, its score, and why it was kept or pruned.

A trace is plain data, as a search writes it to JSON::

    {"method": "beam", "beam": 2, "length": "none", "source": "il a m' entarté",
     "nodes": [{"id": 0, "parent": None, "step": 0, "token": "<s>", "log_prob": 0.0, "total": 0.0, "score": 0.0,
                "fate": "kept", "why": "the start"}, …]}

``log_prob`` is log P(y_t | y_<t, x) of the node's own token, ``total`` = Σ_t log P(y_t | y_<t, x) the sum along its
path, and ``score`` the total after the length penalty. ``fate`` is kept, pruned, ended (a complete hypothesis) or best:
the last node of the search's result, or all nodes of its path.

``ensue.look.tree_text`` shows it in a terminal, ``ensue.look.tree_page`` as an offline page.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ensue.core.errors import InputError

FATES = ("kept", "pruned", "ended", "best")


@dataclass(frozen=True, slots=True)
class TreeNode:
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
        """True if the hypothesis that ends here is complete."""
        return self.fate in ("ended", "best")


@dataclass(frozen=True, slots=True)
class Tree:
    """A trace as a tree: nodes by id, the children of each (best first) and the ids of the best path."""

    nodes: dict[int, TreeNode]
    children: dict[int | None, list[int]]
    best: frozenset[int]

    @property
    def forest(self) -> bool:
        """True if the trace has several roots; then a START is drawn above them."""
        return len(self.children[None]) > 1

    def path(self, node: int) -> list[TreeNode]:
        """The nodes from the root to a node."""
        path = [self.nodes[node]]
        while path[-1].parent is not None:
            path.append(self.nodes[path[-1].parent])
        return path[::-1]

    def status(self, node: TreeNode) -> str:
        """How a node is shown: by its fate, and as best on the whole best path."""
        return "best" if node.id in self.best else "ended" if node.fate == "best" else node.fate

    def hypotheses(self) -> list[TreeNode]:
        """The last nodes of hypotheses by score: complete ones first, then those that the search left unfinished."""
        ends = [
            n for n in self.nodes.values() if n.fate == "ended" or (n.fate != "pruned" and n.id not in self.children)
        ]
        return sorted(ends, key=lambda n: (not n.ended, -n.score, n.id not in self.best, n.id))

    def best_end(self, node: TreeNode) -> bool:
        """True for the last node of the best path."""
        return node.id in self.best and self.best.isdisjoint(self.children.get(node.id, ()))

    def survivors(self) -> set[int]:
        """Nodes that were not pruned, and their ancestors."""
        return {n.id for node in self.nodes.values() if node.fate != "pruned" for n in self.path(node.id)}


def read_tree(trace: Mapping[str, Any]) -> Tree:
    """Read a trace; refuse nodes that do not form a tree."""
    nodes: dict[int, TreeNode] = {}
    for index, record in enumerate(trace.get("nodes", ())):
        node = _node(record, f"trace, nodes[{index}]")
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
    path = tree.path(max(ends, key=lambda n: n.score).id) if ends else []
    return replace(tree, best=frozenset(node.id for node in path))


def _node(record: Mapping[str, Any], where: str) -> TreeNode:
    missing = [name for name in TreeNode.__slots__ if name not in record]
    if missing:
        raise InputError(f"{', '.join(missing)} missing", where=where)
    if record["fate"] not in FATES:
        raise InputError(f"unknown fate {record['fate']!r}", where=where, hint=f"there is {', '.join(FATES)}")
    try:
        parent = None if record["parent"] is None else int(record["parent"])
        log_prob, total, score = (float(record[name]) for name in ("log_prob", "total", "score"))
        texts = str(record["token"]), record["fate"], str(record["why"] or "")
        return TreeNode(int(record["id"]), parent, int(record["step"]), texts[0], log_prob, total, score, *texts[1:])
    except (TypeError, ValueError) as error:
        raise InputError(f"not a number ({error})", where=where) from error
