"""Which column is the label and which are the texts, seen from the first lines of a table that does not say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ensue.data.tables import Key, Places, Sample, plain_name

SHORT = 40
"""A label has at most so many characters on average, and a name in a header at most so many."""
ENOUGH = 20
"""From so many lines on, a column whose every value differs is no label but an id."""
_KNOWN = "yes no true false pos neg neu positive negative neutral entailment notentailment contradiction equivalent"
KNOWN = frozenset([*_KNOWN.split(), *map(str, range(-1, 21))])
"""Values that labels have more often than anything else: small numbers and these words."""


def number_of(text: str) -> float | None:
    """A finite number that a text says, or None.

    >>> number_of(" 4.750"), number_of("nan"), number_of("1_000"), number_of("3,5")
    (4.75, None, None, None)
    """
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and "_" not in text else None


@dataclass(frozen=True)
class Column:
    """What the first lines have in one column."""

    key: Key
    values: list[Any]

    @cached_property
    def cells(self) -> list[str]:
        """The values as text, without spaces around them; of JSONL only what can be a text or a label."""
        return [str(value).strip() for value in self.values if isinstance(value, str | int | float)]

    @cached_property
    def length(self) -> float:
        """Characters in a cell, on average."""
        return sum(map(len, self.cells)) / max(1, len(self.cells))

    @cached_property
    def words(self) -> float:
        """Words in a cell, on average."""
        return sum(len(cell.split()) for cell in self.cells) / max(1, len(self.cells))

    @cached_property
    def distinct(self) -> int:
        """How many different values there are, but for nothing."""
        return len({*self.cells} - {""})

    @cached_property
    def numbers(self) -> list[float]:
        """The values as numbers; none unless most are, since a few may be mistakes that are to be said later."""
        found = [number for cell in self.cells if (number := number_of(cell)) is not None]
        return found if 2 * len(found) > len(self.cells) else []

    @property
    def full(self) -> bool:
        """Whether something stands in most lines; where it is missing will be said with the line."""
        return 2 * sum(map(bool, self.cells)) > len(self.values)

    @property
    def unlike(self) -> bool:
        """Whether nearly every value differs, as ids do."""
        return len(self.cells) >= ENOUGH and self.distinct > 0.9 * len(self.cells)


def columns_of(sample: Sample, known: Places) -> list[Column]:
    """The columns that have no role yet."""
    return [Column(key, sample.column(key)) for key in sample.places() if key not in known.values()]


def label_among(columns: Sequence[Column]) -> Key | None:
    """The column of few different short values; None if there is none, or two that are as likely.

    >>> label_among([Column(0, ["gj04", "gj04"]), Column(1, ["1", "0"]), Column(2, ["", "*"])])
    1
    """
    fit = [column for column in columns if column.full and column.length <= SHORT and column.words <= 3]
    return _clearly_first(
        [
            (
                ({plain_name(cell) for cell in column.cells if cell} <= KNOWN, column.distinct > 1, -column.distinct),
                column.key,
            )
            for column in fit
            if not column.unlike
        ]
    )


def score_among(columns: Sequence[Column]) -> Key | None:
    """The column of numbers that measure something: with fractions if any has them, in a small range, not an id.

    >>> score_among([Column(0, ["2012", "2014"]), Column(1, ["0000", "0002"]), Column(2, ["5.000", "4.750"])])
    2
    """
    fit = []
    for column in columns:
        whole = not any("." in cell for cell in column.cells)
        if column.full and column.numbers and not (whole and column.unlike):
            reach = max(column.numbers) - min(column.numbers)
            near_zero = max(map(abs, column.numbers)) <= 100
            fit.append(((not whole, near_zero, reach > 0), column.key))
    return _clearly_first(fit)


def _clearly_first(ranked: list[tuple[tuple[Any, ...], Key]]) -> Key | None:
    """The key of the highest rank, if no other has it, too."""
    highest = [key for rank, key in ranked if rank == max(rank for rank, _ in ranked)]
    return highest[0] if len(highest) == 1 else None


def texts_among(columns: Sequence[Column], count: int) -> list[Key]:
    """The columns with the longest texts, in the order of the file; none if one more is as long.

    Sentences come before single words, whatever their length, and numbers are no texts.

    >>> texts_among([Column(0, ["a b c"])], 1), texts_among([Column(0, ["a b c"])], 0)
    ([0], [])
    """
    if not count:
        return []
    fit = [column for column in columns if not column.numbers and column.length > 0]
    ranked = sorted(fit, key=lambda column: (column.words > 1.5, column.length), reverse=True)
    chosen, left = ranked[:count], ranked[count:]
    if len(chosen) < count or (left and left[0].words >= 3 and 2 * left[0].length > chosen[-1].length):
        return []
    return [column.key for column in columns if column in chosen]


def are_names(cells: Sequence[str]) -> bool:
    """Whether the cells of a first line can be names of columns: short, different, no numbers.

    >>> are_names(["", "text", "gold_label"]), are_names(["1", "text"]), are_names(["It is a good film.", "pos"])
    (True, False, False)
    """
    names = [cell.strip() for cell in cells]
    short = all(len(name) <= SHORT and len(name.split()) <= 3 for name in names)
    return short and all(names[1:]) and len(set(names)) == len(names) and not any(map(number_of, names))


def stands_out(first: str, rest: Column) -> bool:
    """Whether the first value of a label's column is a name for the others rather than one of them.

    >>> stands_out("opinion", Column(0, ["good", "bad"] * 5)), stands_out("bad", Column(0, ["good", "bad"] * 5))
    (True, False)
    """
    if rest.numbers:
        return number_of(first) is None
    again = min((rest.cells.count(cell) for cell in set(rest.cells)), default=0)
    return len(rest.cells) >= 8 and again >= 2 and first.strip() not in rest.cells
