"""Read the cells of a table of numbers; the delimiter and the header are detected."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np

from ensue.core.errors import InputError, unknown_name
from ensue.core.wording import counted
from ensue.data.calendar import is_date
from ensue.data.lines import read_lines, source_name
from ensue.data.tables import MAX_DIGITS, SAMPLE_LINES
from ensue.data.waves import WAVES

MAX_VALUE = 1e100
"""Sums of squares of larger numbers overflow."""
MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "-", "?", "."))
"""Cells that stand for a missing number, in lower case."""
DELIMITERS = {"tab-separated": "\t", "semicolon-separated": ";", "comma-separated": ","}
"""In the order they are tried."""


@dataclass(frozen=True)
class NumberTable:
    """The cells of a table."""

    name: str
    """The file, for errors and notes."""
    kind: str
    header: bool
    names: list[str]
    lines: list[int]
    """The line of each row in the file."""
    columns: list[list[str]]
    """The cells by column, without the header."""

    def where(self, row: int, column: int | None = None) -> str:
        """Return a row's file and line, for errors."""
        line = f"{self.name}:{self.lines[row]}"
        return line if column is None else f"{line}, column {self.names[column]!r}"

    def find(self, wanted: str) -> int:
        """Return the index of a column, given by name or by number from 1."""
        if wanted in self.names:
            return self.names.index(wanted)
        lower = [name.lower() for name in self.names]
        if wanted.lower() in lower:
            return lower.index(wanted.lower())
        if wanted.isdecimal() and len(wanted) <= MAX_DIGITS and 0 < int(wanted) <= len(self.names):
            return int(wanted) - 1
        raise InputError(str(unknown_name("column", wanted, self.names)), where=self.name)


def read_number_table(source: str | Path) -> NumberTable:
    """Read a table with tabs, commas or semicolons between its columns."""
    name = source_name(source)
    lines = read_lines(source, (WAVES,))
    start = list(islice(lines, SAMPLE_LINES))
    full = [line for line in start if line.strip()]
    if not full:
        raise InputError("there is no series in this file", where=name, hint="give numbers in columns, a step a line")
    kind, delimiter = _detect_delimiter(full)
    rows, numbers = [], []
    reader = csv.reader((line + "\n" for line in chain(start, lines)), delimiter=delimiter)
    try:
        for cells in reader:
            if "".join(cells).strip():
                rows.append([cell.strip() for cell in cells])
                numbers.append(reader.line_num)
    except csv.Error as error:
        where = f"{name}:{reader.line_num}"
        if "\r" in full[0]:
            raise InputError("lines end in CR alone", where=where, hint="end them in LF or CR LF") from error
        raise InputError(f"cannot be read as a table ({error})", where=where) from error
    width = len(rows[0])
    for row, number in zip(rows, numbers):
        if len(row) != width:
            what = f"{counted(len(row), 'column')} where the first line has {width}"
            raise InputError(what, where=f"{name}:{number}", hint="give all lines the same columns")
    header = any(not is_number(cell) and not is_date(cell) for cell in rows[0])
    names = rows[0] if header else [str(n + 1) for n in range(width)]
    body, numbers = (rows[1:], numbers[1:]) if header else (rows, numbers)
    if not body:
        raise InputError("there is nothing under the header", where=name, hint="give numbers in columns, a step a line")
    if delimiter == ";":  # decimal commas
        body = [[cell.replace(",", ".") if cell.count(",") == 1 else cell for cell in row] for row in body]
    return NumberTable(name, kind, header, names, numbers, [list(column) for column in zip(*body)])


def _detect_delimiter(lines: list[str]) -> tuple[str, str]:
    """Return the first delimiter that the first line and most lines contain."""
    for kind, delimiter in DELIMITERS.items():
        if delimiter in lines[0] and 2 * sum(delimiter in line for line in lines) > len(lines):
            return kind, delimiter
    return "one column", "\t"


def is_missing(cell: str) -> bool:
    """Return whether a cell stands for a missing number."""
    return cell.lower() in MISSING


def is_number(cell: str) -> bool:
    """Return whether a cell is a number or missing."""
    if is_missing(cell):
        return True
    try:
        float(cell)
    except ValueError:
        return False
    return True


def parse_column(table: NumberTable, column: int) -> np.ndarray:
    """Parse a column as numbers, NaN where one is missing."""
    result = np.full(len(table.lines), np.nan)
    for row, cell in enumerate(table.columns[column]):
        if is_missing(cell):
            continue
        try:
            result[row] = float(cell)
        except ValueError:
            result[row] = np.inf
        if MAX_VALUE < abs(result[row]) < np.inf:
            raise InputError(f"{cell} is too large to compute with", where=table.where(row, column))
        if not np.isfinite(result[row]):
            hint = "correct it, leave it empty for a gap, or name other columns with --target and data.covariates"
            raise InputError(f"{cell!r} is not a number", where=table.where(row, column), hint=hint)
    return result
