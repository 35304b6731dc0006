"""Text in, in pieces of about a mebibyte that join to exactly what was there.

Pieces are cut where no tokenizer here sees across: after a line end, or before a space, that stands between two
visible characters. Where there is none in a mebibyte a piece is longer; only where there is none in four, it is cut at
any line end, or between two characters.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ensue.core.errors import InputError
from ensue.data.corpora import BUILTIN, builtin
from ensue.data.sources import Column, Slice, Source, files_of, is_builtin, is_gzip, is_jsonl, listed

BLOCK = 1 << 20
"""About how many bytes a piece of text holds."""
PATIENCE = 4
"""A piece may be so many times as long, where no sooner place is found to cut it."""

_MARK = b"\xef\xbb\xbf"
_NEAR = 1 << 16
"""So near to its end a piece is cut, if it can be."""
_WHITE = (
    rb"\xc2[\x85\xa0]",
    rb"\xe1\x9a\x80",
    rb"\xe1\xa0\x8e",
    rb"\xe2\x80[\x80-\x8f\xa8-\xaf]",
    rb"\xe2\x81[\x9f-\xaf]",
    rb"\xe3\x80\x80",
    rb"\xef\xbb\xbf",
)
"""White space and what cannot be seen, beyond ASCII."""
_SEEN_BEFORE = rb"(?<![\x00-\x20\x7f])" + b"".join(b"(?<!" + white + b")" for white in _WHITE)
_SEEN_AFTER = rb"(?=(?s:.{3}))(?![\x00-\x20\x7f])" + b"".join(b"(?!" + white + b")" for white in _WHITE)
_BORDERS = (
    (b"\n", re.compile(rb"[!-~]\n(?=[!-~])")),
    (b" ", re.compile(rb"[!-~](?= [!-~])")),
    (b"\n", re.compile(_SEEN_BEFORE + rb"(?<!^)\n" + _SEEN_AFTER)),
    (b" ", re.compile(_SEEN_BEFORE + rb"(?<!^)(?= " + _SEEN_AFTER + rb")")),
)
"""Where no tokenizer sees across, the best first: line ends and spaces in ASCII, which are found fast, then in all
scripts. Each with what it holds: a text without it, one long word, is not searched."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a document."""

    text: str
    ends: bool
    """Whether this is the last piece of its document."""
    origin: str
    """The file (with a line, in JSONL) or the built-in document it comes from."""


Part = tuple[str, bool, bool]
"""The text of a piece, whether it opens a line, and whether it closes its document."""


def pieces(
    sources: Sequence[Source] | Source, field: str | None = None, notes: list[str] | None = None
) -> Iterator[Piece]:
    """The text of ``sources`` in order; ``notes`` collects what was left out and why.

    ``field`` names the text in JSONL files (``text`` if not said), and says that standard input is JSONL.

    >>> list(pieces(["hello"]))
    [Piece(text='hello', ends=True, origin='hello')]
    """
    notes = [] if notes is None else notes
    for source in listed(sources):
        if isinstance(source, Slice):
            yield from _sliced(source, field, notes)
        elif isinstance(source, Column):
            from ensue.data.table_texts import table_pieces  # it reads lines, as this does

            yield from table_pieces(source, notes)
        elif is_builtin(source):
            for origin, text in builtin(str(source)):
                yield from _cut(io.BytesIO(text.encode()), origin)
        else:
            yield from _read_source(source, field, notes)


def parts(read: Iterable[Piece]) -> Iterator[Part]:
    """The text of each piece, whether it opens a line, and whether it closes its document."""
    opens = True
    for piece in read:
        yield piece.text, opens, piece.ends
        opens = piece.ends or piece.text.endswith("\n")


def content_hash(sources: Sequence[Source] | Source, field: str | None = None) -> str:
    """The SHA-256 of the text and of where its documents end, however it is stored or compressed."""
    return measure_text(sources, field)[0]


