"""The trace of a search: every token it tried, its fate, and why.

A trace is a forest; each node is a token after the path of tokens that leads to it. A node's ``total`` is its parent's
plus its own ``log_prob``, so the total of a hypothesis' last node is its log-probability.

Fates:
    kept     continued at the next step
    pruned   dropped, or never allowed
    ended    a finished hypothesis, by the end token or at the maximum length
    best     the best finished hypothesis
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

Fate = Literal["kept", "pruned", "ended", "best"]


@dataclass(frozen=True, slots=True)
class Node:
    """A token that a search tried. Steps count from 1; ``parent`` is None for a first token."""

    id: int
    parent: int | None
    step: int
    token: int
    log_prob: float
    total: float
    score: float
    fate: Fate
    why: str


@dataclass(frozen=True, slots=True)
class Path:
    """A hypothesis as the nodes that lead to it."""

    nodes: list[int]
    tokens: list[int]
    log_prob: float
    score: float
    ended: bool


@dataclass(slots=True)
class Trace:
    """All nodes of one search, in the order of steps, and its resulting hypotheses, best first."""

    method: str
    beam: int = 1
    length: str = "none"
    nodes: list[Node] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)

    def add(self, parent: int | None, token: int, log_prob: float, score: float, fate: Fate, why: str) -> int:
        """Add a token after the node ``parent``, and return the id of its node."""
        before = None if parent is None else self.nodes[parent]
        step, total = (before.step, before.total) if before else (0, 0.0)
        node = Node(len(self.nodes), parent, step + 1, token, log_prob, total + log_prob, score, fate, why)
        self.nodes.append(node)
        return node.id

    def change(self, node: int, fate: Fate, why: str) -> None:
        """Set the fate of a node."""
        self.nodes[node] = replace(self.nodes[node], fate=fate, why=why)

    def path(self, last: int) -> list[int]:
        """The path to a node, first token first."""
        nodes: list[int] = []
        at: int | None = last
        while at is not None:
            nodes.append(at)
            at = self.nodes[at].parent
        return nodes[::-1]

    def as_dict(self, name: Callable[[int], str]) -> dict[str, Any]:
        """For JSON; ``name`` turns a token into its name."""
        nodes = [{**asdict(node), "token": name(node.token), "token_id": node.token} for node in self.nodes]
        paths = [
            {
                "tokens": [name(token) for token in path.tokens],
                "score": path.score,
                "log_prob": path.log_prob,
                "ended": path.ended,
                "path": path.nodes,
            }
            for path in self.paths
        ]
        return {"method": self.method, "beam": self.beam, "length": self.length, "nodes": nodes, "hypotheses": paths}


def ending(score: float, ended: bool) -> str:
    """Why a hypothesis is finished.

    >>> ending(-1.234, True)
    'ended; score −1.23'
    """
    number = f"{score:.2f}".replace("-", "−")
    return f"ended; score {number}" if ended else f"cut off at the maximum length; score {number}"
