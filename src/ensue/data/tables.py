"""Rows of named roles out of a table: columns between tabs or commas, or JSONL; compressed or not, whatever its ending.

A role is what a column is for: the text, the label, the source. Which column has which role is said with
``columns``, or read off the header, or guessed from the first lines.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

from ensue.core.errors import InputError, unknown_name
from ensue.core.wording import counted, line_numbers
from ensue.data.lines import read_lines, source_name
from ensue.data.sources import is_jsonl

SAMPLE = 200
"""So many lines are looked at before it is said what the columns are."""

FIELD = 1 << 30
"""The most characters that a field between commas may have."""

Key = int | str
"""A column's place counted from 0, or the name of a field in JSONL."""

Places = dict[str, Key]
"""Where each role stands."""

Row = tuple[int, dict[str, Any]]
"""A line's number and what each role has there; a blank line has nothing in any role."""

ANSWERS = ("label", "tag", "answer")
"""Roles of what a model is asked for."""

Cells = Any
"""A line: its columns (a list), its fields (a dict), or None if it is blank."""


@dataclass(frozen=True, slots=True)
class Role:
    """What a column is for."""

    name: str
    called: tuple[str, ...] = ()
    """Headers that mean it, the likeliest first; small letters, without spaces, underscores and hyphens."""
    holds: Literal["text", "value", "any"] = "text"
    """What JSONL may have here: text; text, a number or true and false, all as text; anything, as it is."""
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """The first lines of a table, for what must be guessed."""

    rows: list[Cells]

    def places(self) -> list[Key]:
        """The columns that most lines have, or the fields of the first record."""
        if isinstance(self.rows[0], dict):
            return list(self.rows[0])
        return list(range(Counter(map(len, self.rows)).most_common(1)[0][0]))

    def column(self, key: Key) -> list[Any]:
        """What the lines have there."""
        if isinstance(key, str):
            return [row[key] for row in self.rows if key in row]
        return [row[key] for row in self.rows if key < len(row)]


def no_guess(sample: Sample, known: Places) -> Places:
    """For tables that are known by their header alone."""
    return {}


def no_header(first: list[str], places: Places, rest: Sample) -> bool:
    """For tables whose header is known by the names of their roles alone."""
    return False


@dataclass(frozen=True, slots=True)
class Roles:
    """What a table is read for."""

    members: tuple[Role, ...]
    noun: str
    """What a line holds, for the error when there is none: a pair, an example."""
    guess: Callable[[Sample, Places], Places] = no_guess
    """Where roles stand that nobody named, beside those that are known."""
    is_header: Callable[[list[str], Places, Sample], bool] = no_header
    """Whether the first line is a header, where its names are not those of all roles."""
    too_short: str = "give all lines the same columns"
    """What mends a line with too few columns."""
    one_column: str = ""
    """What mends a file whose lines are not parted at all; empty means to part them by tabs."""
    inside: str = ""
    """A field of JSONL whose own fields are meant, where it is an object."""
    corpora: tuple[str, ...] = ()
    """Built-in corpora that could have been named in place of a file."""

    def check(self, columns: Mapping[str, str]) -> None:
        """Refuse columns for roles that there are not."""
        for name in columns:
            if name not in (known := [role.name for role in self.members]):
                raise unknown_name("column", name, known)


@dataclass(frozen=True, slots=True)
class Table:
    """What a file was taken for, and its rows."""

    kind: str
    """How lines are parted: tab-separated, comma-separated or JSONL."""
    header: bool
    names: tuple[str, ...]
    """What the header calls the columns, or the fields of the first record; columns without a header are numbered."""
    called: dict[str, str]
    """What the column of each role is called: the name in the header, or its number from 1."""
    rows: Iterator[Row]

    def understood(self, shown: Mapping[str, str] | None = None) -> str:
        """One sentence on where each role stands; ``shown`` adds something to a role."""
        parts = []
        for role, name in self.called.items():
            place = f"the field {name!r}" if self.kind == "JSONL" else f"column {repr(name) if self.header else name}"
            more = (shown or {}).get(role, "")
            parts.append(f"{role} is {place}{f' ({more})' if more else ''}")
        header = "" if self.kind == "JSONL" else f", {'with a' if self.header else 'no'} header"
        noun = "field" if self.kind == "JSONL" else "column"
        return f"{self.kind}{header}, {counted(len(self.names), noun)}: {', '.join(parts)}"


