"""Numbers and tokens as text, for pages and terminals."""

from __future__ import annotations

import unicodedata
from itertools import accumulate
from typing import Any

import numpy as np
from rich.cells import cell_len

from ensue.core.escapes import escape_controls

VISIBLE = {"\n": "⏎", "\t": "⇥"}


def decimals(value: float) -> str:
    """A number to three decimals, with a minus sign instead of a hyphen.

    >>> decimals(-1.23456), decimals(float("-inf"))
    ('−1.235', '−∞')
    """
    return f"{value:.3f}".replace("inf", "∞").replace("-", "−")


def significant(value: float) -> str:
    """A number to four significant digits, with a minus sign instead of a hyphen.

    >>> significant(-0.000123456), significant(0.0), significant(12)
    ('−0.0001235', '0', '12')
    """
    return f"{value + 0.0:.4g}".replace("-", "−")


def matrix_rows(value: Any) -> list[list[str]]:
    """A number, vector or matrix as rows of numbers to four significant digits."""
    return [[significant(number) for number in row] for row in np.atleast_2d(value).tolist()]


def matrix_text(value: Any) -> str:
    """A number, vector or matrix in one line; semicolons separate the rows of a matrix.

    >>> matrix_text(-0.5), matrix_text([1, 0.25]), matrix_text([[1, 2], [3, -4]]), matrix_text([[0.125]])
    ('−0.5', '(1, 0.25)', '(1, 2; 3, −4)', '0.125')
    """
    rows = matrix_rows(value)
    text = "; ".join(", ".join(row) for row in rows)
    return text if len(rows) == len(rows[0]) == 1 else f"({text})"


def readable(token: str) -> str:
    """A token with invisible characters, and those that would disturb a terminal, made visible.

    >>> readable("a\\n"), readable(""), readable(" "), readable("\\x1b[2J")
    ('a⏎', '∅', '␣', '\\\\x1b[2J')
    """
    if not token.strip(" "):
        return "␣" * len(token) or "∅"
    shown = "".join(VISIBLE.get(c) or (ascii(c)[1:-1] if unicodedata.category(c) == "Cs" else c) for c in token)
    return escape_controls(shown)


def shortened(text: str, width: int) -> str:
    """A text cut to ``width`` columns of a terminal, with … where something was cut off.

    >>> shortened("abcdef", 4), shortened("漢字漢字", 6)
    ('abc…', '漢字…')
    """
    if cell_len(text) <= width:
        return text.rstrip()
    ends = list(accumulate(cell_len(letter) for letter in text))
    return text[: sum(end < width for end in ends)] + "…"
