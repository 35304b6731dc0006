"""The texts of a table as text to read: what a language model goes on with before it learns the labels beside them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ensue.core.errors import InputError
from ensue.data.labelled import note_empty, text_roles
from ensue.data.lines import source_name
from ensue.data.sources import Column
from ensue.data.tables import parse_columns, read_table
from ensue.data.text_pieces import Piece, cut_text


def table_texts(file: str | Path | Column, columns: str, skip: bool = False) -> Column:
    """A table as a source of text; ``columns`` must say which column the text is, so that no label is read as text."""
    if isinstance(file, Column):
        return file
    said = parse_columns(columns, "text=2")
    if set(said) != {"text"}:
        raise InputError(f"columns of a text are named as text=2, not {columns!r}", hint="name the text alone")
    return Column(file, columns, skip)


def table_pieces(source: Column, notes: list[str]) -> Iterator[Piece]:
    """Each line's text as a document of its own."""
    name, full, empty = source_name(source.file), 0, []
    table = read_table(source.file, text_roles("classify", False), parse_columns(source.columns), notes, source.skip)
    for number, row in table.rows:
        text = row.get("text", "").strip()
        if not text:
            empty.append(number)
            continue
        full += 1
        yield from cut_text(text, f"{name}:{number}")
    note_empty(empty, full, name, notes)