def parse_columns(text: str, example: str = "source=2,target=1") -> dict[str, str]:
    """``source=2,target=1`` as a mapping.

    >>> parse_columns("source=de, target=en")
    {'source': 'de', 'target': 'en'}
    """
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if any(not equals or not value.strip() for _, equals, value in pairs):
        raise InputError(f"columns are named as {example}, not {text!r}")
    return {name.strip(): value.strip() for name, _, value in pairs}


def plain_name(header: str) -> str:
    """A header as it is looked up.

    >>> plain_name(" Sentence_1"), plain_name("#1 String")
    ('sentence1', '#1string')
    """
    return re.sub(r"[\s_-]", "", header.lower())


def columns_there(source: str | Path, said: str) -> str:
    """The columns of ``said`` that a file's texts are read from, where its first line has them all; else nothing.

    Columns of answers are left out: who asks need not have them. Numbers count in tables with tabs only, since any
    text may have commas.
    """
    columns = {role: name for role, name in parse_columns(said).items() if role not in ANSWERS}
    try:
        kind, rows = _parted(source, source_name(source), Roles((), "line"))
        first: Cells = next((cells for _, cells in rows if cells is not None), [])
        keys = [_given(name, first, source_name(source)) for name in columns.values()]
    except InputError:
        return ""
    numbered = kind == "comma-separated" and any(name.isdecimal() for name in columns.values())
    there = not numbered and all(isinstance(key, str) or key < len(first) for key in keys)
    return ",".join(f"{role}={name}" for role, name in columns.items()) if there else ""


def read_table(
    source: str | Path, roles: Roles, columns: Mapping[str, str], notes: list[str], skip: bool = False
) -> Table:
    """A file's rows; ``columns`` says by number (from 1) or by name where roles stand, as far as it is said.

    A line with too few columns is an error; with ``skip`` it is left out, and ``notes`` learns its number.
    """
    roles.check(columns)
    name = source_name(source)
    kind, rows = _parted(source, name, roles)
    read: list[tuple[int, Cells]] = []
    full: list[tuple[int, Cells]] = []
    for row in rows:
        read.append(row)
        if row[1] is not None:
            full.append(row)
        if len(full) == SAMPLE:
            break
    if not full:
        raise InputError(f"there is no {roles.noun} in this file", where=name, hint=f"give one {roles.noun} a line")
    where = f"{name}:{full[0][0]}"
    first = full[0][1]
    places, header = _find(Sample([cells for _, cells in full]), roles, columns, where)
    _check_places(places, roles, first, where)
    header = header and not isinstance(first, dict)
    if header:
        read = [row for row in read if row[0] > full[0][0]]
    called = {role: str(first[key]).strip() if header else _said(key) for role, key in places.items()}
    whole = _without_short(chain(read, rows), _needed(places), name, notes) if skip else chain(read, rows)
    picked = _picked(whole, places, roles, name, len(first), notes)
    names = [name.strip() if header or isinstance(key, str) else _said(key) for key, name in _headed(first)]
    return Table(kind, header, tuple(names), called, picked)


def _said(key: Key) -> str:
    """A column as people count it, or the name of a field."""
    return str(key + 1) if isinstance(key, int) else key


# How lines are parted.


def _parted(source: str | Path, name: str, roles: Roles) -> tuple[str, Iterator[tuple[int, Cells]]]:
    """What the lines look like, and their cells; tabs are looked for before commas."""
    lines = read_lines(source, roles.corpora)
    start = list(islice(lines, SAMPLE))
    first = [line for line in start if line.strip()]
    every = chain(start, lines)
    if (source != "-" and is_jsonl(Path(source))) or (first and is_record(first[0])):
        return "JSONL", _records(every, name, roles)
    if 2 * sum("\t" in line for line in first) >= len(first):
        return "tab-separated", _tab_rows(every)
    if _has_commas(source, first):
        return "comma-separated", _comma_rows(every, name)
    hint = roles.one_column or f"give one {roles.noun} a line with a tab between its columns"
    raise InputError("has one column: neither tabs nor commas part its lines", where=name, hint=hint)


def _has_commas(source: str | Path, first: list[str]) -> bool:
    """Whether commas part the lines: sentences have some too, but seldom in most lines from the first on."""
    if str(source).lower().removesuffix(".gz").endswith(".csv"):
        return any("," in line for line in first)
    parted = sum("," in line for line in first)
    return "," in first[0] and (2 * parted >= len(first) or any('"' in line for line in first))


