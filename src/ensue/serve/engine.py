"""One model's requests, decoded together on a thread of its own.

    submit      rows wait in a queue that is bounded: beyond it the server says to come back later
    between     two steps new rows join while there is room, and rows whose client has gone leave
    a step      one token of every row, delivered at once

All steps happen on that thread, and ``deliver`` is called from it; the model itself others may read with meanwhile.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ensue.search.continuous_batching import Drawn, Row, Together

Deliver = Callable[[Row, Drawn | Exception], None]


STEP = 5.0
"""Seconds that the last step may take at the end."""


class Busy(Exception):
    """The queue is full."""


class Closed(Exception):
    """The server is about to end."""


@dataclass(frozen=True)
class _Job:
    row: Row
    deliver: Deliver


class Engine:
    """Rows of one language model."""

    def __init__(self, model: Any, *, rows: int = 16, waiting: int = 64) -> None:
        self._together = Together(model)
        self._room, self._most = rows, waiting
        self._changed = threading.Condition()
        self._waiting: deque[_Job] = deque()
        self._running: dict[int, _Job] = {}
        self._gone: list[Row] = []
        self._closing = False
        self.tokens = 0
        """Drawn since the beginning."""
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @property
    def load(self) -> tuple[int, int]:
        """How many rows run, and how many wait."""
        with self._changed:
            return len(self._running), len(self._waiting)

    def submit(self, rows: Sequence[Row], deliver: Deliver) -> None:
        """Let rows join as soon as there is room; all of them or none."""
        with self._changed:
            if self._closing:
                raise Closed
            if len(self._waiting) + len(rows) > self._most:
                raise Busy
            self._waiting.extend(_Job(row, deliver) for row in rows)
            self._changed.notify()

    def leave(self, rows: Sequence[Row]) -> None:
        """Nobody waits for these rows any more; those that have ended already are left alone."""
        gone = {id(row) for row in rows}
        with self._changed:
            self._waiting = deque(job for job in self._waiting if id(job.row) not in gone)
            self._gone += [row for row in rows if id(row) in self._running]
            self._changed.notify()

    def close(self, seconds: float = 30.0) -> None:
        """Take no more, finish what runs, and end; after so many seconds whatever is left is dropped."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(seconds)
        with self._changed:
            left = [*self._running.values(), *self._waiting]
            self._gone += [job.row for job in self._running.values()]
            self._waiting.clear()
            self._changed.notify()
        for job in left:
            _tell(job, Closed())
        self._thread.join(STEP)

    def _run(self) -> None:
        """Step after step, until there is nothing left and the end is near."""
        while self._arrange():
            if not len(self._together):
                continue
            try:
                drawn = self._together.step()
            except Exception as error:  # a model that fails fails for those that it served, not for the server
                self._drop(error)
                continue
            with self._changed:
                self.tokens += len(drawn)
                jobs = [(self._running[id(row)], one) for row, one in drawn]
                for row, one in drawn:
                    if isinstance(one, Exception) or one.last:
                        del self._running[id(row)]
            for job, one in jobs:
                _tell(job, one)

    def _arrange(self) -> bool:
        """Let rows go and come; False where the thread is to end."""
        with self._changed:
            while not (self._waiting or self._running or self._closing):
                self._changed.wait()
            gone, self._gone = self._gone, []
            for row in gone:
                self._running.pop(id(row), None)
            room = self._room - len(self._running)
            new = [self._waiting.popleft() for _ in range(min(room, len(self._waiting)))]
            self._running |= {id(job.row): job for job in new}
            if self._closing and not self._running and not self._waiting:
                return False
        self._together.leave(gone)
        self._join(new)
        return True

    def _join(self, jobs: Sequence[_Job]) -> None:
        """Let rows join; one whose prompt cannot be read must not take the others along."""
        try:
            self._together.join([job.row for job in jobs])
        except Exception as error:
            if len(jobs) == 1:
                self._drop(error, jobs)
            for job in jobs if len(jobs) > 1 else ():
                self._join([job])

    def _drop(self, error: Exception, jobs: Sequence[_Job] | None = None) -> None:
        """Tell those who wait for these rows, or for all, that it came to nothing."""
        with self._changed:
            dropped = list(self._running.values() if jobs is None else jobs)
            for job in dropped:
                self._running.pop(id(job.row), None)
        self._together.leave([job.row for job in dropped])
        for job in dropped:
            _tell(job, error)


def _tell(job: _Job, one: Drawn | Exception) -> None:
    """Deliver; somebody who cannot take it must not stop the others."""
    try:
        job.deliver(job.row, one)
    except Exception:
        logging.getLogger("ensue.serve").exception("a token could not be delivered")
