"""Settings: frozen dataclasses with a description of each field, read from and written to TOML.

A settings class is ``@dataclass(frozen=True, kw_only=True, slots=True)`` with a sentence, as a string, under each
field. ``ensue systems NAME`` prints the sentence, and run.toml has it as a comment.
"""

from __future__ import annotations

import ast
import inspect
import json
import math
import textwrap
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from ensue.core.errors import InputError, read_errors, unknown_name
from ensue.core.schema import MAX_WHOLE, is_unicode, shown

T = TypeVar("T")
_DESCRIBED: dict[Any, tuple[Field, ...]] = {}


@dataclass(frozen=True, slots=True)
class Field:
    """One setting: its name, type, default and description."""

    name: str
    kind: type
    default: Any
    meaning: str


def describe(cls: type[Any]) -> tuple[Field, ...]:
    """The settings of a class, with the description of each."""
    if cls not in _DESCRIBED:
        _DESCRIBED[cls] = _read(cls)
    return _DESCRIBED[cls]


def _read(cls: type[Any]) -> tuple[Field, ...]:
    meanings: dict[str, str] = {}
    for owner in reversed(cls.__mro__[:-1]):
        try:
            source = inspect.getsource(owner)
        except OSError:  # defined at a prompt: there is no source to read descriptions from
            continue
        body = ast.parse(textwrap.dedent(source)).body[0]
        assert isinstance(body, ast.ClassDef)
        for line, following in zip(body.body, body.body[1:]):
            match line, following:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=meaning)):
                    meanings[name] = " ".join(str(meaning).split())
    kinds = get_type_hints(cls)
    ordered = sorted(fields(cls), key=lambda f: f.name == "hash")  # run.toml has the hash of the data last
    return tuple(Field(f.name, kinds[f.name], f.default, meanings.get(f.name, "")) for f in ordered)


Need = tuple[str, tuple[Any, ...] | range]
"""Another setting, and the values of it with which a setting has an effect; none means any but 0 and empty."""


NOTHING: Need = ("", ())
"""No other setting."""


def needs_of(cls: type[Any]) -> dict[str, Need]:
    """The settings of a class that have an effect only with some values of another; classes name them in ``needs``.

    ``NOTHING`` cancels what a base class says of a setting.
    """
    needs: dict[str, Need] = {}
    for owner in reversed(cls.__mro__):
        needs |= vars(owner).get("needs", {})
    return {name: need for name, need in needs.items() if need != NOTHING}


def check_effect(cls: type[Any], values: Mapping[str, Any], names: Iterable[str], prefix: str = "") -> None:
    """Raise InputError if one of these settings was changed and another setting makes it useless."""
    defaults, needs = {f.name: f.default for f in describe(cls)}, needs_of(cls)
    for name in names:
        other, allowed = needs.get(name, NOTHING)
        if other not in values or values[name] == defaults[name]:
            continue
        if (values[other] in allowed) if allowed else bool(values[other]):
            continue
        what = f"setting {prefix + name!r} has no effect where {prefix}{other} = {values[other]!r}"
        shown = allowed[:1] if isinstance(allowed, range) else allowed
        instead = " or ".join(f"{prefix}{other}={value}" for value in shown) or f"{prefix}{other}"
        raise InputError(what, hint=f"set {instead} too, or leave it out")


def check(owner: Any, name: str, right: bool, allowed: str) -> None:
    """Raise InputError with the setting, its value and what is allowed, unless ``right``."""
    if not right:
        raise InputError(f"setting {name} = {getattr(owner, name)!r} must be {allowed}")


def check_positive(owner: Any, *names: str) -> None:
    """Check that these settings are at least 1."""
    for name in names:
        check(owner, name, getattr(owner, name) >= 1, "at least 1")


def check_not_negative(owner: Any, *names: str) -> None:
    """Check that these settings are finite and at least 0."""
    for name in names:
        check(owner, name, 0 <= getattr(owner, name) < math.inf, "0 or more")


