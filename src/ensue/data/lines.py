"""Read lines from a file or from standard input, as soon as they arrive."""

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
"""Bytes requested from standard input at once; a read returns what is available."""


def read_lines(source: str | Path, corpora: Sequence[str] = ()) -> Iterator[str]:
    """Yield the lines of one file or of standard input ("-") without their line ends.

    Only gzip is decoded, whatever the file's suffix. ``corpora`` are suggested if the file does not exist.
    """
    if source != "-" and is_folder(source):
        raise InputError("is a folder", where=str(source), hint="give one of its files")
    for path, name, _ in source_files(source, [], "give a file or -", corpora):
        with open_bytes(path, name) as file:
            skip_bom(file, name)
            for number, data in enumerate(file, start=1):
                yield decode_utf8(data, name, number).removesuffix("\n").removesuffix("\r")


def is_folder(source: str | Path) -> bool:
    """Return whether this is a folder; False for names that no file can have."""
    try:
        return Path(source).is_dir()
    except (OSError, ValueError):
        return False


def source_name(source: str | Path) -> str:
    """Return the name of a file or of standard input for errors and notes."""
    return "standard input" if source == "-" else str(source)


def line_blocks(name: str | Path, most: int) -> Iterator[list[str]]:
    """Yield blocks of at most ``most`` lines, without their line ends. A line ends at a newline only.

    Standard input ("-") is passed on as it arrives, so that each line typed or piped is processed at once.
    """
    for lines in map(iter, _typed()) if name == "-" else [read_lines(name)]:
        while block := list(islice(lines, most)):
            yield block


def _typed() -> Iterator[list[str]]:
    """Yield the lines of standard input, as many as arrive at a time."""
    waiting, number = b"", 1
    while chunk := os.read(sys.stdin.fileno(), STDIN_CHUNK_BYTES):
        *whole, waiting = (waiting + chunk).split(b"\n")
        yield _decoded(whole, number)
        number += len(whole)
    if waiting:
        yield _decoded([waiting], number)


def _decoded(lines: list[bytes], number: int) -> list[str]:
    """Decode lines; ``number`` is that of the first, which may start with a byte order mark."""
    texts = [decode_utf8(line, source_name("-"), number + i).removesuffix("\r") for i, line in enumerate(lines)]
    return [texts[0].removeprefix("\ufeff"), *texts[1:]] if texts and number == 1 else texts
