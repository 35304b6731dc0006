"""Series out of tables: columns of numbers, with dates or without, one series or many; gaps are found and filled.

A row is a step in time. Which columns are forecast (targets) and which are only read (covariates) is said, or all
columns of numbers are targets.

Legend: N steps, C columns (targets first), S series.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ensue.core.errors import InputError
from ensue.core.wording import counted, line_numbers
from ensue.data.calendar import NO_DATES, SPARSE, Frequency, find_frequency, is_shifted
from ensue.data.lines import source_name
from ensue.data.number_tables import SAMPLE, Grid, numbers_in, read_grid
from ensue.data.series_columns import Wanted, blocks_of, chosen_columns, dates_in


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


def read_series(sources: Sequence[str | Path], wanted: Wanted, notes: list[str]) -> Series:
    """The series of one file, or of several with the same columns, one after the other."""
    found = [_read_file(source, wanted, notes) for source in sources]
    first = found[0]
    for source, other in zip(sources[1:], found[1:]):
        if other.names != first.names or (other.dates is None) != (first.dates is None):
            what = f"has the columns {', '.join(other.names)}, and {source_name(sources[0])} {', '.join(first.names)}"
            raise InputError(what, where=source_name(source), hint="name columns that all files have: --target …")
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
    grid = read_grid(source)
    dated, dates = dates_in(grid, wanted)
    taken = set(dated) | ({grid.find(wanted.key)} if wanted.key else set())
    targets, covariates, left = chosen_columns(grid, wanted, taken)
    chosen = [*targets, *covariates]
    numbers = np.stack([numbers_in(grid, column) for column in chosen], axis=1)
    for column, name in zip(numbers.T, (grid.names[place] for place in chosen)):
        if np.isnan(column).all():
            raise InputError(f"the column {name!r} is empty", where=grid.name, hint="leave it out")
    keys, blocks = blocks_of(grid, wanted)
    pieces = [_in_order(grid, rows, dates, wanted) for rows in blocks]
    frequency = _frequency([dates[rows] for rows in pieces]) if dates is not None else NO_DATES
    made = [_even(numbers[rows], dates[rows] if dates is not None else None, frequency) for rows in pieces]
    names = tuple(grid.names[place] for place in chosen)
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        raise InputError(f"two columns are called {twice!r}", where=grid.name, hint="give each a name of its own")
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
        what, hint = (
            f"the date {shown} stands twice",
            "keep one, or say which column tells series apart: --set data.id=…",
        )
    else:
        what, hint = f"the date {shown} stands after {earlier}", "sort the rows, or --set data.order=sort"
    raise InputError(what, where=grid.where(int(own)), hint=hint)


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