def check_below_one(owner: Any, *names: str) -> None:
    """Check that these settings are at least 0 and below 1, e.g. dropout rates."""
    for name in names:
        check(owner, name, 0 <= getattr(owner, name) < 1, "at least 0 and below 1")


def build(cls: type[T], values: Mapping[str, Any], prefix: str = "") -> T:
    """Create settings from values by name; raise InputError for an unknown name or a wrong type.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, kw_only=True)
    ... class Speed:
    ...     lr: float = 1e-3
    >>> build(Speed, {"lr": "3e-4"}).lr
    0.0003
    """
    known = {f.name: f for f in describe(cls)}
    for name in values:
        if name not in known:
            raise unknown_name("setting", prefix + name, [prefix + k for k in known])
    return cls(**{name: convert(prefix + name, value, known[name].kind) for name, value in values.items()})


def convert(name: str, value: Any, kind: Any) -> Any:
    """Convert a value to the type of a setting; text from the command line is parsed."""
    if get_origin(kind) is Literal:
        kind = str
    if kind is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_WHOLE:
        return float(value)
    if isinstance(value, str) and kind is not str:
        try:
            return convert_text(value, kind)
        except (ValueError, OverflowError) as error:
            raise InputError(f"setting {name} = {shown(value)} must be {_kind_in_words(kind)}") from error
    plain = tuple if get_origin(kind) is tuple else kind
    if plain is tuple and isinstance(value, list | tuple):
        return tuple(convert(name, item, get_args(kind)[0] if get_args(kind) else str) for item in value)
    right = isinstance(plain, type) and isinstance(value, plain) and not (plain is int and isinstance(value, bool))
    if not right or (plain is int and abs(value) > MAX_WHOLE) or (plain is str and not is_unicode(value)):
        raise InputError(f"setting {name} = {shown(value)} must be {_kind_in_words(kind)}")
    return value


def convert_text(value: str, kind: Any) -> Any:
    """Parse text as a number, a boolean or a list."""
    if kind is bool:
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        if value.lower() not in words:
            raise ValueError(value)
        return words[value.lower()]
    if kind is int:
        digits = value.replace("_", "")
        number = float(digits)
        if number != int(number):
            raise ValueError(value)
        return int(digits) if digits.lstrip("+-").isdecimal() else int(number)  # a float would round many digits
    if kind is float:
        return float(value)
    each = get_args(kind)[0] if get_args(kind) else str
    return tuple(part if each is str else convert_text(part, each) for part in value.split(",") if part)


def _kind_in_words(kind: Any) -> str:
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    return names.get(kind, "a list")


def parse_assignments(lines: list[str]) -> dict[str, str]:
    """``["train.lr=3e-4", "layers=2"]`` → ``{"train.lr": "3e-4", "layers": "2"}``: the grammar of ``--set``.

    >>> parse_assignments(["train.lr=3e-4"])
    {'train.lr': '3e-4'}
    """
    result = {}
    for line in lines:
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise InputError(f"--set {line!r} is not name=value", hint="write for example --set train.lr=3e-4")
        result[name.strip()] = value.strip()
    return result


def read_toml(path: Path) -> dict[str, Any]:
    """Read a run.toml with flat names: ``lr`` in table ``[train]`` becomes ``train.lr``."""
    with read_errors(path, "is not TOML"):
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    flat = {}
    for name, value in tables.items():
        if isinstance(value, dict):
            flat.update({f"{name}.{inner}": item for inner, item in value.items()})
        else:
            flat[name] = value
    return flat


def toml_lines(settings: Any) -> list[str]:
    """The settings of a dataclass as lines of TOML, each below its description."""
    lines = []
    for field in describe(type(settings)):
        if field.meaning:
            lines.append(f"# {field.meaning}")
        lines.append(f"{field.name} = {toml_value(getattr(settings, field.name))}")
    return lines


def toml_value(value: Any) -> str:
    """A value in TOML syntax."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        text = repr(value)
        return text if any(sign in text for sign in ".en") else f"{text}.0"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value)
