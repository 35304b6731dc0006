"""Counts, lists and line numbers in English."""

from __future__ import annotations

from collections.abc import Sequence

from ensue.core.escapes import escape_field

MAX_LINES = 5
"""Line numbers that are listed."""


def counted(count: int, noun: str) -> str:
    """A count with its noun.

    >>> counted(1, "pair"), counted(2_000, "pair")
    ('1 pair', '2,000 pairs')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def listed(words: Sequence[str]) -> str:
    """Join words with commas and "and".

    >>> listed(["50"]), listed(["50", "200", "800"])
    ('50', '50, 200 and 800')
    """
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def line_numbers(numbers: Sequence[int]) -> str:
    """List the first line numbers.

    >>> line_numbers([3]), line_numbers([1, 2, 3, 4, 5, 6])
    ('line 3', 'lines 1, 2, 3, 4, 5, …')
    """
    shown = ", ".join(map(str, numbers[:MAX_LINES])) + (", …" if len(numbers) > MAX_LINES else "")
    return f"line{'' if len(numbers) == 1 else 's'} {shown}"


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a text table: the first column to the left, the others to the right.

    >>> table_lines(["a", "b"], [["x", "10"]])
    ['a   b', '─  ──', 'x  10']
    """
    heading, *body = ([escape_field(cell) for cell in line] for line in (columns, *rows))
    widths = [max(len(line[i]) for line in (heading, *body)) for i in range(len(columns))]
    lines = [heading, ["─" * width for width in widths], *body]
    cells = ([c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(line, widths))] for line in lines)
    return ["  ".join(line).rstrip() for line in cells]
