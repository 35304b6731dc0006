"""The text and binary formats of word2vec, which gensim, fastText, spaCy and others read.

    2 3                        number of words and of dimensions; GloVe's files leave this line out
    play 0.1 -0.2 0.3          text: a word and its numbers, with spaces between
    play <12 bytes>            binary: a word, a space, and float32 numbers, the lowest byte first

Names that end in .gz are compressed.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np

from ensue.core.errors import InputError
from ensue.core.files import atomic_file
from ensue.core.wording import counted
from ensue.data.sources import is_gzip
from ensue.data.text_files import open_bytes, skip_bom
from ensue.data.word_vectors import WordVectors

BINARY = ".bin"
SUFFIXES = (BINARY, ".txt", ".vec", ".w2v", ".glove")
"""Suffixes of vector files, without .gz; other names work where only a vector file is possible."""
BLOCK_BYTES = 1 << 24
"""Bytes read at once."""
MAX_WIDTH = 1 << 16
MAX_LINE_BYTES = 1 << 22
"""Maximum length of a line: a word, and 64 bytes for each of its numbers."""
MAX_HEADER_BYTES = 32
"""Maximum length of a header: two numbers that a file can have."""
FIRST_ROWS = 1 << 12
"""Initial capacity if the number of vectors is unknown."""
CUT_SHORT_HINT = "the file may be cut short: fetch or write it again"


def is_vector_file(path: Path) -> bool:
    """True if a file has the suffix of a vector file.

    >>> is_vector_file(Path("glove.6B.100d.txt.gz")), is_vector_file(Path("model.arpa"))
    (True, False)
    """
    return (Path(path.stem) if is_gzip(path) else path).suffix.lower() in SUFFIXES


def read_word2vec(path: str | Path, notes: list[str] | None = None) -> WordVectors:
    """Read vectors, text or binary, with or without a header line; ``notes`` collects what is skipped."""
    path, name = Path(path), str(path)
    if path.is_dir():
        raise InputError("is a folder, not a file of vectors", where=name)
    if not path.exists():
        raise InputError("there is no such file", where=name)
    with open_bytes(path, name) as file:
        skip_bom(file, name)
        begin = file.peek(BLOCK_BYTES)[:BLOCK_BYTES]
        first, _, rest = begin.partition(b"\n")
        header = _header(first)
        if header is not None:
            file.readline()
        rows = _Rows(name, *(header or (0, 0)))
        if header is not None and not _is_text(rest, header[1]):
            _check_size(path, name, header)
            _read_binary(file, rows)
        else:
            _read_text(file, rows, 1 if header is None else 2)
    return rows.finished(notes)


def _header(line: bytes) -> tuple[int, int] | None:
    """Return the number of words and the width, if the first line is a header."""
    parts = line[: MAX_HEADER_BYTES + 1].split()
    if len(line) > MAX_HEADER_BYTES or len(parts) != 2 or not all(part.isdigit() for part in parts):
        return None
    return int(parts[0]), int(parts[1])


def _is_text(data: bytes, width: int) -> bool:
    """True if the data after the header is text: a word and numbers."""
    line, count = data.partition(b"\n")[0], min(width, 3)
    starts, ends = line.split(b" ")[1 : 1 + count], line.rsplit(maxsplit=count)[1:]
    return _numbers(starts) is not None or _numbers(ends) is not None


def _numbers(parts: list[bytes]) -> np.ndarray | None:
    """Parse fields as numbers; None if there are none or one is not a number."""
    try:
        with np.errstate(over="ignore"):  # infinite values are reported after reading
            return np.array(parts, dtype=np.float32) if parts else None
    except ValueError:
        return None


def _check_size(path: Path, name: str, header: tuple[int, int]) -> None:
    """Raise an error if a binary file is too short for its header, before allocating memory."""
    count, width = header
    if not is_gzip(path) and path.stat().st_size < count * (4 * width + 2):
        fits = path.stat().st_size // (4 * width + 2)
        what = f"has room for {fits:,} of the {count:,} vectors that its header announces"
        raise InputError(what, where=name, hint=CUT_SHORT_HINT)


class _Rows:
    """Collects unique words and their vectors."""

    def __init__(self, name: str, count: int, width: int) -> None:
        if count and not 0 < width <= MAX_WIDTH:
            what = f"vectors of {width:,} numbers are not supported"
            raise InputError(what, where=f"{name}:1", hint="is it a vector file?")
        self.name, self.count, self.width = name, count, width
        self.words: dict[str, int] = {}
        self.matrix = np.empty((min(count, FIRST_ROWS) or FIRST_ROWS, width), np.float32)
        self.seen = self.twice = 0

    def add(self, word: str, numbers: np.ndarray) -> None:
        """Add a word; duplicates are skipped."""
        self.seen += 1
        if word in self.words:
            self.twice += 1
            return
        row = len(self.words)
        if row == len(self.matrix):
            self.matrix = np.concatenate([self.matrix, np.empty_like(self.matrix)])
        self.matrix[row] = numbers
        self.words[word] = row

    @property
    def full(self) -> bool:
        """True if all vectors of the header have been read."""
        return bool(self.count) and self.seen == self.count

    def word(self, data: bytes, where: str) -> str:
        """Decode the bytes of a word."""
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            what = f"a word that is not UTF-8 (byte 0x{data[error.start]:02x})"
            hint = "convert the file to UTF-8" if where.rpartition(":")[2].isdigit() else CUT_SHORT_HINT
            raise InputError(what, where=where, hint=hint) from error

    def finished(self, notes: list[str] | None) -> WordVectors:
        """Return the vectors, after checking that they are complete and finite."""
        if not self.words:
            raise InputError("there are no vectors in this file", where=self.name, hint=CUT_SHORT_HINT)
        if self.count and self.seen < self.count:
            what = f"ends after {self.seen:,} of the {self.count:,} vectors that it announces"
            raise InputError(what, where=self.name, hint=CUT_SHORT_HINT)
        matrix = self.matrix[: len(self.words)]
        wrong = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
        if len(wrong):
            word = list(self.words)[wrong[0]]
            what = f"the vector of {word!r} holds a value that is not finite"
            raise InputError(what, where=self.name, hint=CUT_SHORT_HINT)
        if self.twice and notes is not None:
            notes.append(f"{self.name}: {counted(self.twice, 'word')} came twice; the first vector is used")
        return WordVectors(list(self.words), matrix, self.name)


def _read_text(file: IO[bytes], rows: _Rows, line: int) -> None:
    """Read a word and its numbers per line; a word may contain spaces, as in some GloVe files."""
    for number, data in enumerate(iter(partial(file.readline, MAX_LINE_BYTES), b""), start=line):
        where = f"{rows.name}:{number}"
        if len(data) == MAX_LINE_BYTES:
            raise InputError(f"a line of {MAX_LINE_BYTES:,} bytes or more", where=where, hint="is it a vector file?")
        data = data.rstrip(b"\r\n ")
        if not data:
            continue
        if rows.full:
            raise InputError(f"more than the {rows.count:,} vectors that it announces", where=where)
        if not rows.width:
            rows.width = _width(data, where)
            rows.matrix = np.empty((FIRST_ROWS, rows.width), np.float32)
        parts = data.rsplit(b" ", rows.width)
        numbers = _numbers(parts[1:])
        longer = b" " in parts[0] and _numbers(parts[0].rsplit(b" ", 1)[1:]) is not None
        if len(parts) != rows.width + 1 or numbers is None or not parts[0] or longer:
            raise InputError(_wrong(data, rows.width), where=where, hint=CUT_SHORT_HINT)
        rows.add(rows.word(parts[0], where), numbers)


def _width(data: bytes, where: str) -> int:
    """Return the width of the vectors, from the first line of a file without a header."""
    parts = data.split()[1:]
    texts = (n for n, part in enumerate(reversed(parts)) if n > MAX_WIDTH or _numbers([part]) is None)
    width = next(texts, len(parts))
    if not 0 < width <= MAX_WIDTH:
        hint = "give a vector file: a word and its numbers on each line, or the binary format"
        raise InputError("not a word and its numbers", where=where, hint=hint)
    return width


def _wrong(data: bytes, width: int) -> str:
    """Describe what is wrong with a line."""
    parts = data.split(b" ")
    if len(parts) - 1 != width:
        return f"{counted(len(parts) - 1, 'number')}, where vectors have {width}"
    bad = next((part for part in parts[1:] if _numbers([part]) is None), None)
    if bad is None:
        return "numbers without a word before them"
    return f"{bad.decode('utf-8', 'replace')!r} is not a number"


def _read_binary(file: IO[bytes], rows: _Rows) -> None:
    """Read words, each with a space and its bytes, with or without a newline after it."""
    size, buffer, at = 4 * rows.width, b"", 0
    while not rows.full:
        space = buffer.find(b" ", at)
        if space < 0 and len(buffer) - at > MAX_LINE_BYTES:
            raise InputError(f"a word of more than {MAX_LINE_BYTES:,} bytes", where=rows.name, hint=CUT_SHORT_HINT)
        if space < 0 or space + 1 + size > len(buffer):
            more = file.read(BLOCK_BYTES)
            if not more:
                return  # finished() reports how many are missing
            buffer, at = buffer[at:] + more, 0
            continue
        where = f"{rows.name}, vector {rows.seen + 1:,}"
        word = rows.word(buffer[at:space].lstrip(b"\n"), where)
        if not word:
            raise InputError("a vector without a word", where=where, hint=CUT_SHORT_HINT)
        rows.add(word, np.frombuffer(buffer, "<f4", rows.width, space + 1))
        at = space + 1 + size
    if (buffer[at:] + file.read(BLOCK_BYTES)).strip(b"\n"):
        raise InputError(f"more than the {rows.count:,} vectors that it announces", where=rows.name)


def write_word2vec(vectors: WordVectors, path: str | Path) -> None:
    """Write vectors: binary if the name ends in .bin, else text; compressed if it ends in .gz."""
    path = Path(path)
    if path.is_dir():
        raise InputError("is a folder", where=str(path), hint="name a file, e.g. vectors.txt or vectors.bin")
    for word in vectors.words:
        if not word or word.split() != [word]:
            raise InputError(f"the word {word!r} holds white space, which the format does not allow", where=str(path))
    binary = (Path(path.stem) if is_gzip(path) else path).suffix.lower() == BINARY
    with atomic_file(path) as temporary:
        with gzip.open(temporary, "wb", 6) if is_gzip(path) else temporary.open("wb", BLOCK_BYTES) as file:
            file.write(f"{len(vectors.words)} {vectors.matrix.shape[1]}\n".encode())
            for data in _lines(vectors, binary):
                file.write(data)
        temporary.chmod(0o644)


def _lines(vectors: WordVectors, binary: bool) -> Iterator[bytes]:
    """Yield each word with its vector; nine digits represent a float32 exactly."""
    form = " ".join(["%.9g"] * vectors.matrix.shape[1])
    for word, row in zip(vectors.words, np.asarray(vectors.matrix, np.float32)):
        if binary:
            yield word.encode() + b" " + row.astype("<f4").tobytes() + b"\n"
        else:
            yield f"{word} {form % tuple(row.tolist())}\n".encode()
