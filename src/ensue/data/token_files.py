"""The file that tokens are written to, which can be gone on with after a stop at any moment.

    .NAME.tokens.part      the tokens so far; held by the one process that writes them
    .NAME.tokens.journal   a line for each bundle that is in it: where it ends, the checksum up to there, all counts
    NAME.tokens, NAME.json the finished file and its card

A line of the journal counts only if the tokens it speaks of are there and have its checksum, so that nothing need be
forced to the disk on the way: what a killed process or a power cut has left is gone on with from the last line that
holds.
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
"""Not everywhere."""
READ_BYTES = 1 << 22
"""So many bytes of a file are read at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCounts:
    """What is known of the tokens so far."""

    parts: int = 0
    """How many parts of the text are in it."""
    count: int = 0
    sum: int = 0
    """The checksum of the tokens."""
    bytes: int = 0
    words: int = 0
    documents: int = 0
    surcharge: float = 0.0
    unknown: int = 0
    open: bool = False
    """Whether a word stands at the very end that may go on."""

    def plus(self, found: Encoded, parts: int) -> TokenCounts:
        """With one more bundle."""
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
        """What stands beside the finished file."""
        names = ("count", "sum", "bytes", "words", "documents", "surcharge", "unknown")
        return {name: getattr(self, name) for name in names}


class TokenFile:
    """A file of tokens as it grows; made by ``open_token_file``."""

    def __init__(self, file: Path, part: IO[bytes], dtype: np.dtype[Any], first: int) -> None:
        """``first``: the token before all others."""
        self._file, self._part, self._dtype, self._first = file, part, dtype, first
        self._journal = _journal(file).open("a+b")
        self.tally, end = self._found()
        self._part.truncate(self.tally.count * dtype.itemsize)
        self._journal.truncate(end)  # what stands after a line that does not hold means nothing
        if not self.tally.count:
            self.restart()

    def restart(self) -> None:
        """Drop what was found."""
        self._part.truncate(0)
        self._journal.truncate(0)
        begin = np.array([self._first], self._dtype)
        self._part.write(begin.data)
        self.tally = TokenCounts(count=1, sum=zlib.crc32(begin.data))

    def add(self, found: Encoded, parts: int) -> None:
        """The next bundle, of so many parts."""
        self._part.write(found.tokens.data)
        self._part.flush()
        self.tally = self.tally.plus(found, parts)
        self._journal.write(json.dumps(asdict(self.tally)).encode() + b"\n")
        self._journal.flush()

    def finish(self, card: Path, facts: dict[str, Any]) -> None:
        """Write the card, and give the file its name, which makes it whole."""
        self._part.flush()
        os.fsync(self._part.fileno())
        write_json(card, {**facts, "dtype": self._dtype.str, **self.tally.card()})
        _part(self._file).replace(self._file)
        sync(self._file.parent)
        _journal(self._file).unlink(missing_ok=True)

    def drop(self) -> None:
        """Leave nothing."""
        _part(self._file).unlink(missing_ok=True)
        _journal(self._file).unlink(missing_ok=True)

    def close(self) -> None:
        """Leave it as it is."""
        self._journal.close()

    def _found(self) -> tuple[TokenCounts, int]:
        """The last line of the journal whose tokens are there, and where it ends; or an empty tally."""
        holds, end, at, total = TokenCounts(), 0, 0, 0
        self._part.seek(0)
        self._journal.seek(0)
        for line in self._journal:
            try:
                said = replace(TokenCounts(), **json.loads(line))
            except (ValueError, TypeError):  # torn
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
    """The file for some tokens, with what an earlier process has left of it; others who want to write it wait.

    ``waiting`` is called where this one has to. It may be that the other has finished the file: look, and ``drop``.
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
    """A file for this process alone; it ends with the process, however that ends."""
    told = False
    while True:
        with path.open("a+b") as file:
            if FCNTL is None or _locked(file):
                if FCNTL is not None and not _is(path, file):  # it has been given another name in the meantime
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
    """Whether this is still the file of that name."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _part(file: Path) -> Path:
    return file.with_name(f".{file.name}.part")


def _journal(file: Path) -> Path:
    return file.with_name(f".{file.name}.journal")
