"""What a search leaves when it is asked to: every token it tried, what became of it, and why.

A trace is a forest of nodes, a node a token after the path of tokens that leads to it. Scores add up: a node's
``total`` is its parent's plus its own ``log_prob``, and the sum along the path of a hypothesis is the hypothesis'
log-probability.

Fates:
    kept     went on to the next step
    pruned   was given up, or never allowed
    ended    became a finished hypothesis, by the end mark or at the longest length
    best     ended, and is the best hypothesis; its path shows the way back
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
    """All nodes of one search, in the order of steps, and the hypotheses it answered with, in their order."""

    method: str
    beam: int = 1
    length: str = "none"
    nodes: list[Node] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)

    def add(self, parent: int | None, token: int, log_prob: float, score: float, fate: Fate, why: str) -> int:
        """Note a token after the node ``parent``, and answer the number of its own."""
        before = None if parent is None else self.nodes[parent]
        step, total = (before.step, before.total) if before else (0, 0.0)
        node = Node(len(self.nodes), parent, step + 1, token, log_prob, total + log_prob, score, fate, why)
        self.nodes.append(node)
        return node.id

    def change(self, node: int, fate: Fate, why: str) -> None:
        """Say what became of a node later."""
        self.nodes[node] = replace(self.nodes[node], fate=fate, why=why)

    def path(self, last: int) -> list[int]:
        """The nodes that lead to a node, first token first, itself at the end."""
        found: list[int] = []
        at: int | None = last
        while at is not None:
            found.append(at)
            at = self.nodes[at].parent
        return found[::-1]

    def as_dict(self, name: Callable[[int], str]) -> dict[str, Any]:
        """As plain data for JSON; ``name`` says what a token is called."""
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
    said = f"{score:.2f}".replace("-", "−")
    return f"ended; score {said}" if ended else f"cut at the longest length; score {said}"
