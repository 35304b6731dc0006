"""Sentence pairs from what people type: two parallel files, one file with columns, JSONL, or ``dates``.

A line ends at a newline (with or without a carriage return before it) and nowhere else, as in all text here: a
form feed or a Unicode line separator inside a sentence never shifts one side against the other.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from ensue.core.errors import InputError, unknown_name
from ensue.data.dates import date_pairs, describe
from ensue.data.reading import decoded, opened, pieces
from ensue.data.sources import files_of, is_builtin, is_jsonl
from ensue.data.tokenizers.protocol import Tokenizer

MOST_HELD_OUT = 2_000
"""A held-out part has at most so many pairs."""

SIDES = ("source", "target")
_SHOWN = 5
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


@dataclass(frozen=True, slots=True)
class Pairs:
    """Sentences and their translations."""

    source: list[str]
    target: list[str]
    numbers: list[int]
    """The line each pair came from, counted from 1."""
    understood: str
    """What the input was taken for, in a few words."""

    def __len__(self) -> int:
        return len(self.source)

    def chosen(self, places: Iterable[int]) -> Pairs:
        """Some of the pairs."""
        at = list(places)
        source, target = ([side[place] for place in at] for side in (self.source, self.target))
        return Pairs(source, target, [self.numbers[place] for place in at], self.understood)


Row = tuple[int, str, str]
"""A line's number, its source and its target."""


def read_pairs(
    sources: Sequence[str | Path], columns: Mapping[str, str] | None = None, notes: list[str] | None = None
) -> Pairs:
    """The sentence pairs of two parallel files, of one file with both languages, or of the corpus ``dates``.

    ``columns`` says which column or field is the source and which the target, by number (from 1) or by name.
    Pairs with an empty side are left out; ``notes`` collects how many and where.

    >>> read_pairs(["dates"]).understood
    'the built-in corpus dates (dates in 40 languages to ISO 8601), 30,000 pairs'
    """
    notes = [] if notes is None else notes
    sources = [sources] if isinstance(sources, str | Path) else list(sources)
    _check(sources, columns)
    name = " and ".join("standard input" if source == "-" else str(source) for source in sources)
    if sources == ["dates"]:
        return built_in_pairs("train")
    if len(sources) == 2:
        understood, rows = _parallel(sources[0], sources[1], notes)
    else:
        understood, rows = _one_file(sources[0], name, dict(columns or {}), notes)
    return _full(rows, understood, name, notes)


def built_in_pairs(part: str) -> Pairs:
    """The corpus ``dates``, its part ``train`` or ``valid``."""
    source, target = map(list, zip(*date_pairs(part)))
    understood = f"the built-in corpus dates ({describe()}), {len(source):,} pairs"
    return Pairs(source, target, list(range(1, len(source) + 1)), understood)


def _check(sources: list[str | Path], columns: Mapping[str, str] | None) -> None:
    """What can be said before anything is read."""
    if len(sources) not in (1, 2):
        mend = "give two parallel files, or one with both languages"
        raise InputError(f"sentence pairs do not come from {len(sources)} files", mend=mend)
    for source in sources:
        corpus = source == "dates" and isinstance(source, str)
        if (corpus and len(sources) == 2) or (is_builtin(source) and not corpus):
            what = "is to be given alone" if corpus else "has no translations"
            raise InputError(f"the corpus {what}", where=str(source), mend="give files, or the corpus dates alone")
        if source != "-" and _is_folder(Path(source)):
            raise InputError("is a folder", where=str(source), mend="give the two files in it")
    if columns and (len(sources) == 2 or sources == ["dates"]):
        raise InputError("columns are chosen in one file that has both languages", mend="leave the columns out")
    for side in columns or {}:
        if side not in SIDES:
            raise unknown_name("side of a pair", side, SIDES)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # too long for a name, which is said where the file is read
        return False


def _full(rows: Iterable[Row], understood: str, name: str, notes: list[str]) -> Pairs:
    """The pairs that have both sides, with a note on the others and on newlines inside a field."""
    pairs, empty, broken = Pairs([], [], [], understood), [], []
    for number, source, target in rows:
        if not (source.strip() and target.strip()):
            empty.append(number)
            continue
        if "\n" in source or "\n" in target:
            broken.append(number)
        pairs.source.append(_unbroken(source))
        pairs.target.append(_unbroken(target))
        pairs.numbers.append(number)
    if not len(pairs):
        raise InputError("there is no pair with both sides", where=name, mend="give sentences and translations")
    if empty:
        notes.append(f"{name}: left out {_counted(len(empty), 'pair')} with an empty side ({_places(empty)})")
    if broken:
        notes.append(f"{name}: newlines inside {_counted(len(broken), 'pair')} became spaces ({_places(broken)})")
    return pairs


