"""Which column of a table of series is what: its dates, the name of its series, what is forecast and what is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ensue.core.errors import InputError
from ensue.data.calendar import is_date, read_dates
from ensue.data.number_tables import SAMPLE, Grid, is_missing, is_number

NUMBERED = frozenset(("", "no", "no.", "nr", "#", "row", "index", "unnamed: 0"))
"""Headers of a column that numbers the rows."""
PARTS = ("year", "month", "day", "hour", "minute")
"""Headers of columns that make up a date."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a table of series is read for."""

    targets: tuple[str, ...] = ()
    """Columns to forecast, by name or number; none means all that hold numbers."""
    covariates: tuple[str, ...] = ()
    """Columns to read beside them; "all" means all others that hold numbers."""
    date: str = ""
    """The column of dates; empty means as it is found, "none" that there is none."""
    key: str = ""
    """The column that says of which series a row is; empty means that all are of one."""
    order: str = "error"
    """What dates out of order are: an error, or sorted."""
    fill: str = "forward"
    """How gaps are filled: forward, or interpolate."""


def dates_in(grid: Grid, wanted: Wanted) -> tuple[list[int], np.ndarray | None]:
    """The columns that make up the dates, and the date of each row."""
    if wanted.date == "none":
        return [], None
    small = [name.lower() for name in grid.names]
    places = [grid.where(row) for row in range(len(grid.lines))]
    if not wanted.date and {"year", "month"} <= set(small):
        parts = [small.index(name) for name in PARTS if name in small]
        return parts, read_dates(_joined([grid.columns[part] for part in parts]), places)
    column = grid.find(wanted.date) if wanted.date else _date_column(grid, small)
    if column is None:
        return [], None
    cells = [f"{cell}-01" if cell.isdecimal() and len(cell) <= 4 else cell for cell in grid.columns[column]]
    return [column], read_dates(cells, places)


def _joined(parts: Sequence[Sequence[str]]) -> list[str]:
    """Columns of years, months, days, hours and minutes as dates."""
    cells = [[cell.zfill(2) for cell in part] for part in parts]
    days = ["-".join(day) for day in zip(*cells[:3])]
    if len(cells) < 4:
        return days
    minutes = cells[4] if len(cells) > 4 else ["00"] * len(days)
    return [f"{day} {hour}:{minute}" for day, hour, minute in zip(days, cells[3], minutes)]


def _date_column(grid: Grid, small: Sequence[str]) -> int | None:
    """The first column that mostly holds dates (one that is none is then an error with its place), or one of years."""
    for place, column in enumerate(grid.columns):
        if 2 * sum(map(is_date, column[:SAMPLE])) > len(column[:SAMPLE]):
            return place
    years = small.index("year") if "year" in small else None
    return years if years is not None and all(cell.isdecimal() for cell in grid.columns[years][:SAMPLE]) else None


def _holds_numbers(cells: Sequence[str]) -> bool:
    """Whether most of what is not missing in a column is a number."""
    there = [cell for cell in cells[:SAMPLE] if not is_missing(cell)] or [
        cell for cell in cells if not is_missing(cell)
    ]
    return 2 * sum(map(is_number, there)) > len(there)


def chosen_columns(grid: Grid, wanted: Wanted, taken: set[int]) -> tuple[list[int], list[int], list[str]]:
    """The columns of targets and covariates, and the names of those that are left out."""
    free = [place for place in range(len(grid.names)) if place not in taken]
    numeric = [place for place in free if _holds_numbers(grid.columns[place])]
    if len(numeric) > 1 and grid.header and numeric[0] == 0 and _counts_rows(grid):
        numeric = numeric[1:]
    said = [grid.find(name) for name in wanted.covariates if name not in ("all", "none")]
    targets = [grid.find(name) for name in dict.fromkeys(wanted.targets)] or [n for n in numeric if n not in said]
    if not targets:
        raise InputError(
            "there is no column of numbers", where=grid.name, hint="give numbers in columns, a step a line"
        )
    for place in targets:
        if place in taken:
            raise InputError(f"{grid.names[place]!r} cannot be forecast: it holds dates or names", where=grid.name)
    beside = numeric if "all" in wanted.covariates else said
    covariates = [place for place in beside if place not in targets]
    left = [grid.names[place] for place in free if place not in {*targets, *covariates}]
    return targets, covariates, left


def _counts_rows(grid: Grid) -> bool:
    """Whether the first column only numbers the rows, by its name and what is in it: 1, 2, 3 …"""
    if grid.names[0].lower() not in NUMBERED:
        return False
    first = grid.columns[0][0]
    return first in ("0", "1") and grid.columns[0] == [str(int(first) + n) for n in range(len(grid.lines))]


def blocks_of(grid: Grid, wanted: Wanted) -> tuple[tuple[str, ...], list[np.ndarray]]:
    """The names of the series, and the rows of each."""
    if not wanted.key:
        return (), [np.arange(len(grid.lines))]
    rows: dict[str, list[int]] = {}
    for row, key in enumerate(grid.columns[grid.find(wanted.key)]):
        rows.setdefault(key, []).append(row)
    return tuple(rows), [np.array(own) for own in rows.values()]
