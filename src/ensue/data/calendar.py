"""Dates of a series: parsing, frequency detection, and the dates that follow."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ensue.core.errors import InputError

_CLOCK = r"(?:[ T]+(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d+))?)?\s*(Z|[+-]\d{2}:?\d{2})?)?$"
_YEAR_FIRST = re.compile(r"(\d{1,4})[-/.](\d{1,2})(?:[-/.](\d{1,2}))?" + _CLOCK)
_YEAR_LAST = re.compile(r"(\d{1,2})[-/.](\d{1,2})[-/.](\d{4})" + _CLOCK)
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
"""In milliseconds."""
MIN_FILLED = 0.5
"""A frequency is accepted if at least this share of its dates is present."""


def is_date(text: str) -> bool:
    """Return whether a cell is a date.

    >>> is_date("2016-07-01 00:00:00"), is_date("1949-01"), is_date("31.12.1999"), is_date("3.5")
    (True, True, True, False)
    """
    return _parse_date(text, 0) is not None or _parse_date(text, 1) is not None


def has_utc_offset(text: str) -> bool:
    """Return whether a date has a UTC offset.

    >>> has_utc_offset("2020-10-25 02:00+01:00"), has_utc_offset("2020-10-25 02:00Z"), has_utc_offset("25-10-2020")
    (True, False, False)
    """
    match = _YEAR_FIRST.match(text.strip()) or _YEAR_LAST.match(text.strip())
    return match is not None and match.groups()[-1] not in (None, "Z")


def _parse_date(text: str, order: int) -> np.datetime64 | None:
    """Parse a date; if the year comes last, ``order`` is 0 for day first and 1 for month first."""
    text = text.strip()
    match = _YEAR_FIRST.match(text)
    if match and not re.fullmatch(r"\d+\.\d+", text):
        year, month, day = match[1], match[2], match[3] or "1"
    else:
        match = _YEAR_LAST.match(text)
        if not match:
            return None
        day, month, year = (match[1], match[2], match[3]) if order == 0 else (match[2], match[1], match[3])
    hour, minute, second, fraction, zone = match.groups()[3:]
    clock = f"{int(hour or 0):02}:{minute or '00'}:{second or '00'}.{(fraction or '0')[:3]:0<3}"
    try:
        moment = np.datetime64(f"{int(year):04}-{int(month):02}-{int(day):02}T{clock}", "ms")
    except ValueError:
        return None
    if zone and zone != "Z":
        digits = zone[1:].replace(":", "")
        moment -= np.timedelta64((int(digits[:2]) * 60 + int(digits[2:])) * (1 if zone[0] == "+" else -1), "m")
    return moment


def read_dates(cells: Sequence[str], locations: Sequence[str]) -> np.ndarray:
    """Parse the dates of a column, (N,); ``locations`` are the files and lines of the cells, for errors."""
    candidates = []  # day first, month first
    for order in (0, 1):
        parsed = [_parse_date(cell, order) for cell in cells]
        if all(date is not None for date in parsed):
            candidates.append(np.array(parsed, dtype="datetime64[ms]"))
    if not candidates:
        wrong = next((row for row, cell in enumerate(cells) if not is_date(cell)), None)
        what = "dates with the day and with the month first" if wrong is None else f"{cells[wrong]!r} is not a date"
        raise InputError(what, where=locations[wrong or 0], hint="write dates as 2016-07-01 or 2016-07-01 13:00")
    if len(candidates) == 2 and not np.array_equal(candidates[0], candidates[1]):
        candidates = [dates for dates in candidates if bool((np.diff(dates) >= np.timedelta64(0)).all())]
        if len(candidates) != 1:
            what = f"{cells[0]!r} may be a day and a month, or a month and a day"
            raise InputError(what, where=locations[0], hint="write dates as 2016-07-01")
    return candidates[0]


@dataclass(frozen=True)
class Frequency:
    """The interval between the steps of a series."""

    kind: str = "none"
    """none (no dates), even, months, workdays, or uneven."""
    size: int = 0
    """Milliseconds or months per step."""

    @property
    def description(self) -> str:
        """The frequency in words.

        >>> Frequency("months", 3).description, Frequency("even", 900_000).description
        ('quarterly', 'every 15 minutes')
        """
        if self.kind == "months":
            return {1: "monthly", 3: "quarterly", 12: "yearly"}.get(self.size, f"every {self.size} months")
        if self.kind != "even":
            return {"workdays": "on weekdays", "uneven": "at uneven times"}.get(self.kind, "without dates")
        names = {SECOND: "every second", MINUTE: "every minute", HOUR: "hourly", DAY: "daily", 7 * DAY: "weekly"}
        if self.size in names:
            return names[self.size]
        units = {DAY: "days", HOUR: "hours", MINUTE: "minutes", SECOND: "seconds", 1: "milliseconds"}
        unit = next(unit for unit in units if self.size % unit == 0)
        return f"every {self.size // unit} {units[unit]}"

    @property
    def season(self) -> int:
        """Steps per season: a day of hours or minutes, a week of days, a year of weeks, months or quarters.

        >>> [Frequency("even", size).season for size in (HOUR, DAY, 7 * DAY)], Frequency("months", 1).season
        ([24, 7, 52], 12)
        """
        if self.kind == "months":
            return 12 // self.size if 12 % self.size == 0 else 1
        if self.kind == "workdays":
            return 5
        if self.kind != "even":
            return 1
        longer = (MINUTE, HOUR, DAY, 7 * DAY, 364 * DAY)
        above = {SECOND: MINUTE, MINUTE: HOUR, DAY: 7 * DAY, 7 * DAY: 364 * DAY}.get(self.size)
        above = above or next((length for length in longer if length >= 2 * self.size and length >= DAY), self.size)
        return above // self.size if above % self.size == 0 else 1

    def add_steps(self, date: np.datetime64, steps: int) -> np.datetime64 | None:
        """Return the date ``steps`` later; None if the frequency is unknown."""
        if self.kind == "even":
            return np.datetime64(date + np.timedelta64(self.size * steps, "ms"))
        if self.kind == "months":
            month = date.astype("datetime64[M]")
            later, offset = month + self.size * steps, date - month.astype("datetime64[ms]")
            if is_month_end(date) or offset >= _month_length(later):
                offset = offset % np.timedelta64(DAY, "ms") + _month_length(later) - np.timedelta64(DAY, "ms")
            return np.datetime64(later.astype("datetime64[ms]") + offset)
        if self.kind == "workdays":
            day = date.astype("datetime64[D]")
            later = np.busday_offset(day, steps)
            return np.datetime64(later.astype("datetime64[ms]") + (date - day.astype("datetime64[ms]")))
        return None

    def format(self, date: np.datetime64) -> str:
        """Format a date, no finer than its steps.

        >>> Frequency("months", 1).format(np.datetime64("1960-12-01T00:00:00.000"))
        '1960-12'
        """
        if self.kind == "months":
            return str(date.astype("datetime64[M]"))
        if self.kind == "workdays" or (self.size and self.size % DAY == 0):
            return str(date.astype("datetime64[D]"))
        return str(date.astype("datetime64[s]")).replace("T", " ")

    def step_numbers(self, dates: np.ndarray) -> np.ndarray | None:
        """Return the number of steps from the first date to each; None if dates do not fit the frequency."""
        if self.kind == "workdays":
            days = dates.astype("datetime64[D]")
            return np.asarray(np.busday_count(days[0], days), dtype=np.int64)
        if self.kind not in ("even", "months"):
            return None
        units = (dates if self.kind == "even" else dates.astype("datetime64[M]")).astype(np.int64)
        steps, rest = np.divmod(units - units[0], self.size)
        return None if rest.any() else steps


NO_DATES = Frequency()


def is_month_end(dates: Any) -> Any:
    """Return whether dates are the last day of their month.

    >>> is_month_end(np.array(["2020-02-29", "2021-03-30"], dtype="datetime64[ms]")).tolist()
    [True, False]
    """
    months = dates.astype("datetime64[M]")
    return (dates + np.timedelta64(DAY, "ms")).astype("datetime64[M]") != months


def _month_length(month: np.datetime64) -> np.timedelta64:
    length: np.timedelta64 = (month + 1).astype("datetime64[ms]") - month.astype("datetime64[ms]")
    return length


def find_frequency(dates: np.ndarray) -> Frequency:
    """Detect the frequency of sorted dates (N,): the most common interval, if all dates fit it.

    >>> find_frequency(np.array(["1949-01", "1949-02", "1949-03"], dtype="datetime64[ms]")).description
    'monthly'
    """
    if len(dates) < 3:
        return Frequency("uneven")
    months = dates.astype("datetime64[M]")
    offset = dates - months.astype("datetime64[ms]")
    step = Counter(np.diff(months.astype(np.int64)).tolist()).most_common(1)[0][0]
    if step > 0 and ((offset == offset[0]).all() or is_month_end(dates).all()):
        return _if_regular(Frequency("months", step), dates)
    days = dates.astype("datetime64[D]")
    size = Counter(np.diff(dates.astype(np.int64)).tolist()).most_common(1)[0][0]
    if size == DAY and np.is_busday(days).all() and len(dates) > 5:
        return _if_regular(Frequency("workdays", DAY), dates)
    return _if_regular(Frequency("even", size), dates) if size > 0 else Frequency("uneven")


def _if_regular(frequency: Frequency, dates: np.ndarray) -> Frequency:
    """Return ``frequency`` if the dates fit it and enough are present, else uneven."""
    steps = frequency.step_numbers(dates)
    if steps is None or len(dates) < MIN_FILLED * (int(steps[-1]) + 1):
        return Frequency("uneven")
    return frequency
