"""Read rows of named roles from a table: tab-separated, comma-separated or JSONL, compressed or not.

A role is what a column is for: text, label, source. Columns are assigned to roles by ``columns``, by the header, or by
inference from the first lines.
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
from ensue.data.lines import check_text, parse_object, read_lines, source_name
from ensue.data.sources import is_jsonl

SAMPLE_LINES = 200
"""Lines from which the columns are inferred."""

MAX_DIGITS = 9
"""Maximum number of digits in the number of a column."""

MAX_FIELD_CHARS = 1 << 30
"""Maximum length of a comma-separated field."""

ColumnKey = int | str
"""The index of a column from 0, or the name of a JSONL field."""

ColumnMap = dict[str, ColumnKey]
"""The column of each role."""

RoleRow = tuple[int, dict[str, Any]]
"""A line number and the value of each role; all values of a blank line are empty."""

ANSWER_ROLES = ("label", "tag", "answer")
"""Roles that a model predicts."""

Cells = Any
"""The cells of a line (a list), its fields (a dict), or None for a blank line."""


@dataclass(frozen=True, slots=True)
class ColumnRole:
    """What a column is for."""

    name: str
    headers: tuple[str, ...] = ()
    """Normalised headers that mean this role, most likely first."""
    accepts: Literal["text", "value", "any"] = "text"
    """JSONL values: text; text, numbers and booleans, converted to text; or anything, unchanged."""
    optional: bool = False


@dataclass(frozen=True, slots=True)
class TableSample:
    """The first lines of a table, for inference."""

    rows: list[Cells]

    def column_keys(self) -> list[ColumnKey]:
        """Return the columns that most lines have, or the fields of the first record."""
        if isinstance(self.rows[0], dict):
            return list(self.rows[0])
        return list(range(Counter(map(len, self.rows)).most_common(1)[0][0]))

    def column(self, key: ColumnKey) -> list[Any]:
        """Return the values of a column."""
        if isinstance(key, str):
            return [row[key] for row in self.rows if key in row]
        return [row[key] for row in self.rows if key < len(row)]


def infer_nothing(sample: TableSample, known: ColumnMap) -> ColumnMap:
    """Infer no columns: for tables that need a header."""
    return {}


def never_header(first: list[str], columns: ColumnMap, rest: TableSample) -> bool:
    """Detect no header: for tables whose header names the roles."""
    return False


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The roles of a table, and how to infer their columns."""

    roles: tuple[ColumnRole, ...]
    noun: str
    """What a line contains, for errors: a pair, an example."""
    infer: Callable[[TableSample, ColumnMap], ColumnMap] = infer_nothing
    """Returns the columns of roles that are not known yet."""
    is_header: Callable[[list[str], ColumnMap, TableSample], bool] = never_header
    """Returns whether the first line is a header, if it does not name all roles."""
    short_line_hint: str = "give all lines the same columns"
    """Hint for lines with too few columns."""
    one_column_hint: str = ""
    """Hint for files with a single column; empty for the default."""
    nested_field: str = ""
    """A JSONL field whose fields are used instead, if it is an object."""
    corpora: tuple[str, ...] = ()
    """Built-in corpora to suggest if the file does not exist."""

    def check(self, columns: Mapping[str, str]) -> None:
        """Raise an error for columns of unknown roles."""
        names = [role.name for role in self.roles]
        for name in columns:
            if name not in names:
                raise unknown_name("column", name, names)


@dataclass(frozen=True, slots=True)
class ParsedTable:
    """How a file was read, and its rows."""

    kind: str
    """tab-separated, comma-separated or JSONL."""
    header: bool
    names: tuple[str, ...]
    """Names of the columns or fields; columns without a header are numbered."""
    column_names: dict[str, str]
    """The name or number (from 1) of each role's column."""
    rows: Iterator[RoleRow]

    def describe(self, details: Mapping[str, str] | None = None) -> str:
        """Return one sentence on the column of each role; ``details`` are added to a role in brackets."""
        parts = []
        for role, name in self.column_names.items():
            column = f"the field {name!r}" if self.kind == "JSONL" else f"column {repr(name) if self.header else name}"
            detail = (details or {}).get(role, "")
            parts.append(f"{role} is {column}{f' ({detail})' if detail else ''}")
        header = "" if self.kind == "JSONL" else f", {'with a' if self.header else 'no'} header"
        noun = "field" if self.kind == "JSONL" else "column"
        return f"{self.kind}{header}, {counted(len(self.names), noun)}: {', '.join(parts)}"


