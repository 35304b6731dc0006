"""Schemas of files: what the values of a JSON file must be, checked before anything is built from them.

A schema is a tree of shapes. A shape says which values it allows; ``check_schema`` raises InputError for the first
value that is not allowed, in one line with the file and the key. Keys that a schema does not name are ignored, so that
files of later versions can have more of them.

>>> from ensue.core.schema import Fields, Items, Text, Whole, check_schema
>>> schema = Fields({"system": Text()}, optional={"data": Fields({"labels": Items(Text())})})
>>> check_schema({"system": "lstm"}, schema, "config.json")
>>> check_schema({"system": "lstm", "data": {"labels": ["a", 3]}}, schema, "config.json")
Traceback (most recent call last):
ensue.core.errors.InputError: config.json: data.labels[1] = 3 should be text; the file may be damaged
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ensue.core.errors import InputError

MAX_WHOLE = 2**63 - 1
"""The largest integer that arrays and compiled code can hold."""
HINT = "the file may be damaged"
MISSING = "there"
"""What is expected of a key that a file lacks."""
MAX_SHOWN = 60
"""Characters of a wrong value that an error shows."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A value that a shape does not allow."""

    key: str
    value: Any
    expected: str


class Shape(ABC):
    """What a value must be."""

    @abstractmethod
    def find(self, value: Any, key: str) -> Mismatch | None:
        """Return the first value that is not allowed in ``value``, which stands at ``key`` in the file."""


@dataclass(frozen=True, slots=True)
class Anything(Shape):
    """Any value."""

    def find(self, value: Any, key: str) -> Mismatch | None:
        """Return None."""
        return None


@dataclass(frozen=True, slots=True)
class Whole(Shape):
    """A whole number in a range; true and false are not numbers."""

    least: int = -MAX_WHOLE
    most: int = MAX_WHOLE

    def find(self, value: Any, key: str) -> Mismatch | None:
        """Return the value unless it is a whole number in the range."""
        if isinstance(value, int) and not isinstance(value, bool) and self.least <= value <= self.most:
            return None
        low, high = self.least > -MAX_WHOLE, self.most < MAX_WHOLE
        bounds = (
            f" from {self.least:,} to {self.most:,}" if low and high else f" of at least {self.least}" if low else ""
        )
        return Mismatch(key, value, f"a whole number{bounds}")


@dataclass(frozen=True, slots=True)
class Number(Shape):
    """A number; finite, unless ``finite`` is False."""

    finite: bool = True

    def find(self, value: Any, key: str) -> Mismatch | None:
        """Return the value unless it is a number."""
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300:
            return None
        if isinstance(value, float) and not self.finite and not math.isfinite(value):
            return None
        return Mismatch(key, value, "a number")


@dataclass(frozen=True, slots=True)
class Flag(Shape):
    """True or false."""

    def find(self, value: Any, key: str) -> Mismatch | None:
        """Return the value unless it is true or false."""
        return None if isinstance(value, bool) else Mismatch(key, value, "true or false")


@dataclass(frozen=True, slots=True)
class Text(Shape):
    """Text that can be written as UTF-8: JSON can hold half of a surrogate pair, which is no character."""

    allowed: tuple[str, ...] = ()
    """If there are some, the text must be one of them."""
    most: int = MAX_WHOLE
    """Maximum length."""

    def find(self, value: Any, key: str) -> Mismatch | None:
        """Return the value unless it is such a text."""
        short = isinstance(value, str) and len(value) <= self.most
        if short and is_unicode(value) and (not self.allowed or value in self.allowed):
            return None
        longest = f" of at most {self.most:,} characters" if self.most < MAX_WHOLE else ""
        return Mismatch(key, value, f"one of {', '.join(self.allowed)}" if self.allowed else f"text{longest}")


@dataclass(frozen=True, slots=True)
class Maybe(Shape):
    """Null, or what another shape allows."""

    shape: Shape

    def find(self, value: Any, key: str) -> Mismatch | None:
        """Return what the other shape does not allow."""
        return None if value is None else self.shape.find(value, key)


@dataclass(frozen=True, slots=True)
class Either(Shape):
    """What one of several shapes allows."""

    shapes: tuple[Shape, ...]

    def find(self, value: Any, key: str) -> Mismatch | None:
        """Return what the last shape does not allow, if none allows the value."""
        found = [shape.find(value, key) for shape in self.shapes]
        return None if None in found else found[-1]


