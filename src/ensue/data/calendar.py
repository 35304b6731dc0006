"""Dates of a series: how they are written, how far apart they stand, and what comes next."""

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
SPARSE = 0.5
"""Where more than this share of the rows of a grid is missing, there is no such grid."""
SAMPLE = 200


def is_date(text: str) -> bool:
    """Whether a cell is written as a date.

    >>> is_date("2016-07-01 00:00:00"), is_date("1949-01"), is_date("31.12.1999"), is_date("3.5")
    (True, True, True, False)
    """
    return _read(text, 0) is not None or _read(text, 1) is not None


def is_shifted(text: str) -> bool:
    """Whether a date says how far its clock is from UTC.

    >>> is_shifted("2020-10-25 02:00+01:00"), is_shifted("2020-10-25 02:00Z"), is_shifted("25-10-2020")
    (True, False, False)
    """
    found = _YEAR_FIRST.match(text.strip()) or _YEAR_LAST.match(text.strip())
    return found is not None and found.groups()[-1] not in (None, "Z")


def _read(text: str, order: int) -> np.datetime64 | None:
    """A date; where the year stands last, ``order`` 0 means that the day stands first and 1 that the month does."""
    text = text.strip()
    found = _YEAR_FIRST.match(text)
    if found and not re.fullmatch(r"\d+\.\d+", text):
        year, month, day = found[1], found[2], found[3] or "1"
    else:
        found = _YEAR_LAST.match(text)
        if not found:
            return None
        day, month, year = (found[1], found[2], found[3]) if order == 0 else (found[2], found[1], found[3])
    hour, minute, second, part, zone = found.groups()[3:]
    clock = f"{int(hour or 0):02}:{minute or '00'}:{second or '00'}.{(part or '0')[:3]:0<3}"
    try:
        moment = np.datetime64(f"{int(year):04}-{int(month):02}-{int(day):02}T{clock}", "ms")
    except ValueError:
        return None
    if zone and zone != "Z":
        digits = zone[1:].replace(":", "")
        moment -= np.timedelta64((int(digits[:2]) * 60 + int(digits[2:])) * (1 if zone[0] == "+" else -1), "m")
    return moment


def read_dates(cells: Sequence[str], places: Sequence[str]) -> np.ndarray:
    """The dates of a column, (N,); ``places`` says where each cell stands, for errors."""
    both = []
    for order in (0, 1):
        found = [_read(cell, order) for cell in cells]
        if all(one is not None for one in found):
            both.append(np.array(found, dtype="datetime64[ms]"))
    if not both:
        place = next(n for n, cell in enumerate(cells) if not is_date(cell)) if not all(map(is_date, cells)) else 0
        what = (
            f"{cells[place]!r} is no date"
            if not is_date(cells[place])
            else "dates with the day and with the month first"
        )
        raise InputError(what, where=places[place], hint="write dates as 2016-07-01 or 2016-07-01 13:00")
    if len(both) == 2 and not np.array_equal(both[0], both[1]):
        both = [dates for dates in both if bool((np.diff(dates) >= np.timedelta64(0)).all())]
        if len(both) != 1:
            what = f"{cells[0]!r} may be a day and a month, or a month and a day"
            raise InputError(what, where=places[0], hint="write dates as 2016-07-01")
    return both[0]


