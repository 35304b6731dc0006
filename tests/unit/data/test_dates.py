from __future__ import annotations

import re
import subprocess
import sys
from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensue.core.errors import InputError
from ensue.data.dates import FIRST_DAY, LANGUAGES, LAST_DAY, MAX_SOURCE_CHARS, SIZES, date_formats, date_pairs, describe

ALL_FORMS = [form for language in LANGUAGES for form in date_formats(language)]
YEARS = (2001, 2002, 2003, 2006, 2009, 2010, 2011)
days = st.dates(FIRST_DAY, LAST_DAY)


def test_parts_have_their_sizes_and_share_no_source() -> None:
    parts = {part: date_pairs(part) for part in SIZES}
    assert {part: len(pairs) for part, pairs in parts.items()} == SIZES
    sources = [source for pairs in parts.values() for source, _ in pairs]
    assert len(set(sources)) == len(sources)


def test_no_source_has_two_readings_whatever_the_day() -> None:
    """Over every month, both orders of day and month, and every weekday a day of the year can fall on."""
    readings: dict[str, date] = {}
    for form in ALL_FORMS:
        for year in YEARS:
            for month in range(1, 13):
                for day in (date(year, month, number) for number in (1, 4, 12, 28)):
                    assert readings.setdefault(form.write(day), day) == day, form


def test_all_weekdays_of_the_years_occur() -> None:
    assert {date(year, 1, 1).weekday() for year in YEARS} == set(range(7))


def test_every_target_is_in_the_range_and_its_year_and_day_are_in_the_source() -> None:
    for source, target in date_pairs("train"):
        day = date.fromisoformat(target)
        assert FIRST_DAY <= day <= LAST_DAY and day.isoformat() == target
        numbers = re.findall(r"[0-9]+", source)
        assert [number for number in numbers if len(number) == 4] == [str(day.year)]
        assert day.day in [int(number) for number in numbers if len(number) < 3]
        assert len(source) < MAX_SOURCE_CHARS and source == source.strip() and "\n" not in source


@settings(max_examples=200, deadline=None)
@given(day=days, form=st.sampled_from(ALL_FORMS))
def test_a_format_writes_plain_digits_and_spaces(day: date, form: object) -> None:
    text = form.write(day)  # type: ignore[attr-defined]
    assert all(letter in "0123456789" for letter in text if letter.isnumeric() and letter.isascii())
    assert not any(letter.isdecimal() and not letter.isascii() for letter in text)
    assert all(letter == " " for letter in text if letter.isspace())
    assert "\u200f" not in text and "\u200e" not in text


def test_only_months_that_are_bare_numbers_have_a_language_tag() -> None:
    day = date(1987, 4, 3)
    assert "de 03.04.1987" in [form.write(day) for form in date_formats("de")]
    assert "en 4/3/1987" in [form.write(day) for form in date_formats("en")]
    assert {"1987年4月3日", "zh 1987/4/3"} <= {form.write(day) for form in date_formats("zh")}
    assert "3 tháng 4, 1987" in [form.write(day) for form in date_formats("vi")]
    for form in ALL_FORMS:
        text = form.write(day)
        assert form.tagged == text.startswith(f"{form.language} ")
        if not any(letter.isalpha() for letter in text.removeprefix(form.language)):
            assert form.tagged


def test_all_languages_occur() -> None:
    assert len(set(LANGUAGES)) == len(LANGUAGES) >= 30
    assert str(len(LANGUAGES)) in describe()
    text = "".join(source for source, _ in date_pairs("train"))
    for letter in "éжλիმאبक年월ท":
        assert letter.lower() in text.lower()
    tags = {source[:2] for source, _ in date_pairs("train") if re.match(r"[a-z]{2} (\D{1,6} )?[0-9]", source)}
    assert set(LANGUAGES) <= tags


def test_the_training_part_has_all_characters_of_the_validation_part() -> None:
    train, valid = ({letter for source, _ in date_pairs(part) for letter in source} for part in SIZES)
    assert valid <= train


def test_the_corpus_is_the_same_in_another_process() -> None:
    code = "from ensue.data.dates import date_pairs; print(ascii(date_pairs('valid')[-3:]))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == ascii(date_pairs("valid")[-3:])


def test_babel_is_imported_on_first_use() -> None:
    code = "import ensue.data.dates, ensue.data.pairs, sys; sys.exit('babel' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_callers_cannot_change_the_corpus() -> None:
    date_pairs("valid").clear()
    assert len(date_pairs("valid")) == SIZES["valid"]


def test_an_unknown_part_is_an_error() -> None:
    with pytest.raises(InputError, match="'vaild'; did you mean 'valid'"):
        date_pairs("vaild")