def _unbroken(text: str) -> str:
    """A field of several lines as one: line ends would be taken for the end of the sentence."""
    return text.replace("\r\n", " ").replace("\n", " ") if "\n" in text else text


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _places(numbers: Sequence[int]) -> str:
    """The first few line numbers.

    >>> _places([3]), _places([1, 2, 3, 4, 5, 6])
    ('line 3', 'lines 1, 2, 3, 4, 5, …')
    """
    shown = ", ".join(map(str, numbers[:_SHOWN])) + (", …" if len(numbers) > _SHOWN else "")
    return f"line{'' if len(numbers) == 1 else 's'} {shown}"


def _lines(source: str | Path, notes: list[str]) -> list[str]:
    """The lines of a text."""
    # A path, so that a file with the name of a built-in corpus is read as the file it is.
    text = "".join(piece.text for piece in pieces([source if source == "-" else Path(source)], notes=notes))
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def _parallel(source: str | Path, target: str | Path, notes: list[str]) -> tuple[str, Iterator[Row]]:
    """Two files, line by line."""
    for path in (source, target):
        if is_jsonl(Path(path)):
            mend = "give it alone, with both languages in it"
            raise InputError("a JSONL file is not one side of parallel files", where=str(path), mend=mend)
    left, right = _lines(source, notes), _lines(target, notes)
    if len(left) != len(right):
        what = f"the files are not parallel: {len(left):,} lines and {len(right):,} lines"
        raise InputError(what, where=f"{source} and {target}", mend="give files whose lines belong together")
    numbers = range(1, len(left) + 1)
    return f"two parallel files, {_counted(len(left), 'line')} each", zip(numbers, left, right)


def _one_file(source: str | Path, name: str, columns: dict[str, str], notes: list[str]) -> tuple[str, Iterator[Row]]:
    """One file with both languages."""
    if source != "-" and is_jsonl(Path(source)):
        return _records(_objects(Path(source), notes), name, columns)
    lines = _lines(source, notes)
    first = [line for line in lines if line.strip()][:100]
    if 2 * sum("\t" in line for line in first) >= len(first):
        return _table(_tab_rows(lines), "tab-separated", name, columns)
    if any("," in line for line in first):
        return _table(_comma_rows(lines, name), "comma-separated", name, columns)
    mend = "give two parallel files, or one with a tab between a sentence and its translation"
    raise InputError("has one column: neither tabs nor commas part its lines", where=name, mend=mend)


Cells = tuple[int, list[str]]
"""A line's number and its columns; no columns if it is blank."""


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
        what = f"{_counted(len(cells), 'column')} where {needed} are needed"
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


def _records(objects: Iterator[tuple[int, Any]], name: str, columns: dict[str, str]) -> tuple[str, Iterator[Row]]:
    """Pairs from JSON objects, all with the fields of the first."""
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


def held_out_pairs(pairs: Pairs, share: float = 0.1, least: int = 1) -> tuple[Pairs, Pairs]:
    """A part to train on and about ``share`` of the pairs, at most 2,000, to validate with.

    Which pairs is decided by their text alone: those whose SHA-256 is smallest are held out. So the sample is fair,
    the same every time, and copies of a pair are on one side. Each side has at least ``least`` pairs.
    """
    if not 0 < share < 1:
        raise InputError(f"the share held out is {share}", mend="choose one between 0 and 1")
    copies: dict[bytes, list[int]] = {}
    for place, sides in enumerate(zip(pairs.source, pairs.target)):
        copies.setdefault(hashlib.sha256("\n".join(sides).encode()).digest(), []).append(place)
    wanted = min(MOST_HELD_OUT, max(least, round(share * len(pairs))))
    held: list[int] = []
    for digest in sorted(copies):
        if len(held) + len(copies[digest]) <= wanted:
            held += copies[digest]
        if len(held) == wanted:
            break
    if min(len(held), len(pairs) - len(held)) < max(1, least):
        what = f"{_counted(len(pairs), 'pair')} ({len(copies):,} different) are too few to hold a part out"
        raise InputError(what, mend="give more, or validation pairs with --valid")
    out = set(held)
    return pairs.chosen(place for place in range(len(pairs)) if place not in out), pairs.chosen(sorted(held))


