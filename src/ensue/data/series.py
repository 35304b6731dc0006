"""Read series from tables: columns of numbers, with or without dates, one series or many; gaps are filled.

A row is a time step. Targets are forecast, covariates are only inputs; by default all columns of numbers are targets.

Legend: N steps, C columns (targets first), S series.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ensue.core.errors import InputError
from ensue.core.wording import counted, line_numbers
from ensue.data.batches import array_digest
from ensue.data.calendar import MIN_FILLED, NO_DATES, Frequency, find_frequency, has_utc_offset
from ensue.data.lines import source_name
from ensue.data.number_tables import NumberTable, parse_column, read_number_table
from ensue.data.series_columns import SeriesOptions, choose_columns, parse_dates, series_rows
from ensue.data.tables import SAMPLE_LINES


@dataclass(frozen=True)
class Series:
    """Concatenated series without gaps."""

    names: tuple[str, ...]
    """Names of the columns, targets first."""
    targets: int
    values: np.ndarray
    """(N, C), float64."""
    observed: np.ndarray
    """(N, C): False where a missing value was filled in."""
    starts: np.ndarray
    """(S + 1,): where each series begins, and the end of the last."""
    keys: tuple[str, ...]
    """The name of each series; empty if there is one."""
    dates: np.ndarray | None = None
    """(N,), datetime64[ms]."""
    frequency: Frequency = NO_DATES

    def __len__(self) -> int:
        return len(self.values)

    @property
    def hash(self) -> str:
        """SHA-256 of all values and of where they are missing."""
        return array_digest(self.values, self.observed, self.starts)

    def spans(self) -> Iterator[tuple[int, int]]:
        """Yield where each series begins and ends."""
        yield from zip(self.starts[:-1].tolist(), self.starts[1:].tolist())


def read_series(sources: Sequence[str | Path], options: SeriesOptions, notes: list[str]) -> Series:
    """Read the series of one file, or of several files with the same columns."""
    parts = [_read_file(source, options, notes) for source in sources]
    first = parts[0]
    for source, other in zip(sources[1:], parts[1:]):
        if other.names != first.names or (other.dates is None) != (first.dates is None):
            what = f"has the columns {', '.join(other.names)}, and {source_name(sources[0])} {', '.join(first.names)}"
            raise InputError(what, where=source_name(source), hint="name columns that all files have: --target …")
        if other.frequency != first.frequency:
            whose = f"{source_name(sources[0])}, whose season is used for all, {first.frequency.description}"
            notes.append(f"{source_name(source)}: steps are {other.frequency.description}, and those of {whose}")
    if len(parts) == 1:
        return first
    ends = np.cumsum([0, *(len(part) for part in parts)])
    names = [(Path(source).name, key) for source, part in zip(sources, parts) for key in part.keys or ("",)]
    dates = [part.dates for part in parts if part.dates is not None]
    return replace(
        first,
        values=np.concatenate([part.values for part in parts]),
        observed=np.concatenate([part.observed for part in parts]),
        starts=np.concatenate([[0], *(part.starts[1:] + end for part, end in zip(parts, ends))]),
        keys=tuple(" ".join(filter(None, name)) for name in names),
        dates=np.concatenate(dates) if dates else None,
    )


def _read_file(source: str | Path, options: SeriesOptions, notes: list[str]) -> Series:
    table = read_number_table(source)
    date_columns, dates = parse_dates(table, options)
    taken = set(date_columns) | ({table.find(options.key)} if options.key else set())
    targets, covariates, unused = choose_columns(table, options, taken)
    columns = [*targets, *covariates]
    numbers = np.stack([parse_column(table, column) for column in columns], axis=1)
    names = tuple(table.names[column] for column in columns)
    for values, name in zip(numbers.T, names):
        if np.isnan(values).all():
            raise InputError(f"the column {name!r} is empty", where=table.name, hint="leave it out")
    keys, blocks = series_rows(table, options)
    ordered = [_sorted_rows(table, rows, dates, options) for rows in blocks]
    frequency = _common_frequency([dates[rows] for rows in ordered]) if dates is not None else NO_DATES
    parts = [_insert_missing(numbers[rows], dates[rows] if dates is not None else None, frequency) for rows in ordered]
    duplicate = next((name for name, count in Counter(names).items() if count > 1), None)
    if duplicate is not None:
        raise InputError(f"two columns are called {duplicate!r}", where=table.name, hint="rename one of them")
    notes.append(_describe(table, names, len(targets), date_columns, frequency, keys, unused))
    added = sum(len(values) for values, _ in parts) - len(numbers)
    if added:
        notes.append(f"{table.name}: {counted(added, 'date')} {'is' if added == 1 else 'are'} missing and became gaps")
    if any(has_utc_offset(cell) for column in date_columns for cell in table.columns[column][:SAMPLE_LINES]):
        notes.append(f"{table.name}: dates are converted to UTC, and so are those of forecasts")
    if frequency.kind == "uneven" and dates is not None:
        notes.append(f"{table.name}: the dates are not evenly spaced, so each row counts as one step")
    _note_gaps(table, numbers, columns, options.fill, notes)
    observed = [~np.isnan(values) for values, _ in parts]
    return Series(
        names=names,
        targets=len(targets),
        values=np.concatenate([fill_gaps(values, options.fill) for values, _ in parts]),
        observed=np.concatenate(observed),
        starts=np.cumsum([0, *map(len, observed)]),
        keys=keys,
        dates=np.concatenate([moments for _, moments in parts if moments is not None]) if dates is not None else None,
        frequency=frequency,
    )


def _describe(
    table: NumberTable,
    names: Sequence[str],
    targets: int,
    date_columns: Sequence[int],
    frequency: Frequency,
    keys: Sequence[str],
    unused: Sequence[str],
) -> str:
    header = "with a header" if table.header else "no header"
    named = " and ".join(repr(table.names[column]) for column in date_columns)
    dates = f"dates in {named} ({frequency.description})" if date_columns else "no dates"
    many = f", {len(keys):,} series" if keys else ""
    parts = [f"to forecast: {_shorten_list(names[:targets])}"]
    if len(names) > targets:
        parts.append(f"covariates: {_shorten_list(names[targets:])}")
    if unused:
        parts.append(f"left out: {_shorten_list(unused)}")
    rows = counted(len(table.lines), "row")
    return f"{table.name}: {table.kind}, {header}, {rows}{many}, {dates}; {'; '.join(parts)}"


def _shorten_list(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _sorted_rows(table: NumberTable, rows: np.ndarray, dates: np.ndarray | None, options: SeriesOptions) -> np.ndarray:
    """Return the rows of a series sorted by date; raise an error for unsorted or duplicate dates."""
    if dates is None:
        return rows
    if options.order == "sort":
        rows = rows[np.argsort(dates[rows], kind="stable")]
    step = np.diff(dates[rows]).astype(np.int64)
    if not (step <= 0).any():
        return rows
    index = int(np.argmax(step <= 0))
    row, previous = rows[index + 1], rows[index]
    shown, earlier = (str(dates[r].astype("datetime64[s]")).replace("T", " ") for r in (row, previous))
    if step[index] == 0:
        what, hint = f"the date {shown} occurs twice", "keep one, or name the column of series names: --set data.id=…"
    else:
        what, hint = f"the date {shown} comes after {earlier}", "sort the rows, or --set data.order=sort"
    raise InputError(what, where=table.where(int(row)), hint=hint)


def _common_frequency(blocks: Sequence[np.ndarray]) -> Frequency:
    """Return the frequency of the longest series, if it fits all."""
    frequency = find_frequency(max(blocks, key=len))
    steps = [frequency.step_numbers(dates) for dates in blocks]
    total = sum(int(numbers[-1]) + 1 for numbers in steps if numbers is not None)
    regular = all(numbers is not None for numbers in steps) and sum(map(len, blocks)) >= MIN_FILLED * total
    return frequency if regular else Frequency("uneven")


def _insert_missing(
    values: np.ndarray, dates: np.ndarray | None, frequency: Frequency
) -> tuple[np.ndarray, np.ndarray | None]:
    """Insert a row of NaN into values (N, C) for every missing date."""
    steps = frequency.step_numbers(dates) if dates is not None else None
    if steps is None or dates is None or int(steps[-1]) + 1 == len(values):
        return values, dates
    complete = np.full((int(steps[-1]) + 1, values.shape[1]), np.nan)
    complete[steps] = values
    moments = [frequency.add_steps(dates[0], step) for step in range(len(complete))]
    return complete, np.array(moments, dtype="datetime64[ms]")


def fill_gaps(values: np.ndarray, how: str) -> np.ndarray:
    """Fill the gaps of values (N, C) with the last number (forward) or linearly (interpolate).

    Gaps at the beginning take the first number.

    >>> fill_gaps(np.array([[np.nan], [1.0], [np.nan], [3.0]]), "forward").ravel().tolist()
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


def _note_gaps(table: NumberTable, numbers: np.ndarray, columns: Sequence[int], how: str, notes: list[str]) -> None:
    """Note how many numbers were missing and how they were filled."""
    method = "forward" if how == "forward" else "by interpolation"
    for column, values in zip(columns, numbers.T):
        empty = np.flatnonzero(np.isnan(values))
        if len(empty):
            lines = line_numbers([table.lines[row] for row in empty[:6]])
            what = f"{counted(len(empty), 'gap')} in {table.names[column]!r} ({lines}) filled {method}"
            notes.append(f"{table.name}: {what}; the loss ignores them")
