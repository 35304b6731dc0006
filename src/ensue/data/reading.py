"""Read the text of files, folders, standard input, tables and built-in corpora, in pieces."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

from ensue.core.errors import InputError
from ensue.data.corpora import BUILTIN, builtin_documents
from ensue.data.labelled import note_empty_lines, text_schema
from ensue.data.lines import bounded_lines, check_text, parse_object, source_name
from ensue.data.sources import Slice, Source, TableColumn, as_source_list, is_builtin, is_jsonl, source_files
from ensue.data.tables import parse_columns, read_table
from ensue.data.text_files import BOM, decode_utf8, open_bytes, skip_bom
from ensue.data.text_pieces import Piece, cut_file, cut_text


def read_pieces(
    sources: Sequence[Source] | Source, field: str | None = None, notes: list[str] | None = None
) -> Iterator[Piece]:
    """Read the text of ``sources`` in order; ``notes`` collects what is skipped and why.

    ``field`` is the JSONL field that contains the text (default ``text``); if given, standard input is read as JSONL.

    >>> list(read_pieces(["hello"]))
    [Piece(text='hello', ends=True, origin='hello')]
    """
    notes = [] if notes is None else notes
    for source in as_source_list(sources):
        if isinstance(source, Slice):
            yield from _read_slice(source, field, notes)
        elif isinstance(source, TableColumn):
            yield from _read_table_texts(source, notes)
        elif is_builtin(source):
            for origin, text in builtin_documents(str(source)):
                yield from cut_file(io.BytesIO(text.encode()), origin)
        else:
            yield from _read_source(source, field, notes)


def table_text_source(file: str | Path | TableColumn, columns: str, skip: bool = False) -> TableColumn:
    """Return a table as a source of text; ``columns`` must name the text column, so that no label is read as text."""
    if isinstance(file, TableColumn):
        return file
    if set(parse_columns(columns, "text=2")) != {"text"}:
        raise InputError(f"columns of a text are named as text=2, not {columns!r}", hint="name the text alone")
    return TableColumn(file, columns, skip)


class TextMeasure:
    """The SHA-256 of a text with its document boundaries, whatever the file format, and its size in bytes."""

    def __init__(self) -> None:
        self.size, self._digest = 0, hashlib.sha256()

    @property
    def hash(self) -> str:
        """The SHA-256 of what was read so far."""
        return self._digest.hexdigest()

    def watch(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """Yield pieces, and measure each."""
        for piece in pieces:
            data = piece.text.encode()
            self.size += len(data)
            self._digest.update(data)
            if piece.ends:
                self._digest.update(b"\xff")  # never occurs in UTF-8
            yield piece


def measure_text(
    sources: Sequence[Source] | Source, field: str | None = None, notes: list[str] | None = None
) -> tuple[str, int]:
    """Return the hash of the text and its size in bytes; see ``TextMeasure``."""
    measure = TextMeasure()
    for _ in measure.watch(read_pieces(sources, field, notes)):
        pass
    return measure.hash, measure.size


def changed_while_read(sources: Sequence[Source] | Source) -> InputError:
    """Return the error for a text that was another when it was read again."""
    where = ", ".join(str(source) for source in as_source_list(sources))
    return InputError("the text changes while it is read", where=where, hint="wait until it is complete, or copy it")


def _read_source(source: str | Path, field: str | None, notes: list[str]) -> Iterator[Piece]:
    count = 0
    for path, name, in_folder in source_files(source, notes, corpora=tuple(BUILTIN)):
        jsonl = is_jsonl(path) or (source == "-" and field is not None)
        with open_bytes(path, name) as file:
            start = file.peek(1 << 12)[: 1 << 12]
            if in_folder and (not start.removeprefix(BOM) or b"\0" in start):
                notes.append(f"{name}: skipped, {'binary' if start.removeprefix(BOM) else 'empty'}")
                continue
            skip_bom(file, name)
            count += 1
            yield from _read_jsonl(file, name, field or "text", notes) if jsonl else cut_file(file, name)
    if not count:
        raise InputError("there is no text in this folder", where=str(source), hint="give one with text files")


def _read_jsonl(file: IO[bytes], name: str, field: str, notes: list[str]) -> Iterator[Piece]:
    count = empty = 0
    for number, line in enumerate(bounded_lines(file, name), start=1):
        if not line.strip():
            continue
        where = f"{name}:{number}"
        record = parse_object(decode_utf8(line, name, number), where, f'"{field}": "…"')
        if field not in record:
            hint = f"name one of its fields: {', '.join(map(str, record))}" if record else "the object is empty"
            raise InputError(f"there is no field {field!r}", where=where, hint=hint)
        if not (text := check_text(record[field], field, where)):
            empty += 1
            continue
        count += 1
        yield from cut_text(text, where)
    if empty:
        notes.append(f"{name}: skipped {empty} documents without text")
    if not count:
        raise InputError("there is no document in this file", where=name, hint="give one JSON object a line")


def _read_table_texts(source: TableColumn, notes: list[str]) -> Iterator[Piece]:
    """Yield the text of each line as a document."""
    name, full, empty = source_name(source.file), 0, []
    table = read_table(source.file, text_schema("classify", False), parse_columns(source.columns), notes, source.skip)
    for number, row in table.rows:
        text = row.get("text", "").strip()
        if not text:
            empty.append(number)
            continue
        full += 1
        yield from cut_text(text, f"{name}:{number}")
    note_empty_lines(empty, full, name, notes)


def _read_slice(part: Slice, field: str | None, notes: list[str]) -> Iterator[Piece]:
    """Read the pieces of a slice; the end of the slice counts as the end of a document."""
    at = 0
    for piece in read_pieces(part.sources, field, notes):
        data = piece.text.encode()
        start, stop = max(0, part.start - at), len(data)
        at += stop
        if at <= part.start:
            continue
        last = part.stop is not None and at >= part.stop
        if part.stop is not None:
            stop -= max(0, at - part.stop)
        try:
            text = data[start:stop].decode()
        except UnicodeDecodeError as error:  # the cut was between two characters
            raise changed_while_read(part.sources) from error
        yield Piece(text, piece.ends or last, piece.origin)
        if last:
            return
