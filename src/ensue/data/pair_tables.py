"""Sentence pairs from one file that has both sides: columns between tabs or commas, or JSONL.

``read_columns`` and ``read_records`` answer what the file was taken for and its rows. Which column or field is the
source and which the target is seen from the first line that has anything in it, unless it was said.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError
from ensue.core.wording import counted
from ensue.data.reading import decoded, opened
from ensue.data.sources import files_of

Row = tuple[int, str, str]
"""A line's number, its source and its target."""

SIDES = ("source", "target")
_WORDS = """
    source src target tgt trg input output original translation translated text sentence sentences line phrase
    lang language reference ref hypothesis
    ar be bg bn ca cs cy da de el en eo es et eu fa fi fr ga gl he hi hr hu hy id is it ja ka kk ko lt lv mk ms nb
    nl nn no pl pt ro ru sk sl sq sr sv sw ta te th tr uk ur uz vi zh
    ara bul cat ces cze dan deu ger ell gre eng est fas per fin fra fre gle heb hin hrv hun ind isl ita jpn kor lat
    lav lit nld dut nob nor pol por ron rum rus slk slv spa sqi srp swe tur ukr urd vie zho chi
    arabic bulgarian catalan chinese croatian czech danish dutch english estonian finnish french german greek hebrew
    hindi hungarian icelandic indonesian irish italian japanese korean latin latvian lithuanian norwegian persian
    polish portuguese romanian russian serbian slovak slovenian spanish swedish turkish ukrainian urdu vietnamese
"""
_NAMES = frozenset(_WORDS.split())
"""Words that a header is made of: what columns hold, and languages by code or English name."""

Cells = tuple[int, list[str]]
"""A line's number and its columns; no columns if it is blank."""


def read_columns(lines: list[str], name: str, columns: dict[str, str]) -> tuple[str, Iterator[Row]]:
    """What lines with columns were taken for, and their rows; tabs are looked for before commas."""
    first = [line for line in lines if line.strip()][:100]
    if 2 * sum("\t" in line for line in first) >= len(first):
        return _table(_tab_rows(lines), "tab-separated", name, columns)
    if any("," in line for line in first):
        return _table(_comma_rows(lines, name), "comma-separated", name, columns)
    mend = "give two parallel files, or one with a tab between a sentence and its translation"
    raise InputError("has one column: neither tabs nor commas part its lines", where=name, mend=mend)


def _tab_rows(lines: list[str]) -> Iterator[Cells]:
    """Columns between tabs; quotation marks are text like any other."""
    for number, line in enumerate(lines, start=1):
        yield number, line.split("\t") if line.strip() else []


def _comma_rows(lines: list[str], name: str) -> Iterator[Cells]:
    """Columns between commas, in quotation marks where they hold a comma or a newline; as many in every line."""
    reader = csv.reader((line + "\n" for line in lines), strict=True)
    width, number = 0, 1
    try:
        for cells in reader:
            cells = cells if "".join(cells).strip() else []
            width = width or len(cells)
            if cells and len(cells) != width:
                what = f"{len(cells)} columns where the first line has {width}"
                mend = "put fields that hold commas in quotation marks, or part the columns with tabs"
                raise InputError(what, where=f"{name}:{number}", mend=mend)
            yield number, cells
            number = reader.line_num + 1
    except csv.Error as error:
        mend = "write a quotation mark inside a field twice, or part the columns with tabs"
        raise InputError(f"not comma-separated ({error})", where=f"{name}:{number}", mend=mend) from error


def _until_full(rows: Iterator[tuple[int, Any]], name: str) -> list[tuple[int, Any]]:
    """The lines up to the first that is not blank, which is the last of them."""
    read = []
    for row in rows:
        read.append(row)
        if row[1]:
            return read
    raise InputError("there is no pair in this file", where=name, mend="give sentences and translations")


def _table(rows: Iterator[Cells], kind: str, name: str, columns: dict[str, str]) -> tuple[str, Iterator[Row]]:
    """Pairs from columns; the first line with anything in it says whether there is a header."""
    read = _until_full(rows, name)
    number, first = read[-1]
    (source, target), header = _places_of(first, columns, f"{name}:{number}")
    called = " and ".join(first[place].strip() if header else str(place + 1) for place in (source, target))

    def sides() -> Iterator[Row]:
        for at, cells in chain(read[:-1] if header else read, rows):
            _check_width(cells or first, max(source, target) + 1, f"{name}:{at}")
            yield (at, cells[source], cells[target]) if cells else (at, "", "")

    return f"{kind}, columns {called}, {'with a' if header else 'no'} header", sides()


def _check_width(cells: list[str], needed: int, where: str) -> None:
    """A line must have the columns that were chosen."""
    if len(cells) < needed:
        what = f"{counted(len(cells), 'column')} where {needed} are needed"
        raise InputError(what, where=where, mend="put both languages in every line")