def is_record(line: str) -> bool:
    """Whether a line is a JSON object.

    >>> is_record('{"text": "a"}'), is_record("{a} b")
    (True, False)
    """
    try:
        return line.lstrip().startswith("{") and isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _tab_rows(lines: Iterator[str]) -> Iterator[tuple[int, Cells]]:
    """Columns between tabs; quotation marks are text like any other."""
    for number, line in enumerate(lines, start=1):
        yield number, line.split("\t") if line.strip() else None


def _comma_rows(lines: Iterator[str], name: str) -> Iterator[tuple[int, Cells]]:
    """Columns between commas, in quotation marks where they hold a comma or a newline; as many in every line."""
    csv.field_size_limit(FIELD)
    reader = csv.reader((line + "\n" for line in lines), strict=True)
    width, number = 0, 1
    try:
        for cells in reader:
            full = bool("".join(cells).strip())
            width = width or (len(cells) if full else 0)
            if full and len(cells) != width:
                what = f"{counted(len(cells), 'column')} where the first line has {width}"
                hint = "put fields that hold commas in quotation marks, or part the columns with tabs"
                raise InputError(what, where=f"{name}:{number}", hint=hint)
            yield number, cells if full else None
            number = reader.line_num + 1
    except csv.Error as error:
        hint = "write a quotation mark inside a field twice, or part the columns with tabs"
        raise InputError(f"not comma-separated ({error})", where=f"{name}:{number}", hint=hint) from error


