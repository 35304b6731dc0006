"""Writing to standard output: JSON for programs, lines and tables for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

from ensue.core.files import finite
from ensue.core.wording import table_lines


def print_json(value: Any) -> None:
    """Print one JSON object; non-finite numbers become null."""
    sys.stdout.write(json.dumps(finite(value), ensure_ascii=False, allow_nan=False) + "\n")


def print_line(text: str = "", end: str = "\n") -> None:
    """Print a line."""
    sys.stdout.write(text + end)


def print_lines(lines: Iterable[str]) -> None:
    """Print several lines."""
    for line in lines:
        print_line(line)


def print_rich(renderable: Any) -> None:
    """Print something that rich renders."""
    from rich.console import Console

    Console(file=sys.stdout, highlight=False, markup=False, emoji=False).print(renderable)


def print_bar(value: float, largest: float, label: str, width: int = 40) -> None:
    """Print a number, a bar in proportion to ``largest``, and a label."""
    print_line(f"{value:7.4f}  {'█' * max(1, round(width * abs(value) / largest))}  {label}")


def print_table(columns: list[str], rows: list[list[str]]) -> None:
    """Print a table; the first column is left-aligned, the others are right-aligned."""
    print_lines(table_lines(columns, rows))