def parse_columns(text: str, example: str = "source=2,target=1") -> dict[str, str]:
    """Parse ``source=2,target=1`` into a mapping.

    >>> parse_columns("source=de, target=en")
    {'source': 'de', 'target': 'en'}
    """
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if any(not equals or not value.strip() for _, equals, value in pairs):
        raise InputError(f"columns are named as {example}, not {text!r}")
    return {name.strip(): value.strip() for name, _, value in pairs}


def normalize_header(header: str) -> str:
    """Return a header in lower case without spaces, underscores and hyphens.

    >>> normalize_header(" Sentence_1"), normalize_header("#1 String")
    ('sentence1', '#1string')
    """
    return re.sub(r"[\s_-]", "", header.lower())


def matching_columns(source: str | Path, columns: str) -> str:
    """Return the input columns of ``columns`` if the file's first line has them all, else an empty string.

    Columns of answers are dropped: files to predict need not have them. Numbers count in tab-separated files only,
    since any text may contain commas.
    """
    inputs = {role: name for role, name in parse_columns(columns).items() if role not in ANSWER_ROLES}
    try:
        kind, rows = _split_lines(source, source_name(source), TableSchema((), "line"))
        first: Cells = next((cells for _, cells in rows if cells is not None), [])
        keys = [_find_column(name, first, source_name(source)) for name in inputs.values()]
    except InputError:
        return ""
    numbered = kind == "comma-separated" and any(name.isdecimal() for name in inputs.values())
    present = not numbered and all(isinstance(key, str) or key < len(first) for key in keys)
    return ",".join(f"{role}={name}" for role, name in inputs.items()) if present else ""


def read_table(
    source: str | Path, schema: TableSchema, columns: Mapping[str, str], notes: list[str], skip: bool = False
) -> ParsedTable:
    """Read a file's rows; ``columns`` assigns columns to roles by number (from 1) or by name.

    A line with too few columns is an error; with ``skip`` it is left out and noted.
    """
    schema.check(columns)
    name = source_name(source)
    kind, rows = _split_lines(source, name, schema)
    read: list[tuple[int, Cells]] = []
    full: list[tuple[int, Cells]] = []
    while len(full) < SAMPLE_LINES and (row := next(rows, None)) is not None:
        read.append(row)
        full += [row] if row[1] is not None else []
    if not full:
        raise InputError(f"there is no {schema.noun} in this file", where=name, hint=f"give one {schema.noun} a line")
    where = f"{name}:{full[0][0]}"
    first = full[0][1]
    keys, header = _assign_columns(TableSample([cells for _, cells in full]), schema, columns, where)
    _check_columns(keys, schema, first, where)
    header = header and not isinstance(first, dict)
    if header:
        read = [row for row in read if row[0] > full[0][0]]
    names = [name.strip() if header or isinstance(key, str) else _shown_key(key) for key, name in _headers(first)]
    column_names = {role: str(first[key]).strip() if header else _shown_key(key) for role, key in keys.items()}
    all_rows = chain(read, rows)
    complete = _skip_short(all_rows, _min_width(keys), name, notes) if skip else all_rows
    values = _role_values(complete, keys, schema, name, len(first), notes)
    return ParsedTable(kind, header, tuple(names), column_names, values)


def _shown_key(key: ColumnKey) -> str:
    """Return a column number from 1, or the name of a field."""
    return str(key + 1) if isinstance(key, int) else key


# Splitting lines into cells.


def _split_lines(source: str | Path, name: str, schema: TableSchema) -> tuple[str, Iterator[tuple[int, Cells]]]:
    """Return the kind of table and the cells of each line; tabs take precedence over commas."""
    lines = read_lines(source, schema.corpora)
    start = list(islice(lines, SAMPLE_LINES))
    sample = [line for line in start if line.strip()]
    all_lines = chain(start, lines)
    if (source != "-" and is_jsonl(source)) or (sample and is_json_object(sample[0])):
        return "JSONL", _json_rows(all_lines, name, schema)
    if 2 * sum("\t" in line for line in sample) >= len(sample):
        return "tab-separated", _tab_rows(all_lines)
    if _has_commas(source, sample):
        return "comma-separated", _comma_rows(all_lines, name)
    hint = schema.one_column_hint or f"give one {schema.noun} a line with a tab between its columns"
    raise InputError("has one column: there are no tabs or commas between columns", where=name, hint=hint)