def measure_text(
    sources: Sequence[Source] | Source, field: str | None = None, notes: list[str] | None = None
) -> tuple[str, int]:
    """The hash of the text and its number of bytes, in one pass."""
    digest, size = hashlib.sha256(), 0
    for piece in pieces(sources, field, notes):
        data = piece.text.encode()
        size += len(data)
        digest.update(data)
        if piece.ends:
            digest.update(b"\xff")  # a byte that no UTF-8 text holds
    return digest.hexdigest(), size


def _read_source(source: str | Path, field: str | None, notes: list[str]) -> Iterator[Piece]:
    """The text of a file, a folder or standard input."""
    count = 0
    for path, name, found in files_of(source, notes, corpora=tuple(BUILTIN)):
        lines = is_jsonl(path) or (source == "-" and field is not None)
        with opened(path, name) as file:
            start = file.peek(1 << 12)[: 1 << 12]
            if found and (not start.removeprefix(_MARK) or b"\0" in start):
                notes.append(f"{name}: skipped, {'binary' if start.removeprefix(_MARK) else 'empty'}")
                continue
            skip_mark(file, name)
            count += 1
            yield from _records(file, name, field or "text", notes) if lines else _cut(file, name)
    if not count:
        raise InputError("there is no text in this folder", where=str(source), hint="give one with text files")


def skip_mark(file: io.BufferedReader, name: str) -> None:
    """Go past the mark that some editors put before UTF-8; an empty file and one in UTF-16 are refused."""
    start = file.peek(len(_MARK))[: len(_MARK) + 1]
    if not start.removeprefix(_MARK):
        raise InputError("the file is empty", where=name, hint="give a file with text in it")
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError("is UTF-16", where=name, hint="convert it: iconv -f UTF-16 -t UTF-8")
    if start.startswith(_MARK):
        file.read(len(_MARK))


@contextmanager
def opened(path: Path, name: str) -> Iterator[io.BufferedReader]:
    """A file for reading bytes, decompressed if its name says so; what can go wrong is said in one line."""
    try:
        with path.open("rb", buffering=0) as raw:
            stream: Any = gzip.GzipFile(fileobj=raw) if is_gzip(path) else raw
            yield io.BufferedReader(stream, BLOCK)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        hint = "compress it again, or rename it if it is plain text"
        raise InputError("the gzip file is damaged or cut short", where=name, hint=hint) from error
    except PermissionError as error:
        raise InputError("may not be read", where=name, hint="change its permissions") from error


def _cut(file: IO[bytes], name: str) -> Iterator[Piece]:
    """One document in pieces."""
    line, buffer, more = 1, b"", True
    while more:
        block = file.read(BLOCK)
        buffer, more = buffer + block, bool(block)
        while at := cut_length(buffer, BLOCK):
            yield Piece(decoded(buffer[:at], name, line), False, name)
            line += buffer.count(b"\n", 0, at)
            buffer = buffer[at:]
    yield Piece(decoded(buffer, name, line), True, name)


def cut_length(data: bytes, size: int) -> int:
    """How long the next piece of some UTF-8 is: about ``size``, cut where no tokenizer sees across if it can be.

    0 means that it is one piece, as far as one can see; more text may show where to cut.

    >>> cut_length(b"one two three", 9), cut_length(b"one two three", 2), cut_length(b"one two", 9)
    (7, 3, 0)
    """
    reach = size
    while reach < len(data):
        at = safe_cut(data[:reach])
        if at or reach >= size * PATIENCE:
            return at or cut_point(data[:reach])
        reach *= 2
    return 0


def safe_cut(block: bytes) -> int:
    """The last place where no tokenizer sees across, in a block of UTF-8 that goes on after its end; 0 if none is."""
    for start in dict.fromkeys((max(0, len(block) - _NEAR), 0)):
        for white, border in _BORDERS:
            if block.find(white, start) < 0:
                continue
            found = [match.end() for match in border.finditer(block, start)]
            if found:
                return found[-1]
    return 0