@dataclass(frozen=True, eq=False)
class PairTokens:
    """Sentence pairs as tokens: pair i is ``source[source_at[i] : source_at[i + 1]]`` and the same of the target.

    Each sentence ends in its tokenizer's end mark.
    """

    source: np.ndarray = field(repr=False)
    """All source sentences one after the other, int32."""
    source_at: np.ndarray = field(repr=False)
    """(n + 1,), where each begins and the last ends, int64."""
    target: np.ndarray = field(repr=False)
    target_at: np.ndarray = field(repr=False)
    lines: np.ndarray = field(repr=False)
    """(n,), the line each pair came from, int64."""
    unknown: tuple[int, int]
    """How many tokens of the source and of the target are unknown."""
    bytes: int
    """Of the target sentences in UTF-8, each with a newline."""
    words: int
    """Of the target: what stands between white space, plus line ends."""
    surcharge: float
    """Bits that the target sentences cost beyond their tokens, because these do not say all of them."""

    def __len__(self) -> int:
        return len(self.lines)

    def pair(self, place: int) -> tuple[np.ndarray, np.ndarray]:
        """The tokens of a pair."""
        source, target = (slice(at[place], at[place + 1]) for at in (self.source_at, self.target_at))
        return self.source[source], self.target[target]

    @cached_property
    def hash(self) -> str:
        """The SHA-256 of all of it."""
        digest = hashlib.sha256()
        for array in (self.source, self.source_at, self.target, self.target_at, self.lines):
            digest.update(f"{array.dtype.str} {len(array)} ".encode())
            digest.update(array.tobytes())
        return digest.hexdigest()


def encode_pairs(
    pairs: Pairs,
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    *,
    most: int,
    notes: list[str] | None = None,
) -> PairTokens:
    """The pairs as tokens, without those that have more than ``most`` on a side, the end mark counted."""
    texts = ((pairs.source, source_tokenizer), (pairs.target, target_tokenizer))
    sides = [_encoded(text, pairs.numbers, tokenizer) for text, tokenizer in texts]
    kept = [place for place, both in enumerate(zip(*sides)) if max(map(len, both)) <= most]
    if len(kept) < len(pairs):
        fits = set(kept)
        long = [number for place, number in enumerate(pairs.numbers) if place not in fits]
        what = f"{_counted(len(long), 'pair')} with more than {most:,} tokens on a side ({_places(long)})"
        if not kept:
            raise InputError(f"all there is are {what}", mend="choose a larger context or a coarser tokenizer")
        if notes is not None:
            notes.append(f"left out {what}")
    (source, source_at), (target, target_at) = (_joined([side[place] for place in kept]) for side in sides)
    said = [pairs.target[place] for place in kept]
    return PairTokens(
        source,
        source_at,
        target,
        target_at,
        lines=np.array([pairs.numbers[place] for place in kept], dtype=np.int64),
        unknown=(_count(source, source_tokenizer.unknown), _count(target, target_tokenizer.unknown)),
        bytes=sum(len(text.encode()) + 1 for text in said),
        words=sum(len(text.split()) + 1 for text in said),
        surcharge=_surcharge(said, target_tokenizer),
    )


def _encoded(texts: list[str], numbers: list[int], tokenizer: Tokenizer) -> list[np.ndarray]:
    """Each sentence with its end mark."""
    end = np.array([tokenizer.end], dtype=np.int32)
    result = []
    for text, number in zip(texts, numbers):
        try:
            result.append(np.concatenate([tokenizer.encode(text), end], dtype=np.int32))
        except InputError as error:
            raise InputError(str(error), where=f"line {number}") from error
    return result


def _joined(parts: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Sentences one after the other, and where each begins."""
    at = np.zeros(len(parts) + 1, dtype=np.int64)
    np.cumsum([len(part) for part in parts], out=at[1:])
    return np.concatenate(parts), at


def _count(tokens: np.ndarray, mark: int | None) -> int:
    return 0 if mark is None else int((tokens == mark).sum())


def _surcharge(texts: list[str], tokenizer: Tokenizer) -> float:
    """What the sentences cost beyond their tokens; where the end mark is a newline, with their line ends."""
    if tokenizer.lines:
        return tokenizer.surcharge("".join(text + "\n" for text in texts))[0]
    return sum(tokenizer.surcharge(text)[0] for text in texts)
