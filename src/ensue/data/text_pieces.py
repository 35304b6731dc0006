"""Cut text into pieces of about a mebibyte that join to exactly the original.

A piece is cut where no tokenizer looks across the boundary: after a line end or before a space that stands between two
visible characters. Without such a boundary a piece grows up to four mebibytes; then it is cut at any line end, or
between two characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO

from ensue.data.text_files import decode_utf8

PIECE_BYTES = 1 << 20
"""Approximate size of a piece."""
MAX_GROWTH = 4
"""A piece grows up to this multiple of its size before it is cut at an unsafe position."""

_TAIL_BYTES = 1 << 16
"""The end of a block that is searched for a boundary first."""
_WHITESPACE = (
    rb"\xc2[\x85\xa0] \xe1\x9a\x80 \xe1\xa0\x8e \xe2\x80[\x80-\x8f\xa8-\xaf] "
    rb"\xe2\x81[\x9f-\xaf] \xe3\x80\x80 \xef\xbb\xbf"
).split()
"""White space and invisible characters beyond ASCII."""
_VISIBLE_BEFORE = rb"(?<![\x00-\x20\x7f])" + b"".join(b"(?<!" + white + b")" for white in _WHITESPACE)
_VISIBLE_AFTER = rb"(?=(?s:.{3}))(?![\x00-\x20\x7f])" + b"".join(b"(?!" + white + b")" for white in _WHITESPACE)
_BOUNDARIES = (
    (b"\n", re.compile(rb"[!-~]\n(?=[!-~])")),
    (b" ", re.compile(rb"[!-~](?= [!-~])")),
    (b"\n", re.compile(_VISIBLE_BEFORE + rb"(?<!^)\n" + _VISIBLE_AFTER)),
    (b" ", re.compile(_VISIBLE_BEFORE + rb"(?<!^)(?= " + _VISIBLE_AFTER + rb")")),
)
"""Safe boundaries, preferred first: ASCII line ends and spaces, which are fast to find, then those of all scripts.
Each comes with the byte it contains, so that text without that byte is not searched."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a document."""

    text: str
    ends: bool
    """True for the last piece of its document."""
    origin: str
    """The file (with a line, in JSONL) or the built-in document it comes from."""


Part = tuple[str, bool, bool]
"""The text of a piece, whether it starts a line, and whether it ends its document."""


def as_parts(pieces: Iterable[Piece]) -> Iterator[Part]:
    """Convert pieces to parts."""
    opens = True
    for piece in pieces:
        yield piece.text, opens, piece.ends
        opens = piece.ends or piece.text.endswith("\n")


def cut_file(file: IO[bytes], name: str) -> Iterator[Piece]:
    """Read one document in pieces."""
    line, buffer, more = 1, b"", True
    while more:
        block = file.read(PIECE_BYTES)
        buffer, more = buffer + block, bool(block)
        while length := cut_length(buffer, PIECE_BYTES):
            yield Piece(decode_utf8(buffer[:length], name, line), False, name)
            line += buffer.count(b"\n", 0, length)
            buffer = buffer[length:]
    yield Piece(decode_utf8(buffer, name, line), True, name)


def cut_text(text: str, origin: str = "") -> Iterator[Piece]:
    """Cut a document that is already in memory into pieces."""
    *first, last = cut_bytes(text.encode(), PIECE_BYTES)
    for data in first:
        yield Piece(data.decode(), False, origin)
    yield Piece(last.decode(), True, origin)


def cut_bytes(data: bytes, size: int) -> Iterator[bytes]:
    """Cut UTF-8 into chunks of about ``size`` bytes at the boundaries of pieces; yields at least one chunk."""
    at = 0
    while length := cut_length(data[at : at + MAX_GROWTH * size + 1], size):
        yield data[at : at + length]
        at += length
    yield data[at:]


def cut_length(data: bytes, size: int) -> int:
    """Return the length of the next piece: about ``size`` bytes, cut at a safe boundary if there is one.

    0 means that ``data`` is one piece so far; more text may contain a boundary.

    >>> cut_length(b"one two three", 9), cut_length(b"one two three", 2), cut_length(b"one two", 9)
    (7, 3, 0)
    """
    end = size
    while end < len(data):
        length = safe_cut(data[:end])
        if length or end >= size * MAX_GROWTH:
            return length or cut_point(data[:end])
        end *= 2
    return 0


def safe_cut(block: bytes) -> int:
    """Return the last safe boundary in a block of UTF-8 that continues after its end, or 0 if there is none."""
    for start in dict.fromkeys((max(0, len(block) - _TAIL_BYTES), 0)):
        for contained, boundary in _BOUNDARIES:
            if block.find(contained, start) < 0:
                continue
            ends = [match.end() for match in boundary.finditer(block, start)]
            if ends:
                return ends[-1]
    return 0


def cut_point(block: bytes) -> int:
    """Return where to cut a block of UTF-8 that continues after its end, at a safe boundary or not.

    >>> cut_point(b"one\\ntwo\\nthr"), cut_point(b"one two thr"), cut_point("añ".encode()[:2])
    (8, 7, 1)
    """
    if boundary := safe_cut(block) or block.rfind(b"\n") + 1:
        return boundary
    end = len(block)
    lead = end - 1
    while lead > end - 4 and lead > 0 and block[lead] & 0xC0 == 0x80:
        lead -= 1
    width = 1 + sum(block[lead] >= first for first in (0xC0, 0xE0, 0xF0))
    return lead if lead > 0 and end - lead < width else end
