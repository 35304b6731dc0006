"""Lines of a file or of standard input, some at a time, each as soon as it is there."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from ensue.core.errors import InputError
from ensue.data.sources import source_files
from ensue.data.text_files import decode_utf8, open_bytes, skip_bom

STDIN_CHUNK_BYTES = 1 << 16
"""Bytes that standard input is asked for at once; it answers with what it has."""


def read_lines(source: str | Path, corpora: Sequence[str] = ()) -> Iterator[str]:
    """The lines of one file or of standard input ("-"), one at a time, without their ends.

    Whatever the file's ending, nothing but gzip is undone: this is what tables and tagged words are read from.
    ``corpora`` are what could have been named in place of a file that is not there.
    """
    if source != "-" and is_folder(source):
        raise InputError("is a folder", where=str(source), hint="give one of its files")
    for path, name, _ in source_files(source, [], "give a file or -", corpora):
        with open_bytes(path, name) as file:
            skip_bom(file, name)
            for number, data in enumerate(file, start=1):
                yield decode_utf8(data, name, number).removesuffix("\n").removesuffix("\r")


def is_folder(source: str | Path) -> bool:
    """Whether this is a folder; a name that no file can have is none, which is said where it is read."""
    try:
        return Path(source).is_dir()
    except (OSError, ValueError):
        return False


def source_name(source: str | Path) -> str:
    """What errors and notes call a file or standard input."""
    return "standard input" if source == "-" else str(source)


def line_blocks(name: str | Path, most: int) -> Iterator[list[str]]:
    """Blocks of at most ``most`` lines, without their line ends. A line ends at a newline and nowhere else.

    Standard input ("-") is given on as it comes: what is typed or piped line by line is answered line by line.
    """
    for lines in map(iter, _typed()) if name == "-" else [read_lines(name)]:
        while block := list(islice(lines, most)):
            yield block


def _typed() -> Iterator[list[str]]:
    """The lines of standard input, as many at a time as come."""
    waiting, number = b"", 1
    while chunk := os.read(sys.stdin.fileno(), STDIN_CHUNK_BYTES):
        *whole, waiting = (waiting + chunk).split(b"\n")
        yield _decoded(whole, number)
        number += len(whole)
    if waiting:
        yield _decoded([waiting], number)


def _decoded(lines: list[bytes], number: int) -> list[str]:
    """Lines as text; ``number`` is that of the first, which may begin with the mark of UTF-8."""
    texts = [decode_utf8(line, source_name("-"), number + i).removesuffix("\r") for i, line in enumerate(lines)]
    return [texts[0].removeprefix("\ufeff"), *texts[1:]] if texts and number == 1 else texts
