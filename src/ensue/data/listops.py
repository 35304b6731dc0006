"""ListOps: nested operations on lists of digits, and the digit that they give (Nangia and Bowman, 2018).

    [MAX 4 [MIN 2 7 ] 0 [SM 9 8 ] ]   →   7

A text is a tree of the operations MIN, MAX, MED (median, rounded down) and SM (sum modulo 10); its label is its value.
To answer, a model has to find out what belongs to what over the whole text. The Long Range Arena (Tay et al., 2021)
asks for texts of 500 to 2,000 tokens; the built-in corpus has shorter ones, which two cores can learn from.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from statistics import median

LISTOPS = "listops"
"""The name of the built-in corpus."""
OPERATIONS = ("MIN", "MAX", "MED", "SM")
MAX_DEPTH, MAX_ARGUMENTS = 10, 10
OPERATION = 0.25
"""The probability that an argument is an operation, in the paper's generator."""
LEAST, MOST, EXAMPLES = 10, 100, 20_000
"""Tokens of a text and number of texts in the built-in corpus."""

Tree = int | tuple[str, list["Tree"]]


def value(tree: Tree) -> int:
    """The value of a tree.

    >>> value(("MAX", [4, ("MIN", [2, 7]), 0, ("SM", [9, 8])]))
    7
    """
    if isinstance(tree, int):
        return tree
    operation, arguments = tree
    values = [value(argument) for argument in arguments]
    results = {"MIN": min(values), "MAX": max(values), "MED": int(median(values)), "SM": sum(values) % 10}
    return results[operation]


def tokens(tree: Tree) -> list[str]:
    """The tokens of a tree.

    >>> " ".join(tokens(("MED", [4, ("SM", [9, 8])])))
    '[MED 4 [SM 9 8 ] ]'
    """
    if isinstance(tree, int):
        return [str(tree)]
    operation, arguments = tree
    return [f"[{operation}", *(token for argument in arguments for token in tokens(argument)), "]"]


def bounded_tree(chance: random.Random, most: int) -> Tree | None:
    """A tree of operations with two to ten arguments, at most ``MAX_DEPTH`` of them above each other.

    None where it has more than ``most`` tokens, which is found while it grows.
    """
    left = most

    def grow(depth: int) -> Tree | None:
        nonlocal left
        if depth > 1 and (depth >= MAX_DEPTH or chance.random() >= OPERATION):
            left -= 1
            return chance.randrange(10) if left >= 0 else None
        left -= 2
        operation, arguments = chance.choice(OPERATIONS), []
        for _ in range(chance.randint(2, MAX_ARGUMENTS)):
            argument = grow(depth + 1) if left > 0 else None
            if argument is None:
                return None
            arguments.append(argument)
        return operation, arguments

    return grow(1)


def listops(count: int = EXAMPLES, least: int = LEAST, most: int = MOST, seed: int = 0) -> Iterator[tuple[str, int]]:
    """Yield ``count`` different texts of ``least`` to ``most`` tokens, and their values."""
    chance, seen = random.Random(seed), set[str]()
    while len(seen) < count:
        tree = bounded_tree(chance, most)
        if tree is None or len(parts := tokens(tree)) < least:
            continue
        text = " ".join(parts)
        if text not in seen:
            seen.add(text)
            yield text, value(tree)


@cache
def listops_lines() -> tuple[str, ...]:
    """The built-in corpus as lines of a table: a header, then label and text."""
    return ("label\ttext", *(f"{label}\t{text}" for text, label in listops()))
