"""Read lines, and JSON objects on lines, from a file or from standard input, with errors that name the line."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any

from ensue.core.errors import InputError
from ensue.data.listops import LISTOPS, listops_lines
from ensue.data.sources import source_files
from ensue.data.text_files import decode_utf8, open_bytes, skip_bom

MAX_LINE_BYTES = 1 << 28
"""Maximum length of a line."""
STDIN_CHUNK_BYTES = 1 << 16
"""Bytes requested from standard input at once; a read returns what is available."""


def read_lines(source: str | Path, corpora: Sequence[str] = ()) -> Iterator[str]:
    """Yield the lines of one file or of standard input ("-") without their line ends.

    Only gzip is decoded, whatever the file's suffix. ``corpora`` are suggested if the file does not exist. The corpus
    ``listops`` is built in.
    """
    if source == LISTOPS:
        yield from listops_lines()
        return
    if source != "-" and is_folder(source):
        raise InputError("is a folder", where=str(source), hint="give one of its files")
    for path, name, _ in source_files(source, [], "give a file or -", corpora):
        with open_bytes(path, name) as file:
            skip_bom(file, name)
            for number, data in enumerate(bounded_lines(file, name), start=1):
                yield decode_utf8(data, name, number).removesuffix("\n").removesuffix("\r")


def bounded_lines(file: IO[bytes], name: str) -> Iterator[bytes]:
    """Yield the lines of a file; raise InputError for one that is too long to hold, as a compressed file may have."""
    for number, line in enumerate(iter(partial(file.readline, MAX_LINE_BYTES), b""), start=1):
        if len(line) == MAX_LINE_BYTES:
            what = f"a line of {MAX_LINE_BYTES >> 20:,} MiB or more"
            raise InputError(what, where=f"{name}:{number}", hint="put a line end after each example")
        yield line


def located_lines(source: str | Path) -> Iterator[tuple[str, str]]:
    """Yield the location of each line, as ``file:line``, and the line."""
    name = source_name(source)
    for number, line in enumerate(read_lines(source), start=1):
        yield f"{name}:{number}", line


def parse_object(line: str, where: str, example: str) -> dict[str, Any]:
    """Parse a line of JSONL; the error shows the ``example`` of an object."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError("not JSON", where=where, hint="give one JSON object a line") from error
    if not isinstance(record, dict):
        raise InputError("not a JSON object", where=where, hint=f"a line should look like {{{example}}}")
    return record


def check_text(value: Any, field: str, where: str) -> str:
    """Return the value of a JSONL field, which must be text."""
    if not isinstance(value, str):
        raise InputError(f"the field {field!r} is not text but {type(value).__name__}", where=where)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        hint = "write the character as UTF-8"
        raise InputError("half of a surrogate pair, which is no character", where=where, hint=hint) from error
    return value


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
    for lines in map(iter, _read_stdin()) if name == "-" else [read_lines(name)]:
        while block := list(islice(lines, most)):
            yield block


def _read_stdin() -> Iterator[list[str]]:
    """Yield the lines of standard input, as many as arrive at a time."""
    rest, number = b"", 1
    while chunk := os.read(sys.stdin.fileno(), STDIN_CHUNK_BYTES):
        *whole, rest = (rest + chunk).split(b"\n")
        yield _decode_lines(whole, number)
        number += len(whole)
    if rest:
        yield _decode_lines([rest], number)


def _decode_lines(lines: list[bytes], number: int) -> list[str]:
    """Decode lines; ``number`` is that of the first, which may start with a byte order mark."""
    texts = [decode_utf8(line, source_name("-"), number + i).removesuffix("\r") for i, line in enumerate(lines)]
    return [texts[0].removeprefix("\ufeff"), *texts[1:]] if texts and number == 1 else texts