@dataclass(frozen=True)
class Frequency:
    """How far apart the steps of a series stand."""

    kind: str = "none"
    """none (there are no dates), even, months, workdays, or uneven."""
    size: int = 0
    """Milliseconds of a step, or months."""

    @property
    def spoken(self) -> str:
        """For people.

        >>> Frequency("even", HOUR).spoken, Frequency("months", 3).spoken, Frequency("even", 900_000).spoken
        ('hourly', 'quarterly', 'every 15 minutes')
        """
        if self.kind == "months":
            return {1: "monthly", 3: "quarterly", 12: "yearly"}.get(self.size, f"every {self.size} months")
        if self.kind != "even":
            return {"workdays": "on weekdays", "uneven": "at uneven times"}.get(self.kind, "without dates")
        names = {SECOND: "every second", MINUTE: "every minute", HOUR: "hourly", DAY: "daily", 7 * DAY: "weekly"}
        if self.size in names:
            return names[self.size]
        unit, name = next(
            (
                (u, n)
                for u, n in ((DAY, "days"), (HOUR, "hours"), (MINUTE, "minutes"), (SECOND, "seconds"))
                if self.size % u == 0
            ),
            (1, "milliseconds"),
        )
        return f"every {self.size // unit} {name}"

    @property
    def season(self) -> int:
        """Steps of a season: a day of hours or minutes, a week of days, a year of weeks, months or quarters.

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

    def after(self, date: np.datetime64, steps: int) -> np.datetime64 | None:
        """The date so many steps later, where that can be told."""
        if self.kind == "even":
            return np.datetime64(date + np.timedelta64(self.size * steps, "ms"))
        if self.kind == "months":
            month = date.astype("datetime64[M]")
            later, inside = month + self.size * steps, date - month.astype("datetime64[ms]")
            if ends_month(date) or inside >= _length(later):
                inside = inside % np.timedelta64(DAY, "ms") + _length(later) - np.timedelta64(DAY, "ms")
            return np.datetime64(later.astype("datetime64[ms]") + inside)
        if self.kind == "workdays":
            day = date.astype("datetime64[D]")
            return np.datetime64(
                np.busday_offset(day, steps).astype("datetime64[ms]") + (date - day.astype("datetime64[ms]"))
            )
        return None

    def written(self, date: np.datetime64) -> str:
        """A date as people write it, no finer than its steps.

        >>> Frequency("months", 1).written(np.datetime64("1960-12-01T00:00:00.000"))
        '1960-12'
        """
        if self.kind == "months":
            return str(date.astype("datetime64[M]"))
        if self.kind == "workdays" or (self.size and self.size % DAY == 0):
            return str(date.astype("datetime64[D]"))
        return str(date.astype("datetime64[s]")).replace("T", " ")

    def places(self, dates: np.ndarray) -> np.ndarray | None:
        """How many steps after the first each date stands; None where they are on no grid."""
        if self.kind == "even":
            steps, rest = np.divmod((dates - dates[0]).astype(np.int64), self.size)
            return None if rest.any() else steps
        if self.kind == "months":
            months = dates.astype("datetime64[M]").astype(np.int64)
            steps, rest = np.divmod(months - months[0], self.size)
            return None if rest.any() else steps
        if self.kind == "workdays":
            days = dates.astype("datetime64[D]")
            return np.asarray(np.busday_count(days[0], days), dtype=np.int64)
        return None


NO_DATES = Frequency()


def ends_month(dates: Any) -> Any:
    """Whether dates are the last day of their month.

    >>> ends_month(np.array(["2020-02-29", "2021-03-30"], dtype="datetime64[ms]")).tolist()
    [True, False]
    """
    months = dates.astype("datetime64[M]")
    return (dates + np.timedelta64(DAY, "ms")).astype("datetime64[M]") != months


def _length(month: np.datetime64) -> np.timedelta64:
    """How long a month is."""
    length: np.timedelta64 = (month + 1).astype("datetime64[ms]") - month.astype("datetime64[ms]")
    return length


def find_frequency(dates: np.ndarray) -> Frequency:
    """How far apart dates (N,), in order, stand: the commonest distance, where all stand on its grid.

    >>> find_frequency(np.array(["1949-01", "1949-02", "1949-03"], dtype="datetime64[ms]")).spoken
    'monthly'
    """
    if len(dates) < 3:
        return Frequency("uneven")
    months = dates.astype("datetime64[M]")
    inside = dates - months.astype("datetime64[ms]")
    step = Counter(np.diff(months.astype(np.int64)).tolist()).most_common(1)[0][0]
    if step > 0 and ((inside == inside[0]).all() or ends_month(dates).all()):
        return _on_grid(Frequency("months", step), dates)
    days = dates.astype("datetime64[D]")
    size = Counter(np.diff(dates.astype(np.int64)).tolist()).most_common(1)[0][0]
    if size == DAY and np.is_busday(days).all() and len(dates) > 5:
        return _on_grid(Frequency("workdays", DAY), dates)
    return _on_grid(Frequency("even", size), dates) if size > 0 else Frequency("uneven")


def _on_grid(found: Frequency, dates: np.ndarray) -> Frequency:
    places = found.places(dates)
    if places is None or len(dates) < SPARSE * (int(places[-1]) + 1):
        return Frequency("uneven")
    return found
