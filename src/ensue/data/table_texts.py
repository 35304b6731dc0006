"""The texts of a table as documents, for training a language model on them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ensue.core.errors import InputError
from ensue.data.labelled import note_empty_lines, text_schema
from ensue.data.lines import source_name
from ensue.data.sources import TableColumn
from ensue.data.tables import parse_columns, read_table
from ensue.data.text_pieces import Piece, cut_text


def table_text_source(file: str | Path | TableColumn, columns: str, skip: bool = False) -> TableColumn:
    """Return a table as a source of text; ``columns`` must name the text column, so that no label is read as text."""
    if isinstance(file, TableColumn):
        return file
    said = parse_columns(columns, "text=2")
    if set(said) != {"text"}:
        raise InputError(f"columns of a text are named as text=2, not {columns!r}", hint="name the text alone")
    return TableColumn(file, columns, skip)


def table_pieces(source: TableColumn, notes: list[str]) -> Iterator[Piece]:
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
