"""Token files that can be resumed after an interruption at any moment.

    .NAME.tokens.part      the tokens so far; locked by the process that writes them
    .NAME.tokens.journal   a line per bundle: where it ends, the checksum up to there, all counts
    NAME.tokens, NAME.json the finished file and its metadata

A line of the journal counts only if its tokens are in the file and match its checksum, so nothing needs to be flushed
to disk on the way: after a crash or a power cut, writing resumes at the last valid line.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import numpy as np

from ensue.core.files import disk_errors, sync, write_json
from ensue.data.encoding import Encoded

FCNTL: Any = import_module("fcntl") if find_spec("fcntl") else None
"""None on systems without fcntl."""
READ_BYTES = 1 << 22
"""Bytes read from a file at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCounts:
    """Counts of the tokens so far."""

    parts: int = 0
    """Number of parts of the text."""
    count: int = 0
    sum: int = 0
    """Checksum of the tokens."""
    bytes: int = 0
    words: int = 0
    documents: int = 0
    surcharge: float = 0.0
    unknown: int = 0
    open: bool = False
    """True if the last character belongs to a word that may continue."""

    def plus(self, found: Encoded, parts: int) -> TokenCounts:
        """Return the counts with one more bundle."""
        return TokenCounts(
            parts=self.parts + parts,
            count=self.count + len(found.tokens),
            sum=zlib.crc32(found.tokens.data, self.sum),
            bytes=self.bytes + found.bytes,
            words=self.words + found.words - (self.open and found.begins),  # a word that was cut in two
            documents=self.documents + found.documents,
            surcharge=self.surcharge + found.surcharge,
            unknown=self.unknown + found.unknown,
            open=found.open if found.bytes or found.documents else self.open,
        )

    def card(self) -> dict[str, Any]:
        """Return the metadata of the finished file."""
        names = ("count", "sum", "bytes", "words", "documents", "surcharge", "unknown")
        return {name: getattr(self, name) for name in names}


class TokenFile:
    """A token file that is being written; created by ``open_token_file``."""

    def __init__(self, file: Path, part: IO[bytes], dtype: np.dtype[Any], first: int) -> None:
        """``first``: the token at the start of the file."""
        self._file, self._part, self._dtype, self._first = file, part, dtype, first
        self._journal = _journal(file).open("a+b")
        self.tally, end = self._found()
        self._part.truncate(self.tally.count * dtype.itemsize)
        self._journal.truncate(end)  # lines after an invalid one are invalid
        if not self.tally.count:
            self.restart()

    def restart(self) -> None:
        """Discard the tokens so far."""
        self._part.truncate(0)
        self._journal.truncate(0)
        begin = np.array([self._first], self._dtype)
        self._part.write(begin.data)
        self.tally = TokenCounts(count=1, sum=zlib.crc32(begin.data))

    def add(self, found: Encoded, parts: int) -> None:
        """Append a bundle of ``parts`` parts."""
        self._part.write(found.tokens.data)
        self._part.flush()
        self.tally = self.tally.plus(found, parts)
        self._journal.write(json.dumps(asdict(self.tally)).encode() + b"\n")
        self._journal.flush()

    def finish(self, card: Path, facts: dict[str, Any]) -> None:
        """Write the metadata and rename the file, which completes it."""
        self._part.flush()
        os.fsync(self._part.fileno())
        write_json(card, {**facts, "dtype": self._dtype.str, **self.tally.card()})
        _part(self._file).replace(self._file)
        sync(self._file.parent)
        _journal(self._file).unlink(missing_ok=True)

    def drop(self) -> None:
        """Delete the unfinished file."""
        _part(self._file).unlink(missing_ok=True)
        _journal(self._file).unlink(missing_ok=True)

    def close(self) -> None:
        """Close the journal; the unfinished file stays."""
        self._journal.close()

    def _found(self) -> tuple[TokenCounts, int]:
        """Return the last valid line of the journal and where it ends, or empty counts."""
        holds, end, at, total = TokenCounts(), 0, 0, 0
        self._part.seek(0)
        self._journal.seek(0)
        for line in self._journal:
            try:
                said = replace(TokenCounts(), **json.loads(line))
            except (ValueError, TypeError):  # an incomplete line
                break
            size = said.count * self._dtype.itemsize
            while at < size and (data := self._part.read(min(READ_BYTES, size - at))):
                at, total = at + len(data), zlib.crc32(data, total)
            if at != size or total != said.sum or not line.endswith(b"\n"):
                break
            holds, end = said, end + len(line)
        return holds, end


@contextmanager
def open_token_file(
    file: Path, dtype: np.dtype[Any], first: int, waiting: Callable[[], None] = lambda: None
) -> Iterator[TokenFile]:
    """Open a token file for writing, with the tokens of an interrupted process; other writers wait.

    ``waiting`` is called if this process has to wait. The other process may have finished the file: check, and
    ``drop``.
    """
    with disk_errors(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        with _held(_part(file), waiting) as part:
            made = TokenFile(file, part, dtype, first)
            try:
                yield made
            finally:
                made.close()


@contextmanager
def _held(path: Path, waiting: Callable[[], None]) -> Iterator[IO[bytes]]:
    """Lock a file exclusively; the lock ends with the process."""
    told = False
    while True:
        with path.open("a+b") as file:
            if FCNTL is None or _locked(file):
                if FCNTL is not None and not _is(path, file):  # renamed in the meantime
                    continue
                yield file
                return
        if not told:
            waiting()
            told = True
        time.sleep(0.2)


def _locked(file: IO[bytes]) -> bool:
    try:
        FCNTL.flock(file, FCNTL.LOCK_EX | FCNTL.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is(path: Path, file: IO[bytes]) -> bool:
    """Return whether an open file still has this path."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _part(file: Path) -> Path:
    return file.with_name(f".{file.name}.part")


def _journal(file: Path) -> Path:
    return file.with_name(f".{file.name}.journal")
