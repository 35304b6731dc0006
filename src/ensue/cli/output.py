"""Writing to standard output and standard error: JSON for programs, lines and tables for people.

Control and bidi characters of data are escaped on a terminal, and always on standard error. What is piped stays as it
is, except that a field of a line has no line break (see ``ensue.core.escapes``).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

from ensue.core.escapes import escape_controls, escape_json
from ensue.core.files import finite
from ensue.core.wording import table_lines

INTERRUPTED = 130
"""The exit code of a program that Ctrl-C ended."""


def print_json(value: Any) -> None:
    """Print one JSON object; non-finite numbers become null."""
    sys.stdout.write(escape_json(json.dumps(finite(value), ensure_ascii=False, allow_nan=False)) + "\n")


def print_line(text: str = "", end: str = "\n") -> None:
    """Print a text and a line end; on a terminal with control characters escaped, except line ends and tabs."""
    sys.stdout.write((escape_controls(text, keep="\n\t") if sys.stdout.isatty() else text) + end)


def warn(text: str, keep: str = "") -> None:
    """Print a line to standard error, if it is open, with all control characters escaped but those in ``keep``."""
    if sys.stderr is not None:
        sys.stderr.write(escape_controls(text, keep) + "\n")


def print_lines(lines: Iterable[str]) -> None:
    """Print several lines."""
    for line in lines:
        print_line(line)


def print_rich(renderable: Any) -> None:
    """Print something that rich renders."""
    from rich.console import Console

    Console(file=sys.stdout, highlight=False, markup=False, emoji=False).print(renderable)


def print_bar(value: float, largest: float, label: str, width: int = 40) -> None:
    """Print a number, a bar in proportion to ``largest``, and a label, which is a token or a word."""
    bar = "█" * max(1, round(width * abs(value) / largest))
    print_line(f"{value:7.4f}  {bar}  {escape_controls(label)}")


def print_table(columns: list[str], rows: list[list[str]]) -> None:
    """Print a table; the first column is left-aligned, the others are right-aligned."""
    print_lines(table_lines(columns, rows))