def cut_point(block: bytes) -> int:
    """Where to cut a block of UTF-8 that goes on after its end.

    >>> cut_point(b"one\\ntwo\\nthr"), cut_point(b"one two thr"), cut_point("añ".encode()[:2])
    (8, 7, 1)
    """
    if found := safe_cut(block) or block.rfind(b"\n") + 1:
        return found
    at = len(block)
    lead = at - 1
    while lead > at - 4 and lead > 0 and block[lead] & 0xC0 == 0x80:
        lead -= 1
    wanted = 1 + sum(block[lead] >= first for first in (0xC0, 0xE0, 0xF0))
    return lead if lead > 0 and at - lead < wanted else at


def decoded(data: bytes, name: str, line: int) -> str:
    """UTF-8 as text; ``line`` is the number of the first line, for the error."""
    if (zero := data.find(b"\0")) >= 0:
        where = f"{name}:{line + data.count(10, 0, zero)}"
        raise InputError("binary data (a zero byte)", where=where, hint="give a text file in UTF-8")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        where = f"{name}:{line + data.count(10, 0, error.start)}"
        hint = "convert the file to UTF-8, for example with iconv -f LATIN1 -t UTF-8"
        raise InputError(f"not UTF-8 (byte 0x{data[error.start]:02x})", where=where, hint=hint) from error


def _records(file: IO[bytes], name: str, field: str, notes: list[str]) -> Iterator[Piece]:
    """The documents of a JSONL file, one a line."""
    count = empty = 0
    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        text = _record(decoded(line, name, number), f"{name}:{number}", field)
        if not text:
            empty += 1
            continue
        count += 1
        for piece in cut_text(text):
            yield Piece(piece.text, piece.ends, f"{name}:{number}")
    if empty:
        notes.append(f"{name}: skipped {empty} documents without text")
    if not count:
        raise InputError("there is no document in this file", where=name, hint="give one JSON object a line")


def _record(line: str, where: str, field: str) -> str:
    """The text in one line of JSON."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError("not JSON", where=where, hint="give one JSON object a line") from error
    if not isinstance(record, dict):
        raise InputError("not a JSON object", where=where, hint=f'a line should look like {{"{field}": "…"}}')
    if field not in record:
        hint = f"name one of its fields: {', '.join(map(str, record))}" if record else "the object is empty"
        raise InputError(f"there is no field {field!r}", where=where, hint=hint)
    text = record[field]
    if not isinstance(text, str):
        raise InputError(f"the field {field!r} is not text but {type(text).__name__}", where=where)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        hint = "write the character as UTF-8"
        raise InputError("half of a surrogate pair, which is no character", where=where, hint=hint) from error
    return text


def cut_text(text: str) -> Iterator[Piece]:
    """A document that is already in memory, in pieces."""
    *first, last = chunks(text.encode(), BLOCK)
    for data in first:
        yield Piece(data.decode(), False, "")
    yield Piece(last.decode(), True, "")


def chunks(data: bytes, size: int) -> Iterator[bytes]:
    """Some UTF-8 in parts of about ``size`` bytes, cut as pieces are; at least one."""
    at = 0
    while length := cut_length(data[at : at + PATIENCE * size + 1], size):
        yield data[at : at + length]
        at += length
    yield data[at:]


def _sliced(part: Slice, field: str | None, notes: list[str]) -> Iterator[Piece]:
    """The pieces of a slice; what is cut at its end counts as the end of a document."""
    at = 0
    for piece in pieces(part.sources, field, notes):
        data = piece.text.encode()
        start, stop = max(0, part.start - at), len(data)
        at += stop
        if at <= part.start:
            continue
        last = part.stop is not None and at >= part.stop
        if part.stop is not None:
            stop -= max(0, at - part.stop)
        yield Piece(data[start:stop].decode(), piece.ends or last, piece.origin)
        if last:
            return
