"""The cells of a table of numbers, whatever stands between its columns.

Files may be compressed; tabs, commas or semicolons, a header or none are detected.
"""

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
from ensue.data.waves import WAVES

SAMPLE = 200
"""So many lines are looked at before it is said what the columns are."""
LARGEST = 1e100
"""Squares of larger numbers cannot be added up."""
MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "-", "?", "."))
"""What stands where a number is missing, in small letters."""
MARKS = {"tab-separated": "\t", "semicolon-separated": ";", "comma-separated": ","}
"""What may stand between columns, in the order it is looked for."""


@dataclass(frozen=True)
class Grid:
    """The cells of a table."""

    name: str
    """Of the file, for errors and notes."""
    kind: str
    header: bool
    names: list[str]
    lines: list[int]
    """The number of each row in its file."""
    columns: list[list[str]]
    """The cells, column by column, without the header."""

    def where(self, row: int, column: int | None = None) -> str:
        """A place for errors."""
        place = f"{self.name}:{self.lines[row]}"
        return place if column is None else f"{place}, column {self.names[column]!r}"

    def find(self, wanted: str) -> int:
        """A column by its name, or its number from 1."""
        if wanted in self.names:
            return self.names.index(wanted)
        small = [name.lower() for name in self.names]
        if wanted.lower() in small:
            return small.index(wanted.lower())
        if wanted.isdecimal() and 0 < int(wanted) <= len(self.names):
            return int(wanted) - 1
        error = unknown_name("column", wanted, self.names)
        raise InputError(str(error), where=self.name)


def read_grid(source: str | Path) -> Grid:
    """The cells of a file, whatever stands between them."""
    name = source_name(source)
    lines = read_lines(source, (WAVES,))
    start = list(islice(lines, SAMPLE))
    full = [line for line in start if line.strip()]
    if not full:
        raise InputError("there is no series in this file", where=name, hint="give numbers in columns, a step a line")
    kind, mark = next(
        (found for found in MARKS.items() if found[1] in full[0] and 2 * sum(found[1] in x for x in full) > len(full)),
        ("one column", "\t"),
    )
    rows, numbers = [], []
    reader = csv.reader((line + "\n" for line in chain(start, lines)), delimiter=mark)
    try:
        for cells in reader:
            if "".join(cells).strip():
                rows.append([cell.strip() for cell in cells])
                numbers.append(reader.line_num)
    except csv.Error as error:
        place = f"{name}:{reader.line_num}"
        if "\r" in full[0]:
            raise InputError("lines end in CR alone", where=place, hint="end them in LF or CR LF") from error
        raise InputError(f"cannot be read as a table ({error})", where=place) from error
    width = len(rows[0])
    for row, number in zip(rows, numbers):
        if len(row) != width:
            what = f"{counted(len(row), 'column')} where the first line has {width}"
            raise InputError(what, where=f"{name}:{number}", hint="give all lines the same columns")
    header = any(not is_number(cell) and not is_date(cell) for cell in rows[0])
    names = rows[0] if header else [str(n + 1) for n in range(width)]
    body = rows[1:] if header else rows
    if not body:
        raise InputError("there is nothing under the header", where=name, hint="give numbers in columns, a step a line")
    if mark == ";":
        body = [[cell.replace(",", ".") if cell.count(",") == 1 else cell for cell in row] for row in body]
    columns = [list(column) for column in zip(*body)]
    return Grid(name, kind, header, names, numbers[1:] if header else numbers, columns)


def is_missing(cell: str) -> bool:
    """Whether a cell says that there is no number."""
    return cell.lower() in MISSING


def is_number(cell: str) -> bool:
    """Whether a cell holds a number, or nothing where one could be."""
    if is_missing(cell):
        return True
    try:
        float(cell)
    except ValueError:
        return False
    return True


def numbers_in(grid: Grid, column: int) -> np.ndarray:
    """A column as numbers, NaN where one is missing."""
    result = np.full(len(grid.lines), np.nan)
    for row, cell in enumerate(grid.columns[column]):
        if is_missing(cell):
            continue
        try:
            result[row] = float(cell)
        except ValueError:
            result[row] = np.inf
        if LARGEST < abs(result[row]) < np.inf:
            raise InputError(f"{cell} is too large to compute with", where=grid.where(row, column))
        if not np.isfinite(result[row]):
            hint = "hint it, leave it empty for a gap, or name other columns with --target and data.covariates"
            raise InputError(f"{cell!r} is not a number", where=grid.where(row, column), hint=hint)
    return result
