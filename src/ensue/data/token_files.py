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
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import numpy as np

from ensue.core.files import disk_errors, sync, write_json
from ensue.data.encoding import EncodedTexts

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

    def plus(self, bundle: EncodedTexts) -> TokenCounts:
        """Return the counts with one more bundle."""
        added = ("parts", "bytes", "documents", "surcharge", "unknown")
        return TokenCounts(
            count=self.count + len(bundle.tokens),
            sum=zlib.crc32(bundle.tokens.data, self.sum),
            words=self.words + bundle.words - (self.open and bundle.begins),  # a word that was cut in two
            open=bundle.open if bundle.bytes or bundle.documents else self.open,
            **{name: getattr(self, name) + getattr(bundle, name) for name in added},
        )


class TokenFile:
    """A token file that is being written; created by ``open_token_file``."""

    def __init__(self, file: Path, part: IO[bytes], dtype: np.dtype[Any], first: int) -> None:
        """``first``: the token at the start of the file."""
        self._file, self._part, self._dtype, self._first = file, part, dtype, first
        self._journal = _journal_path(file).open("a+b")
        self.counts, end = self._valid_counts()
        self._part.truncate(self.counts.count * dtype.itemsize)
        self._journal.truncate(end)  # lines after an invalid one are invalid
        if not self.counts.count:
            self.restart()

    def restart(self) -> None:
        """Discard the tokens so far."""
        self._part.truncate(0)
        self._journal.truncate(0)
        begin = np.array([self._first], self._dtype)
        self._part.write(begin.data)
        self.counts = TokenCounts(count=1, sum=zlib.crc32(begin.data))

    def add(self, bundle: EncodedTexts) -> None:
        """Append a bundle."""
        self._part.write(bundle.tokens.data)
        self._part.flush()
        self.counts = self.counts.plus(bundle)
        self._journal.write(json.dumps(asdict(self.counts)).encode() + b"\n")
        self._journal.flush()

    def finish(self, card: Path, facts: dict[str, Any]) -> None:
        """Write the metadata and rename the file, which completes it."""
        self._part.flush()
        os.fsync(self._part.fileno())
        counts = {name: value for name, value in asdict(self.counts).items() if name not in ("parts", "open")}
        write_json(card, {**facts, "dtype": self._dtype.str, **counts})
        _part_path(self._file).replace(self._file)
        sync(self._file.parent)
        _journal_path(self._file).unlink(missing_ok=True)

    def drop(self) -> None:
        """Delete the unfinished file."""
        _part_path(self._file).unlink(missing_ok=True)
        _journal_path(self._file).unlink(missing_ok=True)

    def close(self) -> None:
        """Close the journal; the unfinished file stays."""
        self._journal.close()

    def _valid_counts(self) -> tuple[TokenCounts, int]:
        """Return the last valid line of the journal and where it ends, or empty counts."""
        valid, end, at, checksum = TokenCounts(), 0, 0, 0
        self._part.seek(0)
        self._journal.seek(0)
        for line in self._journal:
            try:
                counts = TokenCounts(**json.loads(line))
            except (ValueError, TypeError):  # an incomplete line
                break
            size = counts.count * self._dtype.itemsize
            while at < size and (data := self._part.read(min(READ_BYTES, size - at))):
                at, checksum = at + len(data), zlib.crc32(data, checksum)
            if at != size or checksum != counts.sum or not line.endswith(b"\n"):
                break
            valid, end = counts, end + len(line)
        return valid, end


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
        with _open_locked(_part_path(file), waiting) as part, closing(TokenFile(file, part, dtype, first)) as target:
            yield target


@contextmanager
def _open_locked(path: Path, waiting: Callable[[], None]) -> Iterator[IO[bytes]]:
    """Lock a file exclusively; the lock ends with the process."""
    reported = False
    while True:
        with path.open("a+b") as file:
            if FCNTL is None or _try_lock(file):
                if FCNTL is not None and not _has_path(file, path):  # renamed in the meantime
                    continue
                yield file
                return
        if not reported:
            waiting()
            reported = True
        time.sleep(0.2)


def _try_lock(file: IO[bytes]) -> bool:
    try:
        FCNTL.flock(file, FCNTL.LOCK_EX | FCNTL.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _has_path(file: IO[bytes], path: Path) -> bool:
    """Return whether an open file still has this path."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _part_path(file: Path) -> Path:
    return file.with_name(f".{file.name}.part")


def _journal_path(file: Path) -> Path:
    return file.with_name(f".{file.name}.journal")