def _has_commas(source: str | Path, sample: list[str]) -> bool:
    """Return whether lines are comma-separated: sentences contain commas too, but rarely most lines and the first."""
    if str(source).lower().removesuffix(".gz").endswith(".csv"):
        return any("," in line for line in sample)
    with_comma = sum("," in line for line in sample)
    return "," in sample[0] and (2 * with_comma >= len(sample) or any('"' in line for line in sample))


def is_json_object(line: str) -> bool:
    """Return whether a line is a JSON object.

    >>> is_json_object('{"text": "a"}'), is_json_object("{a} b")
    (True, False)
    """
    try:
        return line.lstrip().startswith("{") and isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _tab_rows(lines: Iterator[str]) -> Iterator[tuple[int, Cells]]:
    """Split lines at tabs; quotation marks have no special meaning."""
    for number, line in enumerate(lines, start=1):
        yield number, line.split("\t") if line.strip() else None


def _comma_rows(lines: Iterator[str], name: str) -> Iterator[tuple[int, Cells]]:
    """Parse comma-separated lines; all must have the same number of columns."""
    csv.field_size_limit(MAX_FIELD_CHARS)
    reader = csv.reader((line + "\n" for line in lines), strict=True)
    width, number = 0, 1
    try:
        for cells in reader:
            full = bool("".join(cells).strip())
            width = width or (len(cells) if full else 0)
            if full and len(cells) != width:
                what = f"{counted(len(cells), 'column')} where the first line has {width}"
                hint = "put fields that contain commas in quotation marks, or separate the columns with tabs"
                raise InputError(what, where=f"{name}:{number}", hint=hint)
            yield number, cells if full else None
            number = reader.line_num + 1
    except csv.Error as error:
        hint = "write a quotation mark inside a field twice, or separate the columns with tabs"
        raise InputError(f"not comma-separated ({error})", where=f"{name}:{number}", hint=hint) from error


