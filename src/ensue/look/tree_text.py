"""The search tree for a terminal: a node a line, figures first, the best path as the trunk."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from ensue.look.tree import Node, Tree, read_tree

MARKS = {"kept": "●", "pruned": "×", "ended": "■", "best": "★"}


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
        text = f"{rails}{MARKS[tree.mark(node)]} {readable(node.token)}{' ■' if tree.best_end(node) else ''}{why}"
        lines.append(f"{node.step:>4} {figure(node.log_prob)} {figure(node.total)} {figure(node.score)}  {text}")
    lines += ["", "   score    total  hypothesis"]
    for node in tree.hypotheses():
        text = " ".join(readable(n.token) for n in tree.path(node.id))
        end = "" if node.ended else " … (unfinished)"
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


def headline(trace: Mapping[str, Any]) -> list[str]:
    """What search it was, and of what."""
    method = str(trace.get("method", "search"))
    beam, penalty = trace.get("beam"), str(trace.get("length") or "none")
    parts = [method if method in ("search", "sampling") else f"{method} search"]
    parts += [f"beam {beam}"] * (beam is not None and method == "beam")
    parts += [f"length penalty {penalty}"]
    line = ", ".join(parts)
    source = trace.get("source")
    return [line[:1].upper() + line[1:], *([f"source: {readable(str(source))}"] if source else [])]


def figure(value: float) -> str:
    """A log-probability in eight columns.

    >>> figure(-1.23456), figure(float("-inf"))
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
