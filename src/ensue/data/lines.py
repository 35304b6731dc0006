"""Lines of a file or of standard input, some at a time, each as soon as it is there."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from ensue.core.errors import InputError
from ensue.data.reading import decoded, opened, pieces, skip_mark
from ensue.data.sources import files_of

CHUNK = 1 << 16
"""Bytes that standard input is asked for at once; it answers with what it has."""


def read_lines(source: str | Path) -> Iterator[str]:
    """The lines of one file or of standard input ("-"), one at a time, without their ends.

    Whatever the file's ending, nothing but gzip is undone: this is what tables and tagged words are read from.
    """
    if source != "-" and is_folder(source):
        raise InputError("is a folder", where=str(source), mend="give one of its files")
    for path, name, _ in files_of(source, []):
        with opened(path, name) as file:
            skip_mark(file, name)
            for number, data in enumerate(file, start=1):
                yield decoded(data, name, number).removesuffix("\n").removesuffix("\r")


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
    if name != "-" and Path(name).is_dir():
        raise InputError("is a folder", where=str(name), mend="give one of its files")
    rest = ""
    for text in _typed() if name == "-" else (piece.text for piece in pieces([Path(name)])):
        *lines, rest = (rest + text).split("\n")
        yield from _cut(lines, most)
    if rest:
        yield from _cut([rest], most)


def _cut(lines: list[str], most: int) -> Iterator[list[str]]:
    for at in range(0, len(lines), most):
        yield [line.removesuffix("\r") for line in lines[at : at + most]]


def _typed() -> Iterator[str]:
    """Standard input in whole lines, as they come."""
    waiting, number = b"", 1
    while chunk := os.read(sys.stdin.fileno(), CHUNK):
        whole, newline, waiting = (waiting + chunk).rpartition(b"\n")
        if newline:
            yield _decoded(whole + newline, number)
            number += whole.count(b"\n") + 1
    if waiting:
        yield _decoded(waiting, number)


def _decoded(data: bytes, number: int) -> str:
    try:
        text = data.decode("utf-8")
        return text.removeprefix("\ufeff") if number == 1 else text
    except UnicodeDecodeError as error:
        line = number + data[: error.start].count(b"\n")
        raise InputError("is not UTF-8", where=f"standard input, line {line}", mend="convert it to UTF-8") from error
