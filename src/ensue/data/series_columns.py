"""Assign the columns of a series table: dates, series names, targets and covariates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ensue.core.errors import InputError
from ensue.data.calendar import is_date, read_dates
from ensue.data.number_tables import NumberTable, is_missing, is_number
from ensue.data.tables import SAMPLE_LINES

ROW_NUMBER_HEADERS = frozenset(("", "no", "no.", "nr", "#", "row", "index", "unnamed: 0"))
"""Headers of a column that numbers the rows."""
DATE_PART_HEADERS = ("year", "month", "day", "hour", "minute")
"""Headers of columns that make up a date."""


@dataclass(frozen=True, kw_only=True)
class SeriesOptions:
    """How a table of series is read."""

    targets: tuple[str, ...] = ()
    """Columns to forecast, by name or number; empty for all columns of numbers."""
    covariates: tuple[str, ...] = ()
    """Input columns that are not forecast; "all" for all other columns of numbers."""
    date: str = ""
    """The column of dates; empty to detect it, "none" if there is none."""
    key: str = ""
    """The column with the name of each row's series; empty if there is one series."""
    order: str = "error"
    """What happens with unsorted dates: error or sort."""
    fill: str = "forward"
    """How gaps are filled: forward or interpolate."""


def parse_dates(table: NumberTable, options: SeriesOptions) -> tuple[list[int], np.ndarray | None]:
    """Return the columns that make up the dates, and the date of each row."""
    if options.date == "none":
        return [], None
    lower = [name.lower() for name in table.names]
    locations = [table.where(row) for row in range(len(table.lines))]
    if not options.date and {"year", "month"} <= set(lower):
        parts = [lower.index(name) for name in DATE_PART_HEADERS if name in lower]
        return parts, read_dates(_join_date_parts([table.columns[part] for part in parts]), locations)
    column = table.find(options.date) if options.date else _find_date_column(table, lower)
    if column is None:
        return [], None
    cells = [f"{cell}-01" if cell.isdecimal() and len(cell) <= 4 else cell for cell in table.columns[column]]
    return [column], read_dates(cells, locations)


def _join_date_parts(parts: Sequence[Sequence[str]]) -> list[str]:
    """Join columns of years, months, days, hours and minutes into dates."""
    cells = [[cell.zfill(2) for cell in part] for part in parts]
    days = ["-".join(day) for day in zip(*cells[:3])]
    if len(cells) < 4:
        return days
    minutes = cells[4] if len(cells) > 4 else ["00"] * len(days)
    return [f"{day} {hour}:{minute}" for day, hour, minute in zip(days, cells[3], minutes)]


def _find_date_column(table: NumberTable, lower: Sequence[str]) -> int | None:
    """Return the first column of mostly dates (others are reported with their line), or a column of years."""
    for index, column in enumerate(table.columns):
        if 2 * sum(map(is_date, column[:SAMPLE_LINES])) > len(column[:SAMPLE_LINES]):
            return index
    years = lower.index("year") if "year" in lower else None
    is_year = years is not None and all(cell.isdecimal() for cell in table.columns[years][:SAMPLE_LINES])
    return years if is_year else None


def _has_numbers(cells: Sequence[str]) -> bool:
    """Return whether most cells that are not missing are numbers."""
    present = [cell for cell in cells[:SAMPLE_LINES] if not is_missing(cell)]
    present = present or [cell for cell in cells if not is_missing(cell)]
    return 2 * sum(map(is_number, present)) > len(present)


def choose_columns(
    table: NumberTable, options: SeriesOptions, taken: set[int]
) -> tuple[list[int], list[int], list[str]]:
    """Return the columns of targets and covariates, and the names of unused columns."""
    free = [column for column in range(len(table.names)) if column not in taken]
    numeric = [column for column in free if _has_numbers(table.columns[column])]
    if len(numeric) > 1 and table.header and numeric[0] == 0 and _numbers_rows(table):
        numeric = numeric[1:]
    named = [table.find(name) for name in options.covariates if name not in ("all", "none")]
    others = set(named)
    targets = [table.find(name) for name in dict.fromkeys(options.targets)] or [n for n in numeric if n not in others]
    if not targets:
        hint = "give numbers in columns, a step a line"
        raise InputError("there is no column of numbers", where=table.name, hint=hint)
    for column in targets:
        if column in taken:
            raise InputError(f"{table.names[column]!r} cannot be forecast: it holds dates or names", where=table.name)
    candidates = numeric if "all" in options.covariates else named
    forecast = set(targets)
    covariates = [column for column in candidates if column not in forecast]
    used = {*targets, *covariates}
    unused = [table.names[column] for column in free if column not in used]
    return targets, covariates, unused


def _numbers_rows(table: NumberTable) -> bool:
    """Return whether the first column numbers the rows: 1, 2, 3 …"""
    if table.names[0].lower() not in ROW_NUMBER_HEADERS:
        return False
    first = table.columns[0][0]
    return first in ("0", "1") and table.columns[0] == [str(int(first) + n) for n in range(len(table.lines))]


def series_rows(table: NumberTable, options: SeriesOptions) -> tuple[tuple[str, ...], list[np.ndarray]]:
    """Return the names of the series, and the rows of each."""
    if not options.key:
        return (), [np.arange(len(table.lines))]
    rows: dict[str, list[int]] = {}
    for row, key in enumerate(table.columns[table.find(options.key)]):
        rows.setdefault(key, []).append(row)
    return tuple(rows), [np.array(indices) for indices in rows.values()]
