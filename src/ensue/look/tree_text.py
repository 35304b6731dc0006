"""The search tree for a terminal: a line per node, its numbers first, with the best path as the trunk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ensue.look.formatting import decimals, readable, shortened
from ensue.look.tree import Tree, TreeNode, read_tree

SYMBOLS = {"kept": "●", "pruned": "×", "ended": "■", "best": "★"}


def tree_text(trace: Mapping[str, Any], width: int = 100) -> list[str]:
    """The tree as lines of at most ``width`` columns, a line per node, its numbers first.

    The last child of a node continues straight below it: the one on the best path, or else the one with the most
    descendants. The other children branch off before it. So the trunk of the tree is the best path, however long.
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
        text = f"{rails}{SYMBOLS[tree.status(node)]} {readable(node.token)}{' ■' if tree.best_end(node) else ''}{why}"
        numbers = " ".join(f"{decimals(value):>8}" for value in (node.log_prob, node.total, node.score))
        lines.append(f"{node.step:>4} {numbers}  {text}")
    lines += ["", "   score    total  hypothesis"]
    for node in tree.hypotheses():
        text = " ".join(readable(n.token) for n in tree.path(node.id))
        end = "" if node.ended else " … (unfinished)"
        numbers = f"{decimals(node.score):>8} {decimals(node.total):>8}"
        lines.append(f"{numbers}  {SYMBOLS[tree.status(node)]} {text}{end}")
    return [shortened(line, width) for line in lines]


def _branches(tree: Tree) -> list[tuple[TreeNode, str]]:
    """Nodes in the order of their lines, each with the rails to its left."""
    size = dict.fromkeys(tree.nodes, 1)
    for node in sorted(tree.nodes.values(), key=lambda n: -n.step):
        if node.parent is not None:
            size[node.parent] += size[node.id]
    lines: list[tuple[TreeNode, str]] = []
    stack: list[tuple[int | None, str, str]] = [(None, "", "")]
    while stack:
        current, rails, branch = stack.pop()
        if current is not None:
            lines.append((tree.nodes[current], rails + branch))
        below = rails + ("│ " if branch else "")
        trunk = max(tree.children.get(current, ()), key=lambda c: (c in tree.best, size[c]), default=None)
        if trunk is not None:
            others = [child for child in tree.children[current] if child != trunk]
            stack.append((trunk, below, ""))
            stack += [(child, below, "├─") for child in reversed(others)]
    return lines


def headline(trace: Mapping[str, Any]) -> list[str]:
    """The kind of search, and its source if there is one."""
    method = str(trace.get("method", "search"))
    beam, penalty = trace.get("beam"), str(trace.get("length") or "none")
    parts = [method if method in ("search", "sampling") else f"{method} search"]
    parts += [f"beam {beam}"] * (beam is not None and method == "beam")
    line = ", ".join([*parts, f"length penalty {penalty}"])
    source = trace.get("source")
    return [line[:1].upper() + line[1:], *([f"source: {readable(str(source))}"] if source else [])]
