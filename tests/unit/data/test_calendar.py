"""Dates: parsing, frequency detection, and the dates that follow."""

import numpy as np
import pytest

from ensue.core.errors import InputError
from ensue.data.calendar import Frequency, find_frequency, is_date, read_dates


def dates(*cells):
    return read_dates(cells, [f"line {n}" for n in range(len(cells))])


@pytest.mark.parametrize(
    ("cell", "moment"),
    [
        ("2016-07-01 13:05:09", "2016-07-01T13:05:09.000"),
        ("2016-07-01T13:05", "2016-07-01T13:05:00.000"),
        ("2016-07-01T13:05:00Z", "2016-07-01T13:05:00.000"),
        ("2016-07-01T13:05:00+02:00", "2016-07-01T11:05:00.000"),
        ("1949-12", "1949-12-01T00:00:00.000"),
        ("1-02", "0001-02-01T00:00:00.000"),
        ("2016/7/1", "2016-07-01T00:00:00.000"),
        ("31.12.1999", "1999-12-31T00:00:00.000"),
    ],
)
def test_dates_are_read(cell, moment):
    assert is_date(cell) and str(dates(cell)[0]) == moment


def test_numbers_and_words_are_no_dates():
    assert not any(is_date(cell) for cell in ("3.5", "12", "2016", "hello", "2016-13-01", "", "1949.12"))


def test_day_and_month_are_inferred_from_possible_dates_and_their_order():
    assert str(dates("13/02/2016", "01/03/2016")[1])[:10] == "2016-03-01"
    assert str(dates("02/13/2016", "03/01/2016")[1])[:10] == "2016-03-01"
    assert str(dates("01/02/2016", "02/02/2016", "03/02/2016", "01/03/2016")[3])[:10] == "2016-03-01"
    with pytest.raises(InputError, match="a day and a month, or a month and a day"):
        dates("01/02/2016", "02/03/2016")
    with pytest.raises(InputError, match="line 1: 'soon' is not a date"):
        dates("2016-01-01", "soon")


@pytest.mark.parametrize(
    ("cells", "spoken", "season", "after"),
    [
        (("2016-07-01 00:00", "2016-07-01 01:00", "2016-07-01 02:00"), "hourly", 24, "2016-07-01 03:00:00"),
        (("2016-07-01 00:00", "2016-07-01 00:15", "2016-07-01 00:30"), "every 15 minutes", 96, "2016-07-01 00:45:00"),
        (("1981-12-29", "1981-12-30", "1981-12-31"), "daily", 7, "1982-01-01"),
        (("1949-10", "1949-11", "1949-12"), "monthly", 12, "1950-01"),
        (("2024-01-31", "2024-02-29", "2024-03-31"), "monthly", 12, "2024-04"),
        (("2023-09-30", "2023-12-31", "2024-03-31"), "quarterly", 4, "2024-06"),
        (("1949-01", "1949-04", "1949-07"), "quarterly", 4, "1949-10"),
        (("1949-01-01", "1950-01-01", "1951-01-01"), "yearly", 1, "1952-01"),
        (("2024-01-01", "2024-01-08", "2024-01-15"), "weekly", 52, "2024-01-22"),
        (tuple(f"2024-02-{day:02}" for day in (1, 2, 5, 6, 7, 8, 9)), "on weekdays", 5, "2024-02-12"),
    ],
)
def test_frequencies_are_found(cells, spoken, season, after):
    held = dates(*cells)
    found = find_frequency(held)
    assert (found.description, found.season) == (spoken, season)
    assert found.format(found.add_steps(held[-1], 1)) == after
    assert found.step_numbers(held).tolist() == list(range(len(held)))


def test_the_last_day_of_a_month_stays_the_last_day():
    held = dates("2024-01-01 06:00", "2024-02-01 06:00", "2024-03-01 06:00")
    assert str(find_frequency(held).add_steps(held[-1], 2)) == "2024-05-01T06:00:00.000"


def test_a_month_end_is_followed_by_month_ends():
    held = dates("2023-12-31", "2024-01-31", "2024-02-29")
    found = find_frequency(held)
    assert [str(found.add_steps(held[-1], steps))[:10] for steps in (1, 2)] == ["2024-03-31", "2024-04-30"]
    assert str(Frequency("months", 1).add_steps(np.datetime64("2023-01-30", "ms"), 1))[:10] == "2023-02-28"


def test_uneven_dates_have_no_frequency():
    found = find_frequency(dates("2024-01-01", "2024-01-02", "2024-03-09", "2024-09-01"))
    assert found == Frequency("uneven") and found.season == 1
    assert found.add_steps(np.datetime64("2024-01-01", "ms"), 1) is None