def _json_rows(lines: Iterator[str], name: str, schema: TableSchema) -> Iterator[tuple[int, Cells]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            yield number, None
            continue
        example = ", ".join(f'"{role.name}": "…"' for role in schema.roles if not role.optional)
        record = parse_object(line, f"{name}:{number}", example)
        nested = record.get(schema.nested_field)
        yield number, nested if isinstance(nested, dict) else record


# Assigning columns to roles.


def _assign_columns(
    sample: TableSample, schema: TableSchema, columns: Mapping[str, str], where: str
) -> tuple[ColumnMap, bool]:
    """Return the column of each role, and whether the first line is a header.

    ``columns`` takes precedence over the header, and the header over inference. Under a header no optional role is
    inferred, since its column would have a name.
    """
    first = sample.rows[0]
    records = isinstance(first, dict)
    given = {role: _find_column(name, first, where) for role, name in columns.items()}
    named = _named_columns(schema, first, set(given.values()))
    known = {**named, **given}
    rest = sample if records else TableSample(sample.rows[1:] or sample.rows)
    by_name = any(not name.isdecimal() for name in columns.values())
    required = {role.name for role in schema.roles if not role.optional}
    by_name = by_name or (bool(named) and (required <= set(known) or schema.infer is infer_nothing))

    def in_order(keys: ColumnMap) -> ColumnMap:
        return {role.name: keys[role.name] for role in schema.roles if role.name in keys}

    if records or by_name or schema.is_header(first, {**schema.infer(rest, given), **given}, rest):
        inferred = {role: key for role, key in schema.infer(rest, known).items() if role in required}
        return in_order({**inferred, **known}), True
    return in_order({**schema.infer(sample, given), **given}), False


def _headers(first: Cells) -> list[tuple[ColumnKey, str]]:
    """Return each column with its name in the first line."""
    return [(key, key) for key in first] if isinstance(first, dict) else list(enumerate(first))


def _named_columns(schema: TableSchema, first: Cells, taken: set[ColumnKey]) -> ColumnMap:
    """Return the roles whose columns the first line names."""
    names = {normalize_header(name): key for key, name in reversed(_headers(first))}
    columns: ColumnMap = {}
    for role in schema.roles:
        used = {*columns.values(), *taken}
        keys = [names[name] for name in role.headers if name in names and names[name] not in used]
        if keys:
            columns[role.name] = keys[0]
    return columns


def _find_column(name: str, first: Cells, where: str) -> ColumnKey:
    """Return the column with a name or number."""
    if not isinstance(first, dict) and name.isdecimal() and len(name) <= MAX_DIGITS:
        return int(name) - 1
    for normalize in (str.strip, str.lower, normalize_header):
        for key, header in _headers(first):
            if normalize(header.strip()) == normalize(name):
                return key
    if isinstance(first, dict):
        raise InputError(f"there is no field {name!r}", where=where, hint=f"there is {', '.join(map(str, first))}")
    hint = f"name columns by number, or as in the first line: {_shorten_cells(first)}"
    raise InputError(f"there is no column {name!r}", where=where, hint=hint)


def _shorten_cells(first: Cells) -> str:
    return shorten(", ".join(map(str, first)), 80)


def shorten(text: str, most: int = 40) -> str:
    """Return the start of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def _check_columns(keys: ColumnMap, schema: TableSchema, first: Cells, where: str) -> None:
    """Check that every required role has a column and no column has two roles."""
    for role in schema.roles:
        if not role.optional and role.name not in keys:
            noun = "field" if isinstance(first, dict) else "column"
            what = f"cannot tell which {noun} is the {role.name}"
            hint = f"choose it with --columns {role.name}=…; there is {_shorten_cells(first)}"
            raise InputError(what, where=where, hint=hint)
    used = list(keys.values())
    if len(set(used)) < len(used) or any(isinstance(key, int) and key < 0 for key in used):
        names = " and ".join(keys)
        if isinstance(first, dict):
            duplicate = next(key for key in used if used.count(key) > 1)
            raise InputError(f"{names} are both the field {duplicate!r}", where=where, hint="choose different ones")
        what = f"{names} are the columns {' and '.join(map(_shown_key, used))}"
        raise InputError(what, where=where, hint="choose different ones, counted from 1")
    _check_width(first, _min_width(keys), schema, where)


def _min_width(keys: ColumnMap) -> int:
    return 1 + max((key for key in keys.values() if isinstance(key, int)), default=-1)


def _check_width(cells: Cells, needed: int, schema: TableSchema, where: str) -> None:
    if len(cells) < needed:
        what = f"{counted(len(cells), 'column')} where {needed} are needed"
        raise InputError(what, where=where, hint=schema.short_line_hint)


# Values of the roles.


def _skip_short(
    rows: Iterator[tuple[int, Cells]], needed: int, name: str, notes: list[str]
) -> Iterator[tuple[int, Cells]]:
    short = []
    for number, cells in rows:
        if cells is None or isinstance(cells, dict) or len(cells) >= needed:
            yield number, cells
        else:
            short.append(number)
    if short:
        notes.append(f"{name}: left out {counted(len(short), 'line')} with too few columns ({line_numbers(short)})")


def _role_values(
    rows: Iterator[tuple[int, Cells]], keys: ColumnMap, schema: TableSchema, name: str, width: int, notes: list[str]
) -> Iterator[RoleRow]:
    """Yield the value of each role in each line; note lines with more columns than the first."""
    roles = [role for role in schema.roles if role.name in keys]
    needed, wide = _min_width(keys), []
    for number, cells in rows:
        where = f"{name}:{number}"
        if cells is None:
            yield number, {role.name: "" for role in roles}
        elif isinstance(cells, dict):
            yield number, {role.name: _field_value(cells, str(keys[role.name]), role, where) for role in roles}
        else:
            _check_width(cells, needed, schema, where)
            if len(cells) > width:
                wide.append(number)
            yield number, {role: cells[key] for role, key in keys.items() if isinstance(key, int)}
    if wide:
        lines = f"{counted(len(wide), 'line')} {'has' if len(wide) == 1 else 'have'}"
        notes.append(f"{name}: {lines} more columns than the first, which are ignored ({line_numbers(wide)})")


def _field_value(record: dict[str, Any], name: str, role: ColumnRole, where: str) -> Any:
    if name not in record:
        if role.optional:
            return None if role.accepts == "any" else ""
        raise InputError(f"there is no field {name!r}", where=where, hint="give the same fields in every line")
    value = record[name]
    if role.accepts == "any":
        return value
    if role.accepts == "value" and (value is None or isinstance(value, int | float)):
        return "" if value is None else json.dumps(value)
    return check_text(value, name, where)
