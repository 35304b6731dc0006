"""The built-in corpus ``dates``: dates as written in many languages → ISO 8601.

    Freitag, 3. April 1987 → 1987-04-03        1987年4月3日 → 1987-04-03        el 3/4/1987 → 1987-04-03

The formats are those of Unicode's CLDR, from Babel: full, long and medium, and some with other lengths of the names of
months and weekdays, in the languages of ``LANGUAGES`` (Latin, Cyrillic, Greek, Armenian, Georgian, Hebrew, Arabic,
Devanagari, Thai, Chinese, Japanese and Korean scripts). Days are uniform over the years 1900 to 2099 of the Gregorian
calendar; years have four digits, and all numbers use the digits 0 to 9, as Babel writes them. A month that is a bare
number could be taken for the day, so such formats follow the language's tag: ``en 4/3/1987``, but ``el 3/4/1987``.
Special spaces become plain ones and marks of writing direction are removed.

No source is ambiguous and none occurs in both parts. The corpus has its own random seed, so it is the same for the same
version of Babel.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from typing import Any

from ensue.core.errors import InputError, unknown_name

DATES = "dates"
"""The name of this corpus."""

_TAGS = """
    en de nl sv da nb fr es ca it pt ro pl cs sk hr lt lv fi hu sq tr vi id sw
    ru uk bg sr el hy ka he ar fa hi th zh ja ko
"""
LANGUAGES = tuple(_TAGS.split())
"""Language tags; each language has the same share of the corpus."""

SIZES = {"train": 30_000, "valid": 1_000}
"""Number of pairs in each part."""

FIRST_DAY, LAST_DAY = date(1900, 1, 1), date(2099, 12, 31)
MAX_SOURCE_CHARS = 45
"""Sources are shorter than this."""

_SKELETONS = ("yMMMMEEEEd", "yMMMMd", "yMMMEd", "yMMMd", "yMd")
_TYPED = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u2009": " ", "\u200e": None, "\u200f": None})


@dataclass(frozen=True, slots=True)
class DateFormat:
    """A date format of one language."""

    language: str
    pattern: Any
    """Babel's pattern, such as ``d. MMMM y``."""
    tagged: bool
    """True if the language's tag comes first, since the month is a bare number."""

    def write(self, day: date) -> str:
        """Format a day.

        >>> date_formats("de")[1].write(date(1987, 4, 3))
        '3. April 1987'
        """
        text: str = self.pattern.apply(day, self.language).translate(_TYPED)
        return f"{self.language} {text}" if self.tagged else text


def date_pairs(part: str = "train") -> list[tuple[str, str]]:
    """Return the pairs of a part, ``train`` or ``valid``: a date in some language, and the same date in ISO 8601."""
    if part not in SIZES:
        raise unknown_name("part of the corpus dates", part, SIZES)
    return list(_all_pairs()[: SIZES["train"]] if part == "train" else _all_pairs()[SIZES["train"] :])


def describe() -> str:
    """Describe the corpus in a few words.

    >>> describe()
    'dates in 40 languages to ISO 8601'
    """
    return f"dates in {len(LANGUAGES)} languages to ISO 8601"


@cache
def date_formats(language: str) -> tuple[DateFormat, ...]:
    """Return the date formats of a language, without duplicates."""
    try:
        from babel import Locale
    except ImportError as error:
        raise InputError("the corpus dates needs Babel", hint="install it: pip install babel") from error
    locale = Locale.parse(language)
    lengths = [locale.date_formats[length] for length in ("full", "long", "medium", "short")]
    skeletons = [locale.datetime_skeletons[name] for name in _SKELETONS if name in locale.datetime_skeletons]
    formats: dict[str, DateFormat] = {}
    for pattern in (*lengths, *skeletons):
        tagged = _bare_month(pattern.pattern)
        if tagged is not None:
            formats.setdefault(pattern.pattern, DateFormat(language, pattern, tagged))
    return tuple(formats.values())


def _bare_month(pattern: str) -> bool | None:
    """Return whether the month is a bare number; None if the date cannot be read back.

    ``d.M.y`` is bare; ``y年M月d日`` and ``d 'tháng' M, y`` are not. Years of two digits cannot be read back.
    """
    from babel.dates import tokenize_pattern

    tokens: list[tuple[str, Any]] = list(tokenize_pattern(pattern))
    fields = {value[0]: value[1] for kind, value in tokens if kind == "field"}
    if fields.get("y") not in (1, 4) or "d" not in fields or not {"M", "L"} & set(fields):
        return None
    month = next(index for index, (kind, value) in enumerate(tokens) if kind == "field" and value[0] in "ML")
    beside = (value for kind, value in tokens[max(0, month - 1) : month + 2] if kind == "chars")
    number: bool = tokens[month][1][1] < 3
    return number and not any(letter.isalpha() for text in beside for letter in text)


@cache
def _all_pairs() -> tuple[tuple[str, str], ...]:
    """Return both parts, without sources that stand for two days."""
    targets: dict[str, str] = {}
    ambiguous: set[str] = set()
    for source, target in _random_dates():
        if targets.setdefault(source, target) != target:
            ambiguous.add(source)
        if len(targets) - len(ambiguous) == sum(SIZES.values()):
            break
    return tuple((source, target) for source, target in targets.items() if source not in ambiguous)


def _random_dates() -> Iterator[tuple[str, str]]:
    """Yield random dates without end: language, format and day are uniform."""
    chance = random.Random(8601)
    span = (LAST_DAY - FIRST_DAY).days + 1
    while True:
        day = FIRST_DAY + timedelta(days=chance.randrange(span))
        formats = date_formats(LANGUAGES[chance.randrange(len(LANGUAGES))])
        source = formats[chance.randrange(len(formats))].write(day)
        if len(source) < MAX_SOURCE_CHARS:
            yield source, day.isoformat()