def _records(lines: Iterator[str], name: str, roles: Roles) -> Iterator[tuple[int, Cells]]:
    """The fields of each line's JSON object."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            yield number, None
            continue
        where = f"{name}:{number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError("not JSON", where=where, hint="give one JSON object a line") from error
        if not isinstance(record, dict):
            shown = ", ".join(f'"{role.name}": "…"' for role in roles.members if not role.optional)
            raise InputError("not a JSON object", where=where, hint=f"a line should look like {{{shown}}}")
        inner = record.get(roles.inside)
        yield number, inner if isinstance(inner, dict) else record


# Where the roles stand.


def _find(sample: Sample, roles: Roles, columns: Mapping[str, str], where: str) -> tuple[Places, bool]:
    """The place of each role, and whether the first line is a header.

    What was said comes before what the header names, and that before a guess. Under a header nothing optional is
    guessed: a column that is there has its name.
    """
    first = sample.rows[0]
    records = isinstance(first, dict)
    names: dict[str, Key] = {plain_name(name): key for key, name in reversed(_headed(first))}
    given = {role: _given(name, first, where) for role, name in columns.items()}
    named = _named(roles, names, set(given.values()))
    known = {**named, **given}
    rest = sample if records else Sample(sample.rows[1:] or sample.rows)
    by_name = any(not name.isdecimal() for name in columns.values())
    by_name = by_name or (bool(named) and (_complete(known, roles) or roles.guess is no_guess))
    if records or by_name or roles.is_header(first, {**roles.guess(rest, given), **given}, rest):
        wanted = {role.name for role in roles.members if not role.optional}
        guessed = {role: key for role, key in roles.guess(rest, known).items() if role in wanted}
        return _ordered({**guessed, **known}, roles), True
    return _ordered({**roles.guess(sample, given), **given}, roles), False


def _ordered(places: Places, roles: Roles) -> Places:
    """Places in the order of the roles."""
    return {role.name: places[role.name] for role in roles.members if role.name in places}


def _headed(first: Cells) -> list[tuple[Key, str]]:
    """Each column with what the first line calls it."""
    return [(key, key) for key in first] if isinstance(first, dict) else list(enumerate(first))


def _named(roles: Roles, names: Mapping[str, Key], taken: set[Key]) -> Places:
    """The roles whose columns the first line names."""
    found: Places = {}
    for role in roles.members:
        keys = [names[name] for name in role.called if name in names and names[name] not in {*found.values(), *taken}]
        if keys:
            found[role.name] = keys[0]
    return found


def _complete(places: Places, roles: Roles) -> bool:
    """Whether every role that must be there has its place."""
    return all(role.optional or role.name in places for role in roles.members)


def _given(name: str, first: Cells, where: str) -> Key:
    """The column that was named, or given by its number."""
    if not isinstance(first, dict) and name.isdecimal():
        return int(name) - 1
    for alike in (str.strip, str.lower, plain_name):
        for key, header in _headed(first):
            if alike(header.strip()) == alike(name):
                return key
    if isinstance(first, dict):
        raise InputError(f"there is no field {name!r}", where=where, hint=f"there is {', '.join(map(str, first))}")
    hint = f"name columns by number, or as in the first line: {_shown(first)}"
    raise InputError(f"there is no column {name!r}", where=where, hint=hint)


def _shown(first: Cells) -> str:
    """The columns of the first line, on one line."""
    text = " ".join(", ".join(map(str, first)).split())
    return text if len(text) <= 80 else text[:79] + "…"


def _check_places(places: Places, roles: Roles, first: Cells, where: str) -> None:
    """Every role that must be there stands somewhere, each at a place of its own."""
    for role in roles.members:
        if not role.optional and role.name not in places:
            noun = "field" if isinstance(first, dict) else "column"
            what = f"which {noun} is the {role.name} cannot be told"
            hint = f"say so with --columns {role.name}=…; there is {_shown(first)}"
            raise InputError(what, where=where, hint=hint)
    keys = list(places.values())
    if len(set(keys)) < len(keys) or any(isinstance(key, int) and key < 0 for key in keys):
        names = " and ".join(places)
        if isinstance(first, dict):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise InputError(f"{names} are both the field {twice!r}", where=where, hint="choose different ones")
        what = f"{names} are the columns {' and '.join(map(_said, keys))}"
        raise InputError(what, where=where, hint="choose different ones, counted from 1")
    _check_width(first, _needed(places), roles, where)


def _needed(places: Places) -> int:
    """How many columns a line must have."""
    return 1 + max((key for key in places.values() if isinstance(key, int)), default=-1)


def _check_width(cells: Cells, needed: int, roles: Roles, where: str) -> None:
    """A line must have the columns that were chosen."""
    if len(cells) < needed:
        what = f"{counted(len(cells), 'column')} where {needed} are needed"
        raise InputError(what, where=where, hint=roles.too_short)


# What stands there.


def _without_short(
    rows: Iterator[tuple[int, Cells]], needed: int, name: str, notes: list[str]
) -> Iterator[tuple[int, Cells]]:
    """The lines that have all columns."""
    short = []
    for number, cells in rows:
        if cells is None or isinstance(cells, dict) or len(cells) >= needed:
            yield number, cells
        else:
            short.append(number)
    if short:
        notes.append(f"{name}: left out {counted(len(short), 'line')} with too few columns ({line_numbers(short)})")


def _picked(
    rows: Iterator[tuple[int, Cells]], places: Places, roles: Roles, name: str, width: int, notes: list[str]
) -> Iterator[Row]:
    """What each role has in each line; ``notes`` learns of lines with more columns than the first."""
    members = [role for role in roles.members if role.name in places]
    needed, wide = _needed(places), []
    for number, cells in rows:
        where = f"{name}:{number}"
        if cells is None:
            yield number, {role.name: "" for role in members}
        elif isinstance(cells, dict):
            yield number, {role.name: _value(cells, str(places[role.name]), role, where) for role in members}
        else:
            _check_width(cells, needed, roles, where)
            if len(cells) > width:
                wide.append(number)
            yield number, {role: cells[key] for role, key in places.items() if isinstance(key, int)}
    if wide:
        lines = f"{counted(len(wide), 'line')} {'has' if len(wide) == 1 else 'have'}"
        notes.append(f"{name}: {lines} more columns than the first, of which no notice is taken ({line_numbers(wide)})")


def _value(record: dict[str, Any], name: str, role: Role, where: str) -> Any:
    """What a field holds."""
    if name not in record:
        if role.optional:
            return None if role.holds == "any" else ""
        raise InputError(f"there is no field {name!r}", where=where, hint="give the same fields in every line")
    value = record[name]
    if role.holds == "any":
        return value
    if role.holds == "value" and (value is None or isinstance(value, int | float)):
        return "" if value is None else json.dumps(value)
    if not isinstance(value, str):
        raise InputError(f"the field {name!r} is not text but {type(value).__name__}", where=where)
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        hint = "write the character as UTF-8"
        raise InputError("half of a surrogate pair, which is no character", where=where, hint=hint)
    return value
