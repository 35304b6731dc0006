"""Infer the label and text columns of a table without a header from its first lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ensue.data.tables import ColumnKey, ColumnMap, TableSample, normalize_header

MAX_LABEL_CHARS = 40
"""Maximum average length of a label, and maximum length of a header."""
MIN_ID_ROWS = 20
"""From this many lines on, a column of unique values is an id rather than a label."""
_WORDS = "yes no true false pos neg neu positive negative neutral entailment notentailment contradiction equivalent"
COMMON_LABELS = frozenset([*_WORDS.split(), *map(str, range(-1, 21))])
"""Values that are usually labels: small integers and these words."""


def parse_number(text: str) -> float | None:
    """Return a finite number, or None.

    >>> parse_number(" 4.750"), parse_number("nan"), parse_number("1_000"), parse_number("3,5")
    (4.75, None, None, None)
    """
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and "_" not in text else None


@dataclass(frozen=True)
class ColumnSample:
    """The values of one column in the first lines."""

    key: ColumnKey
    values: list[Any]

    @cached_property
    def cells(self) -> list[str]:
        """The values as stripped text; JSONL values that cannot be a text or a label are dropped."""
        return [str(value).strip() for value in self.values if isinstance(value, str | int | float)]

    @cached_property
    def length(self) -> float:
        """Average number of characters in a cell."""
        return sum(map(len, self.cells)) / max(1, len(self.cells))

    @cached_property
    def words(self) -> float:
        """Average number of words in a cell."""
        return sum(len(cell.split()) for cell in self.cells) / max(1, len(self.cells))

    @cached_property
    def distinct(self) -> int:
        """Number of different non-empty values."""
        return len({*self.cells} - {""})

    @cached_property
    def numbers(self) -> list[float]:
        """The values as numbers; empty unless most are numbers. A few others may be mistakes, reported later."""
        numbers = [number for cell in self.cells if (number := parse_number(cell)) is not None]
        return numbers if 2 * len(numbers) > len(self.cells) else []

    @property
    def full(self) -> bool:
        """True if most lines have a value; missing ones are reported later with their lines."""
        return 2 * sum(map(bool, self.cells)) > len(self.values)

    @property
    def looks_like_id(self) -> bool:
        """True if nearly all values differ."""
        return len(self.cells) >= MIN_ID_ROWS and self.distinct > 0.9 * len(self.cells)


def unassigned_columns(sample: TableSample, known: ColumnMap) -> list[ColumnSample]:
    """Return the columns without a role."""
    return [ColumnSample(key, sample.column(key)) for key in sample.column_keys() if key not in known.values()]


def find_label(columns: Sequence[ColumnSample]) -> ColumnKey | None:
    """Return the column with few different short values; None if there is none or two are equally likely.

    >>> find_label([ColumnSample(0, ["gj04", "gj04"]), ColumnSample(1, ["1", "0"]), ColumnSample(2, ["", "*"])])
    1
    """
    ranked: list[tuple[tuple[Any, ...], ColumnKey]] = []
    for column in columns:
        if column.full and column.length <= MAX_LABEL_CHARS and column.words <= 3 and not column.looks_like_id:
            common = {normalize_header(cell) for cell in column.cells if cell} <= COMMON_LABELS
            ranked.append(((common, column.distinct > 1, -column.distinct), column.key))
    return _unique_best(ranked)


def find_score(columns: Sequence[ColumnSample]) -> ColumnKey | None:
    """Return the column of measurements: preferably with fractions and in a small range, and not an id.

    >>> find_score([ColumnSample(0, ["2012", "2014"]), ColumnSample(1, ["5.000", "4.750"])])
    1
    """
    ranked: list[tuple[tuple[Any, ...], ColumnKey]] = []
    for column in columns:
        integers = not any("." in cell for cell in column.cells)
        if column.full and column.numbers and not (integers and column.looks_like_id):
            extent = max(column.numbers) - min(column.numbers)
            near_zero = max(map(abs, column.numbers)) <= 100
            ranked.append(((not integers, near_zero, extent > 0), column.key))
    return _unique_best(ranked)


def _unique_best(ranked: list[tuple[tuple[Any, ...], ColumnKey]]) -> ColumnKey | None:
    """Return the key with the highest rank, if it is unique."""
    highest = max((rank for rank, _ in ranked), default=None)
    best = [key for rank, key in ranked if rank == highest]
    return best[0] if len(best) == 1 else None


def find_texts(columns: Sequence[ColumnSample], count: int) -> list[ColumnKey]:
    """Return the columns with the longest texts, in the order of the file; none if another is about as long.

    Sentences come before single words of any length, and numbers are not texts.

    >>> find_texts([ColumnSample(0, ["a b c"])], 1), find_texts([ColumnSample(0, ["a b c"])], 0)
    ([0], [])
    """
    if not count:
        return []
    candidates = [column for column in columns if not column.numbers and column.length > 0]
    ranked = sorted(candidates, key=lambda column: (column.words > 1.5, column.length), reverse=True)
    chosen, rest = ranked[:count], ranked[count:]
    if len(chosen) < count or (rest and rest[0].words >= 3 and 2 * rest[0].length > chosen[-1].length):
        return []
    keys = {column.key for column in chosen}
    return [column.key for column in columns if column.key in keys]


def looks_like_header(cells: Sequence[str]) -> bool:
    """Return whether the cells of a first line can be column names: short, different, no numbers.

    >>> looks_like_header(["", "text", "gold_label"]), looks_like_header(["1", "text"])
    (True, False)
    >>> looks_like_header(["It is a good film.", "pos"])
    False
    """
    names = [cell.strip() for cell in cells]
    short = all(len(name) <= MAX_LABEL_CHARS and len(name.split()) <= 3 for name in names)
    return short and all(names[1:]) and len(set(names)) == len(names) and not any(map(parse_number, names))


def differs_from_labels(first: str, rest: ColumnSample) -> bool:
    """Return whether the first value of a label column is its name rather than a label.

    >>> labels = ColumnSample(0, ["good", "bad"] * 5)
    >>> differs_from_labels("opinion", labels), differs_from_labels("bad", labels)
    (True, False)
    """
    if rest.numbers:
        return parse_number(first) is None
    rarest = min((rest.cells.count(cell) for cell in set(rest.cells)), default=0)
    return len(rest.cells) >= 8 and rarest >= 2 and first.strip() not in rest.cells
