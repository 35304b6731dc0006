"""What commands print: one JSON object for programs, lines and tables for people."""

from __future__ import annotations

import json
import math
import sys
from typing import Any


def emit(value: Any) -> None:
    """One JSON object on standard output; a number that is not finite is null."""
    sys.stdout.write(json.dumps(_finite(value), ensure_ascii=False, allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def say(text: str = "", end: str = "\n") -> None:
    """A line for people on standard output."""
    sys.stdout.write(text + end)


def show(picture: Any) -> None:
    """Something that rich draws, on standard output."""
    from rich.console import Console

    Console(file=sys.stdout, highlight=False, markup=False, emoji=False).print(picture)


def table(columns: list[str], rows: list[list[str]]) -> None:
    """A table for people: the first column to the left, the others to the right."""
    widths = [max(len(str(line[i])) for line in [columns, *rows]) for i in range(len(columns))]
    for line in [columns, ["─" * width for width in widths], *rows]:
        cells = [str(cell).ljust(w) if i == 0 else str(cell).rjust(w) for i, (cell, w) in enumerate(zip(line, widths))]
        say("  ".join(cells).rstrip())
