"""Series out of tables: columns of numbers, with dates or without, one series or many; gaps are found and filled.

A row is a step in time. Which columns are forecast (targets) and which are only read (covariates) is said, or all
columns of numbers are targets. Files may be compressed; tabs, commas or semicolons, a header or none are detected.

Legend: N steps, C columns (targets first), S series.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path

import numpy as np

from ensue.core.errors import InputError, unknown_name
from ensue.core.wording import counted, line_numbers
from ensue.data.calendar import NO_DATES, SPARSE, Frequency, find_frequency, is_date, is_shifted, read_dates
from ensue.data.lines import read_lines, source_name

SAMPLE = 200
"""So many lines are looked at before it is said what the columns are."""
LARGEST = 1e100
"""Squares of larger numbers cannot be added up."""
MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "-", "?", "."))
"""What stands where a number is missing, in small letters."""
MARKS = {"tab-separated": "\t", "semicolon-separated": ";", "comma-separated": ","}
"""What may stand between columns, in the order it is looked for."""
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
    """Columns to read beside them; none means all others that hold numbers, "none" that there is none."""
    date: str = ""
    """The column of dates; empty means as it is found, "none" that there is none."""
    key: str = ""
    """The column that says of which series a row is; empty means that all are of one."""
    order: str = "error"
    """What dates out of order are: an error, or sorted."""
    fill: str = "forward"
    """How gaps are filled: forward, or interpolate."""


@dataclass(frozen=True)
class Series:
    """Series one after the other, their gaps filled."""

    names: tuple[str, ...]
    """Of the columns, targets first."""
    targets: int
    values: np.ndarray
    """(N, C), float64."""
    real: np.ndarray
    """(N, C): false where a number was missing and was filled in."""
    at: np.ndarray
    """(S + 1,): where each series begins, and the end of the last."""
    keys: tuple[str, ...]
    """What each series is called; empty where there is one."""
    dates: np.ndarray | None = None
    """(N,), datetime64[ms]."""
    frequency: Frequency = NO_DATES

    def __len__(self) -> int:
        return len(self.values)

    @property
    def hash(self) -> str:
        """Of all numbers, and where they are missing."""
        return digest(self.values, self.real, self.at)

    def parts(self) -> Iterator[tuple[int, int]]:
        """Where each series begins and ends."""
        yield from zip(self.at[:-1].tolist(), self.at[1:].tolist())


def digest(*arrays: np.ndarray) -> str:
    """The SHA-256 of arrays."""
    whole = hashlib.sha256()
    for array in arrays:
        whole.update(np.ascontiguousarray(array).tobytes())
    return whole.hexdigest()


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


def read_series(sources: Sequence[str | Path], wanted: Wanted, notes: list[str]) -> Series:
    """The series of one file, or of several with the same columns, one after the other."""
    found = [_read_file(source, wanted, notes) for source in sources]
    first = found[0]
    for source, other in zip(sources[1:], found[1:]):
        if other.names != first.names or (other.dates is None) != (first.dates is None):
            what = f"has the columns {', '.join(other.names)}, and {source_name(sources[0])} {', '.join(first.names)}"
            raise InputError(what, where=source_name(source), mend="name columns that all files have: --target …")
        if other.frequency != first.frequency:
            whose = f"{source_name(sources[0])}, whose season is taken for all, {first.frequency.spoken}"
            notes.append(f"{source_name(source)}: steps are {other.frequency.spoken}, and those of {whose}")
    if len(found) == 1:
        return first
    ends = np.cumsum([0, *(len(one) for one in found)])
    keys = tuple(
        " ".join(filter(None, (Path(source).name, key)))
        for source, one in zip(sources, found)
        for key in one.keys or ("",)
    )
    return replace(
        first,
        values=np.concatenate([one.values for one in found]),
        real=np.concatenate([one.real for one in found]),
        at=np.concatenate([[0], *(one.at[1:] + end for one, end in zip(found, ends))]),
        keys=keys,
        dates=np.concatenate([one.dates for one in found if one.dates is not None])
        if first.dates is not None
        else None,
    )


def _read_file(source: str | Path, wanted: Wanted, notes: list[str]) -> Series:
    """The series of one file."""
    grid = _grid(source)
    dated, dates = _dates(grid, wanted)
    taken = set(dated) | ({grid.find(wanted.key)} if wanted.key else set())
    targets, covariates, left = _chosen(grid, wanted, taken)
    chosen = [*targets, *covariates]
    numbers = np.stack([_numbers(grid, column) for column in chosen], axis=1)
    for column, name in zip(numbers.T, (grid.names[place] for place in chosen)):
        if np.isnan(column).all():
            raise InputError(f"the column {name!r} is empty", where=grid.name, mend="leave it out")
    keys, blocks = _blocks(grid, wanted)
    pieces = [_in_order(grid, rows, dates, wanted) for rows in blocks]
    frequency = _frequency([dates[rows] for rows in pieces]) if dates is not None else NO_DATES
    made = [_even(numbers[rows], dates[rows] if dates is not None else None, frequency) for rows in pieces]
    names = tuple(grid.names[place] for place in chosen)
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        raise InputError(f"two columns are called {twice!r}", where=grid.name, mend="give each a name of its own")
    added = sum(len(values) for values, _ in made) - len(numbers)
    notes.append(_understood(grid, names, len(targets), dated, frequency, keys, left))
    if added:
        notes.append(f"{grid.name}: {counted(added, 'date')} {'is' if added == 1 else 'are'} missing and became gaps")
    if any(is_shifted(cell) for place in dated for cell in grid.columns[place][:SAMPLE]):
        notes.append(f"{grid.name}: dates are taken to UTC, and so are those of forecasts")
    if frequency.kind == "uneven" and dates is not None:
        notes.append(f"{grid.name}: the dates are not evenly spaced, so steps are taken as they come")
    real = [~np.isnan(values) for values, _ in made]
    _tell_gaps(grid, numbers, chosen, wanted.fill, notes)
    return Series(
        names=names,
        targets=len(targets),
        values=np.concatenate([filled(values, wanted.fill) for values, _ in made]),
        real=np.concatenate(real),
        at=np.cumsum([0, *(len(one) for one in real)]),
        keys=keys,
        dates=np.concatenate([moments for _, moments in made if moments is not None]) if dates is not None else None,
        frequency=frequency,
    )


# How the table is cut into cells.


def _grid(source: str | Path) -> Grid:
    """The cells of a file, whatever stands between them."""
    name = source_name(source)
    lines = read_lines(source)
    start = list(islice(lines, SAMPLE))
    full = [line for line in start if line.strip()]
    if not full:
        raise InputError("there is no series in this file", where=name, mend="give numbers in columns, a step a line")
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
            raise InputError("lines end in CR alone", where=place, mend="end them in LF or CR LF") from error
        raise InputError(f"cannot be read as a table ({error})", where=place) from error
    width = len(rows[0])
    for row, number in zip(rows, numbers):
        if len(row) != width:
            what = f"{counted(len(row), 'column')} where the first line has {width}"
            raise InputError(what, where=f"{name}:{number}", mend="give all lines the same columns")
    header = any(not _is_number(cell) and not is_date(cell) for cell in rows[0])
    names = rows[0] if header else [str(n + 1) for n in range(width)]
    body = rows[1:] if header else rows
    if not body:
        raise InputError("there is nothing under the header", where=name, mend="give numbers in columns, a step a line")
    if mark == ";":
        body = [[cell.replace(",", ".") if cell.count(",") == 1 else cell for cell in row] for row in body]
    columns = [list(column) for column in zip(*body)]
    return Grid(name, kind, header, names, numbers[1:] if header else numbers, columns)


def _is_missing(cell: str) -> bool:
    return cell.lower() in MISSING


def _is_number(cell: str) -> bool:
    """Whether a cell holds a number, or nothing where one could be."""
    if _is_missing(cell):
        return True
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _numbers(grid: Grid, column: int) -> np.ndarray:
    """A column as numbers, NaN where one is missing."""
    result = np.full(len(grid.lines), np.nan)
    for row, cell in enumerate(grid.columns[column]):
        if _is_missing(cell):
            continue
        try:
            result[row] = float(cell)
        except ValueError:
            result[row] = np.inf
        if LARGEST < abs(result[row]) < np.inf:
            raise InputError(f"{cell} is too large to compute with", where=grid.where(row, column))
        if not np.isfinite(result[row]):
            mend = "mend it, leave it empty for a gap, or name other columns with --target and data.covariates"
            raise InputError(f"{cell!r} is not a number", where=grid.where(row, column), mend=mend)
    return result


# Which column is what.


def _dates(grid: Grid, wanted: Wanted) -> tuple[list[int], np.ndarray | None]:
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
    there = [cell for cell in cells[:SAMPLE] if not _is_missing(cell)] or [
        cell for cell in cells if not _is_missing(cell)
    ]
    return 2 * sum(map(_is_number, there)) > len(there)


def _chosen(grid: Grid, wanted: Wanted, taken: set[int]) -> tuple[list[int], list[int], list[str]]:
    """The columns of targets and covariates, and the names of those that are left out."""
    free = [place for place in range(len(grid.names)) if place not in taken]
    numeric = [place for place in free if _holds_numbers(grid.columns[place])]
    if len(numeric) > 1 and grid.header and numeric[0] == 0 and _counts_rows(grid):
        numeric = numeric[1:]
    said = [grid.find(name) for name in wanted.covariates if name != "none"]
    targets = [grid.find(name) for name in dict.fromkeys(wanted.targets)] or [n for n in numeric if n not in said]
    if not targets:
        raise InputError(
            "there is no column of numbers", where=grid.name, mend="give numbers in columns, a step a line"
        )
    for place in targets:
        if place in taken:
            raise InputError(f"{grid.names[place]!r} cannot be forecast: it holds dates or names", where=grid.name)
    covariates = [place for place in (said if wanted.covariates else numeric) if place not in targets]
    left = [grid.names[place] for place in free if place not in {*targets, *covariates}]
    return targets, covariates, left


def _counts_rows(grid: Grid) -> bool:
    """Whether the first column only numbers the rows, by its name and what is in it: 1, 2, 3 …"""
    if grid.names[0].lower() not in NUMBERED:
        return False
    first = grid.columns[0][0]
    return first in ("0", "1") and grid.columns[0] == [str(int(first) + n) for n in range(len(grid.lines))]


def _blocks(grid: Grid, wanted: Wanted) -> tuple[tuple[str, ...], list[np.ndarray]]:
    """The names of the series, and the rows of each."""
    if not wanted.key:
        return (), [np.arange(len(grid.lines))]
    rows: dict[str, list[int]] = {}
    for row, key in enumerate(grid.columns[grid.find(wanted.key)]):
        rows.setdefault(key, []).append(row)
    return tuple(rows), [np.array(own) for own in rows.values()]


def _understood(
    grid: Grid,
    names: Sequence[str],
    targets: int,
    dated: Sequence[int],
    frequency: Frequency,
    keys: Sequence[str],
    left: Sequence[str],
) -> str:
    """One sentence on what a file was taken for."""
    header = "with a header" if grid.header else "no header"
    dates = f"dates in {' and '.join(repr(grid.names[n]) for n in dated)} ({frequency.spoken})" if dated else "no dates"
    many = f", {len(keys):,} series" if keys else ""
    parts = [f"to forecast: {_listed(names[:targets])}"]
    if len(names) > targets:
        parts.append(f"read beside: {_listed(names[targets:])}")
    if left:
        parts.append(f"left out: {_listed(left)}")
    rows = counted(len(grid.lines), "row")
    return f"{grid.name}: {grid.kind}, {header}, {rows}{many}, {dates}; {'; '.join(parts)}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


# Steps in order, on an even grid, without gaps.


def _in_order(grid: Grid, rows: np.ndarray, dates: np.ndarray | None, wanted: Wanted) -> np.ndarray:
    """The rows of a series in the order of their dates; a date that stands wrong or twice is an error."""
    if dates is None:
        return rows
    if wanted.order == "sort":
        rows = rows[np.argsort(dates[rows], kind="stable")]
    step = np.diff(dates[rows]).astype(np.int64)
    if not (step <= 0).any():
        return rows
    place = int(np.argmax(step <= 0))
    own, before = rows[place + 1], rows[place]
    shown, earlier = (str(dates[row].astype("datetime64[s]")).replace("T", " ") for row in (own, before))
    if step[place] == 0:
        what, mend = (
            f"the date {shown} stands twice",
            "keep one, or say which column tells series apart: --set data.id=…",
        )
    else:
        what, mend = f"the date {shown} stands after {earlier}", "sort the rows, or --set data.order=sort"
    raise InputError(what, where=grid.where(int(own)), mend=mend)


def _frequency(blocks: Sequence[np.ndarray]) -> Frequency:
    """The frequency that the longest series has, where it suits all."""
    found = find_frequency(max(blocks, key=len))
    places = [found.places(one) for one in blocks]
    steps = sum(int(own[-1]) + 1 for own in places if own is not None)
    even = all(own is not None for own in places) and sum(map(len, blocks)) >= SPARSE * steps
    return found if even else Frequency("uneven")


def _even(values: np.ndarray, dates: np.ndarray | None, frequency: Frequency) -> tuple[np.ndarray, np.ndarray | None]:
    """Values (N, C) with a row of NaN for every date that is missing."""
    places = frequency.places(dates) if dates is not None else None
    if places is None or dates is None or int(places[-1]) + 1 == len(values):
        return values, dates
    wide = np.full((int(places[-1]) + 1, values.shape[1]), np.nan)
    wide[places] = values
    moments = [frequency.after(dates[0], step) for step in range(len(wide))]
    return wide, np.array(moments, dtype="datetime64[ms]")


def filled(values: np.ndarray, how: str) -> np.ndarray:
    """Values (N, C) without gaps: the last number goes on (forward), or a line joins both sides (interpolate).

    What is missing at the beginning takes the first number there is.

    >>> filled(np.array([[np.nan], [1.0], [np.nan], [3.0]]), "forward").ravel().tolist()
    [1.0, 1.0, 1.0, 3.0]
    """
    result = values.copy()
    for column in result.T:
        known = np.flatnonzero(~np.isnan(column))
        if len(known) == len(column):
            continue
        if not len(known):
            column[:] = 0.0
        elif how == "interpolate":
            column[:] = np.interp(np.arange(len(column)), known, column[known])
        else:
            before = np.searchsorted(known, np.arange(len(column)), side="right") - 1
            column[:] = column[known[np.maximum(before, 0)]]
    return result


def _tell_gaps(grid: Grid, numbers: np.ndarray, chosen: Sequence[int], how: str, notes: list[str]) -> None:
    """Say how many numbers were missing, and how they were filled in."""
    way = "forward" if how == "forward" else "by lines between their neighbours"
    for place, column in zip(chosen, numbers.T):
        empty = np.flatnonzero(np.isnan(column))
        if len(empty):
            lines = line_numbers([grid.lines[row] for row in empty[:6]])
            what = f"{counted(len(empty), 'gap')} in {grid.names[place]!r} ({lines}) filled {way}"
            notes.append(f"{grid.name}: {what}; the loss does not count them")