def _places_of(cells: list[str], columns: dict[str, str], where: str) -> tuple[tuple[int, int], bool]:
    """Where the source and the target stand, counted from 0, and whether the first line is a header."""
    names = [cell.strip().lower() for cell in cells]
    if not columns and all(side in names for side in SIDES):
        columns = {side: side for side in SIDES}
    chosen: list[int] = []
    header = False
    for default, side in enumerate(SIDES, start=1):
        name = columns.get(side, str(default)).strip()
        if name.isdecimal():
            chosen.append(int(name) - 1)
        elif name.lower() in names:
            chosen.append(names.index(name.lower()))
            header = True
        else:
            shown = " ".join(", ".join(cells).split())[:80]
            mend = f"name columns by number, or as in the first line: {shown}"
            raise InputError(f"there is no column {name!r}", where=where, mend=mend)
    source, target = chosen
    if source == target or min(chosen) < 0:
        mend = "choose two, counted from 1"
        raise InputError(f"source and target are the columns {source + 1} and {target + 1}", where=where, mend=mend)
    _check_width(cells, max(chosen) + 1, where)
    return (source, target), header or (names[source] != names[target] and _is_header(names, chosen))


def _is_header(names: list[str], chosen: list[int]) -> bool:
    """Whether cells are names of columns rather than sentences: made of nothing but words that headers have.

    >>> [_is_header(names, [0, 1]) for names in (["en", "de"], ["source_text", "lang2"], ["no", "nein"])]
    [True, True, False]
    """
    words = [re.sub(r"\d+$", "", names[place]) for place in chosen]
    return all(set(re.split(r"[ _.:-]", word)) <= _NAMES for word in words)


def read_records(path: Path, name: str, columns: dict[str, str], notes: list[str]) -> tuple[str, Iterator[Row]]:
    """What a JSONL file was taken for, and its rows; all objects have the fields of the first."""
    objects = _objects(path, notes)
    read = _until_full(objects, name)
    number, first = read[-1]
    fields = _fields_of(_flat(first, f"{name}:{number}"), columns, f"{name}:{number}")

    def sides() -> Iterator[Row]:
        for at, record in chain(read, objects):
            if record is None:
                yield at, "", ""
            else:
                held, where = _flat(record, f"{name}:{at}"), f"{name}:{at}"
                yield at, _text(held, fields[0], where), _text(held, fields[1], where)

    return f"JSONL, fields {fields[0]} and {fields[1]}", sides()


def _objects(path: Path, notes: list[str]) -> Iterator[tuple[int, Any]]:
    """The JSON of each line; None for a blank one."""
    for file_path, name, _ in files_of(path, notes):
        with opened(file_path, name) as file:
            for number, data in enumerate(file, start=1):
                line = decoded(data.removeprefix(b"\xef\xbb\xbf") if number == 1 else data, name, number)
                try:
                    yield number, json.loads(line) if line.strip() else None
                except (ValueError, RecursionError) as error:
                    mend = "give one JSON object a line"
                    raise InputError("not JSON", where=f"{name}:{number}", mend=mend) from error


def _flat(record: Any, where: str) -> dict[str, Any]:
    """The fields of an object, and of a ``translation`` object inside it."""
    if not isinstance(record, dict):
        mend = 'a line should look like {"source": "…", "target": "…"}'
        raise InputError("not a JSON object", where=where, mend=mend)
    inner = record.get("translation")
    return {**record, **inner} if isinstance(inner, dict) else record


def _fields_of(record: dict[str, Any], columns: dict[str, str], where: str) -> tuple[str, str]:
    """The names of the source's and the target's field."""
    source, target = (columns.get(side, side) for side in SIDES)
    inner = record.get("translation")
    held = inner if isinstance(inner, dict) else record
    texts = [name for name, value in held.items() if isinstance(value, str)]
    if not columns and not {source, target} <= set(record) and len(texts) == 2:
        source, target = texts
    for name in (source, target):
        if name not in record:
            mend = f"say which are source and target; there is {', '.join(texts) or 'no text in it'}"
            raise InputError(f"there is no field {name!r}", where=where, mend=mend)
    if source == target:
        raise InputError(f"source and target are both the field {source!r}", where=where, mend="choose two")
    return source, target


def _text(record: dict[str, Any], name: str, where: str) -> str:
    """The text of a field."""
    if name not in record:
        raise InputError(f"there is no field {name!r}", where=where, mend="give the same fields in every line")
    value = record[name]
    if not isinstance(value, str):
        raise InputError(f"the field {name!r} is not text but {type(value).__name__}", where=where)
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        mend = "write the character as UTF-8"
        raise InputError("half of a surrogate pair, which is no character", where=where, mend=mend)
    return value
