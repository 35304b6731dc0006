"""Continuous batching: all completions of one model are decoded together, on a thread of their own.

    submit      rows wait in a bounded queue; beyond it ``QueueFull`` is raised
    each step   waiting rows join while there is room, cancelled rows leave, and every row decodes one token,
                which is delivered at once
    turns       while others wait, a row that has had its turn goes to the end of the queue with its state, so that long
                texts do not hold up short ones
    prefixes    a row that begins as one before it did, as the next turn of a conversation does, is read from there on
    pause       a row whose reader is too many tokens behind leaves the batch until the reader has caught up, so
                that a client that does not read costs neither tokens nor a place

All steps run on the engine's thread, and so does ``deliver``. Other threads may read the model meanwhile.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ensue.search.continuous_batching import ContinuousBatch, DrawnToken, PausedRow, Row
from ensue.search.prefix_cache import PrefixCache

Deliver = Callable[[Row, DrawnToken | Exception], None]
TURN = 16
"""Tokens that a row decodes before it lets a waiting one have its place."""
LAST_STEP_TIMEOUT = 5.0
"""Seconds to wait for the step that runs when the engine is closed."""


class QueueFull(Exception):
    """Too many rows are waiting."""


class EngineClosed(Exception):
    """The server is shutting down."""


class ReaderTooSlow(Exception):
    """Too many rows wait for their readers; this one has waited longest."""


@dataclass(eq=False)
class _Job:
    row: Row
    deliver: Deliver
    limit: int | None
    """Tokens that may be delivered before the reader takes them; None: any number."""
    ahead: int = 0
    """Tokens that are delivered and not yet taken."""
    paused: PausedRow | None = None
    turn: int = 0
    """Tokens since it last got a place."""
    started: bool = False

    @property
    def behind(self) -> bool:
        """True if the reader must catch up."""
        return self.limit is not None and self.ahead >= self.limit

    @property
    def caught_up(self) -> bool:
        """True if the reader has taken half of what was delivered, so that rows do not pause at every token."""
        return self.limit is None or self.ahead <= self.limit // 2


class Engine:
    """Decodes the rows of one language model: at most ``rows`` at a time.

    At most ``waiting`` rows wait for a place, and at most ``paused`` for their readers.
    """

    def __init__(self, model: Any, *, rows: int = 16, waiting: int = 64, paused: int = 64) -> None:
        self._batch = ContinuousBatch(model, PrefixCache())
        self._max_running, self._max_waiting, self._max_paused = rows, waiting, paused
        self._changed = threading.Condition()
        self._waiting: deque[_Job] = deque()
        self._running: dict[int, _Job] = {}
        self._paused: dict[int, _Job] = {}
        self._cancelled: list[Row] = []
        self._closing = False
        self.tokens = 0
        """Tokens decoded so far."""
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @property
    def load(self) -> tuple[int, int]:
        """The number of running rows, and of rows that wait for a place or for their reader."""
        with self._changed:
            return len(self._running), len(self._waiting) + len(self._paused)

    @property
    def running(self) -> bool:
        """True until the engine is closed and its thread has ended."""
        return self._thread.is_alive()

    def submit(self, rows: Sequence[Row], deliver: Deliver, ahead: int | None = None) -> None:
        """Queue rows, all or none. With ``ahead``, a row pauses when it is that far before what was ``taken``."""
        with self._changed:
            if self._closing:
                raise EngineClosed
            if len(self._waiting) + len(rows) > self._max_waiting:
                raise QueueFull
            self._waiting.extend(_Job(row, deliver, ahead) for row in rows)
            self._changed.notify()

    def taken(self, row: Row) -> None:
        """Note that the reader has taken a token of this row."""
        with self._changed:
            job = self._running.get(id(row)) or self._paused.get(id(row))
            job = job or next((job for job in self._waiting if job.row is row), None)
            if job is not None:
                job.ahead -= 1
                if job.paused is not None and job.caught_up:
                    self._changed.notify()

    def cancel(self, rows: Sequence[Row]) -> None:
        """Drop rows; those that have ended already are ignored."""
        ids = {id(row) for row in rows}
        with self._changed:
            self._waiting = deque(job for job in self._waiting if id(job.row) not in ids)
            self._paused = {own: job for own, job in self._paused.items() if own not in ids}
            self._cancelled += [row for row in rows if id(row) in self._running]
            self._changed.notify()

    def close(self, seconds: float = 30.0) -> None:
        """Accept no more rows, finish the queue and stop; after ``seconds`` the remaining rows are dropped."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(seconds)
        with self._changed:
            left = [*self._running.values(), *self._paused.values(), *self._waiting]
            self._cancelled += [job.row for job in self._running.values()]
            self._waiting.clear()
            self._paused.clear()
            self._changed.notify()
        for job in left:
            _deliver(job, EngineClosed())
        self._thread.join(LAST_STEP_TIMEOUT)

    def _run(self) -> None:
        """Step until the engine is closed and the queue is empty."""
        while self._update_batch():
            if not len(self._batch):
                continue
            try:
                drawn = self._batch.step()
            except Exception as error:  # a failing model fails its requests, not the server
                self._fail(error)
                continue
            with self._changed:
                self.tokens += len(drawn)
                jobs = [(self._running[id(row)], token) for row, token in drawn]
                for job, token in jobs:
                    job.ahead += 1
                    job.turn += 1
                    if isinstance(token, Exception) or token.last:
                        del self._running[id(job.row)]
            for job, token in jobs:
                _deliver(job, token)

    def _update_batch(self) -> bool:
        """Remove rows that are cancelled or must pause, add those that can run; False if the thread should stop."""
        with self._changed:
            while not (self._waiting or self._running or self._resumable() or self._finished):
                self._changed.wait()
            if self._finished:
                return False
            cancelled, self._cancelled = self._cancelled, []
            for row in cancelled:
                self._running.pop(id(row), None)
            behind = [job for job in self._running.values() if job.behind]
            for job in behind:
                self._paused[id(job.row)] = self._running.pop(id(job.row))
            yielding = self._end_turns()
            starting = self._fill_places()
            excess = list(self._paused.values())[: max(0, len(self._paused) - self._max_paused)]
            for job in excess:  # those that have been paused longest
                del self._paused[id(job.row)]
        try:
            self._batch.leave(cancelled, store=True)
            self._pause_and_resume([*behind, *yielding], [job for job in starting if job.started])
            self._join([job for job in starting if not job.started])
        except Exception as error:  # e.g. no memory for a state
            self._fail(error)
        for job in excess:
            _deliver(job, ReaderTooSlow())
        return True

    def _end_turns(self) -> list[_Job]:
        """Move rows that have had their turn to the end of the queue, as many as wait for a place."""
        wanted = len(self._waiting) + len(self._resumable()) - (self._max_running - len(self._running))
        yielding = [job for job in self._running.values() if job.turn >= TURN][: max(0, wanted)]
        self._waiting.extend(self._running.pop(id(job.row)) for job in yielding)
        return yielding

    def _fill_places(self) -> list[_Job]:
        """Give free places to rows whose readers have caught up, then to those that wait."""
        room = self._max_running - len(self._running)
        starting = self._resumable()[:room]
        for job in starting:
            del self._paused[id(job.row)]
        starting += [self._waiting.popleft() for _ in range(min(room - len(starting), len(self._waiting)))]
        for job in starting:
            self._running[id(job.row)] = job
            job.turn = 0
        return starting

    def _pause_and_resume(self, leaving: Sequence[_Job], resumed: Sequence[_Job]) -> None:
        """Take rows out of the batch, and put others back."""
        states = {id(paused.row): paused for paused in self._batch.pause([job.row for job in leaving])}
        for job in leaving:
            job.paused = states[id(job.row)]
        self._batch.resume([job.paused for job in resumed if job.paused is not None])
        for job in resumed:
            job.paused = None

    def _resumable(self) -> list[_Job]:
        """Paused rows whose readers have caught up."""
        return [job for job in self._paused.values() if job.paused is not None and job.caught_up]

    @property
    def _finished(self) -> bool:
        """True if the engine is closed and no row is left."""
        return self._closing and not (self._running or self._paused or self._waiting)

    def _join(self, jobs: Sequence[_Job]) -> None:
        """Add rows to the batch; if that fails, add them one by one, so that only the faulty prompt fails."""
        for job in jobs:
            job.started = True
        try:
            self._batch.join([job.row for job in jobs])
        except Exception as error:
            if len(jobs) == 1:
                self._fail(error, jobs)
            for job in jobs if len(jobs) > 1 else ():
                self._join([job])

    def _fail(self, error: Exception, jobs: Sequence[_Job] | None = None) -> None:
        """Drop these jobs, or the whole batch, and deliver the error to each."""
        rows = list(self._batch.rows) if jobs is None else [job.row for job in jobs]
        with self._changed:
            if jobs is None:
                others = [job for job in (*self._waiting, *self._paused.values()) if job.started and not job.paused]
                jobs = [*self._running.values(), *others]  # others were on their way out of the batch
            ids = {id(job.row) for job in jobs}
            self._waiting = deque(job for job in self._waiting if id(job.row) not in ids)
            self._running = {own: job for own, job in self._running.items() if own not in ids}
            self._paused = {own: job for own, job in self._paused.items() if own not in ids}
        self._batch.leave(rows)
        for job in jobs:
            _deliver(job, error)


def _deliver(job: _Job, token: DrawnToken | Exception) -> None:
    """Deliver a token; a receiver that raises must not stop the others."""
    try:
        job.deliver(job.row, token)
    except Exception:
        logging.getLogger("ensue.serve").exception("a token could not be delivered")
