"""Answers of an unfinished task, kept as they are given, so that an interrupted evaluation loses none of them.

The file has one JSON object a line: first what the answers depend on, then one line for each batch of questions that
was answered, with a checksum. Lines are only appended. A last line without its end was being written when the process
ended; it is dropped. Any other damage is refused.
"""

from __future__ import annotations

import json
import os
import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ensue.core.errors import InputError, read_errors
from ensue.core.files import disk_errors, finite

ENDING = ".partial.jsonl"
Records = list[dict[str, Any]]
Key = tuple[int, ...]


class Answered(NamedTuple):
    """The records of a batch of questions, and the seconds that they took."""

    records: Records
    seconds: float


class SavedAnswers:
    """The answers of one task by their questions; without a path they are only held."""

    def __init__(self, path: Path | None = None, settings: Mapping[str, Any] | None = None) -> None:
        """Read what is there; raise InputError if it is damaged, or made with other settings."""
        self.path, self.settings = path, finite(dict(settings or {}))
        self._answered: dict[Key, Answered] = {}
        self._size, self._since = 0, time.perf_counter()
        self._lock = threading.Lock()
        if path is not None and path.exists():
            self._read(path)

    def __len__(self) -> int:
        """The number of records."""
        return sum(len(one.records) for one in self._answered.values())

    @property
    def seconds(self) -> float:
        """The time that all answers took."""
        return sum(one.seconds for one in self._answered.values())

    def start(self) -> None:
        """Start the clock: the time of an answer is that since the one before it."""
        self._since = time.perf_counter()

    def get(self, questions: Sequence[int]) -> Records | None:
        """The records of a batch of questions, if it was answered."""
        found = self._answered.get(tuple(questions))
        return None if found is None else found.records

    def add(self, questions: Sequence[int], records: Records) -> None:
        """Keep the records of a batch of questions; may be called from several threads."""
        with self._lock:
            seconds = time.perf_counter() - self._since
            line = {"questions": list(questions), "records": records, "seconds": seconds}
            line["check"] = _checksum(line)
            self._append([line] if self._size else [{"settings": self.settings}, line])
            self._answered[tuple(questions)] = Answered(records, seconds)
            self.start()

    def remove(self) -> None:
        """Delete the file: the task is finished."""
        if self.path is not None:
            with disk_errors(self.path):
                self.path.unlink(missing_ok=True)

    def _append(self, lines: Sequence[Mapping[str, Any]]) -> None:
        if self.path is None:
            return
        data = "".join(json.dumps(line) + "\n" for line in lines).encode()
        with disk_errors(self.path), self.path.open("r+b" if self.path.exists() else "wb") as file:
            file.truncate(self._size)  # drops a line that was not finished
            file.seek(self._size)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        self._size += len(data)

    def _read(self, path: Path) -> None:
        with read_errors(path, "is damaged"):
            lines = path.read_bytes().split(b"\n")[:-1]
        for number, line in enumerate(lines, 1):
            try:
                read = json.loads(line)
                if number == 1:
                    before = dict(read["settings"])
                else:
                    questions, answered = _checked(read)
                    self._answered[questions] = answered
            except (ValueError, TypeError, LookupError, RecursionError) as error:
                hint = "delete it to ask its questions again"
                raise InputError(f"line {number} is damaged: not an answer", where=str(path), hint=hint) from error
        if lines:
            check_settings(before, self.settings, "holds answers", path)
        self._size = sum(len(line) + 1 for line in lines)


def _checksum(line: Mapping[str, Any]) -> int:
    """A checksum of a line's other fields."""
    return zlib.crc32(json.dumps([line["questions"], line["records"], line["seconds"]]).encode())


def _checked(line: Mapping[str, Any]) -> tuple[Key, Answered]:
    """What a line holds; raise ValueError if it was changed."""
    if _checksum(line) != line["check"]:
        raise ValueError("the checksum differs")
    return tuple(line["questions"]), Answered(line["records"], line["seconds"])


DIGESTS = {"digest": "another run of this name", "questions": "other questions: its file has changed"}
"""Settings that are digests, and what it means if they differ."""


def check_settings(before: Mapping[str, Any], now: Mapping[str, Any], what: str, path: Path) -> None:
    """Raise InputError if results were made with other settings; one that is not there counts as None."""
    name = next((key for key in {**before, **now} if before.get(key) != now.get(key)), None)
    if name is not None:
        other = DIGESTS.get(name) or f"{name} {before.get(name)!r}, not {now.get(name)!r}"
        hint = "choose another --out, or --force to replace all"
        raise InputError(f"{what} for {other}", where=str(path), hint=hint)