@dataclass(frozen=True, slots=True)
class Items(Shape):
    """A list whose items all have one shape."""

    shape: Shape
    least: int = 0

    def find(self, value: Any, key: str) -> Mismatch | None:
        """Return the first wrong item, or the value if it is no list or too short."""
        if not isinstance(value, list) or len(value) < self.least:
            return Mismatch(key, value, f"a list of {self.least} or more" if self.least else "a list")
        return next((wrong for n, item in enumerate(value) if (wrong := self.shape.find(item, f"{key}[{n}]"))), None)


@dataclass(frozen=True, slots=True)
class Row(Shape):
    """A list with a shape for each item."""

    shapes: tuple[Shape, ...]

    def find(self, value: Any, key: str) -> Mismatch | None:
        """Return the first wrong item, or the value if it is no list of this length."""
        if not isinstance(value, list) or len(value) != len(self.shapes):
            return Mismatch(key, value, f"a list of {len(self.shapes)}")
        found = (shape.find(item, f"{key}[{n}]") for n, (shape, item) in enumerate(zip(self.shapes, value)))
        return next(filter(None, found), None)


@dataclass(frozen=True, slots=True)
class Table(Shape):
    """An object with any keys, whose values all have one shape."""

    shape: Shape = field(default_factory=Anything)

    def find(self, value: Any, key: str) -> Mismatch | None:
        """Return the first wrong key or value, or the value if it is no object."""
        if not isinstance(value, dict):
            return Mismatch(key, value, "a table")
        for name, item in value.items():
            wrong = Text().find(name, f"a name in {key}") or self.shape.find(item, joined(key, name))
            if wrong is not None:
                return wrong
        return None


@dataclass(frozen=True, slots=True)
class Fields(Shape):
    """An object with these keys; it may have others."""

    required: Mapping[str, Shape] = field(default_factory=dict)
    optional: Mapping[str, Shape] = field(default_factory=dict)

    def find(self, value: Any, key: str) -> Mismatch | None:
        """Return the first missing or wrong value, or the value if it is no object."""
        if not isinstance(value, dict):
            return Mismatch(key, value, "a table")
        for name, shape in (*self.required.items(), *self.optional.items()):
            if name not in value and name in self.optional:
                continue
            if name not in value:
                return Mismatch(joined(key, name), None, MISSING)
            wrong = shape.find(value[name], joined(key, name))
            if wrong is not None:
                return wrong
        return None


def is_unicode(text: str) -> bool:
    r"""Return whether text can be written as UTF-8.

    >>> is_unicode("é"), is_unicode("\ud800")
    (True, False)
    """
    return not any("\ud800" <= letter <= "\udfff" for letter in text) if not text.isascii() else True


def joined(key: str, name: str) -> str:
    """Return the key of a field inside a table."""
    return f"{key}.{name}" if key else name


def check_schema(value: Any, shape: Shape, where: str, key: str = "") -> None:
    """Raise InputError for the first value that a shape does not allow; ``where`` names the file."""
    wrong = shape.find(value, key)
    if wrong is None:
        return
    name = wrong.key if wrong.key.isprintable() else ascii(wrong.key)[1:-1]
    name = name if len(name) <= 2 * MAX_SHOWN else f"{name[: 2 * MAX_SHOWN]}…"
    if wrong.expected == MISSING:
        raise InputError(f"{name} is missing", where=where, hint=HINT)
    stands = f" = {shown(wrong.value)}" if name else ""
    raise InputError(f"{name or 'it'}{stands} should be {wrong.expected}", where=where, hint=HINT)


def shown(value: Any) -> str:
    """Return a value for an error: short and in printable ASCII, whatever it holds.

    >>> shown("a" * 99)[-6:], shown({"a": 1}), shown([[1], 2])
    ('aaaaa…', "{'a': 1}", 'a list')
    """
    if isinstance(value, dict | list):
        inner = list(value.values()) if isinstance(value, dict) else value
        if len(inner) > 3 or any(isinstance(item, dict | list | int) and not _is_small(item) for item in inner):
            return "a table" if isinstance(value, dict) else "a list"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > MAX_WHOLE:
        return "a number of many digits"
    text = ascii(value[:MAX_SHOWN]) if isinstance(value, str) else ascii(value)
    return text[:MAX_SHOWN] + "…" if len(text) > MAX_SHOWN else text


def _is_small(value: Any) -> bool:
    return isinstance(value, int) and abs(value) <= MAX_WHOLE
