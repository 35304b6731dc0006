"""Work on a run that is done one after the other, on a thread: who waits, who has gone, and what is left at the end.

waits       for its turn, in a line that is bounded: beyond it the server says to come back later
runs        alone; where its client goes or patience ends it is broken off, as soon as it reports how far it is
at the end  nothing new is taken; what has not been done when time is up is told so
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from ensue.core.events import Report
from ensue.serve.errors import Refused

Answer = TypeVar("Answer")

MOST_WAITING = 32
"""Requests that wait for their turn."""
PATIENCE = 120.0
"""Seconds that a request waits for its turn, and that it may then take."""
RETRY = 2
"""Seconds after which a client may come back."""
LOOK = 0.05
"""Seconds between two looks at what is left, at the end."""


class _Gone(Exception):
    """Nobody waits for the answer any more."""


class Turns:
    """One line of people."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.waiting = 0
        self._turn, self._over = asyncio.Lock(), asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = False

    @property
    def running(self) -> int:
        """Whether something is done at the moment: 0 or 1."""
        return int(self._turn.locked())

    async def take(
        self, what: Callable[[Report], Answer], request: Request | None = None, notes: list[str] | None = None
    ) -> Answer:
        """Do something when its turn comes; ``notes`` gets what it says for people."""
        if self._closing:
            raise closing()
        if self.waiting >= MOST_WAITING:
            raise Refused(429, f"{self.name} has too much to do", retry=RETRY)
        self._loop = asyncio.get_running_loop()
        ends: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._over.wait())]
        if request is not None:
            ends.append(asyncio.ensure_future(gone(request)))
        try:
            await self._wait(ends)
            try:
                return await self._run(what, ends, [] if notes is None else notes)
            finally:
                self._turn.release()
        finally:
            for end in ends:
                end.cancel()

    async def _wait(self, ends: Sequence[asyncio.Future[Any]]) -> None:
        """Until it is one's turn; whoever gives up is out of the line."""
        turn = asyncio.ensure_future(self._turn.acquire())
        self.waiting += 1
        try:
            await asyncio.wait({turn, *ends}, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
            if any(end.done() for end in ends) or not turn.done():
                raise self._refusal(ends, "was busy for too long")
        except BaseException:
            if not turn.cancel():  # it came at the same moment
                self._turn.release()
            raise
        finally:
            self.waiting -= 1

    async def _run(
        self, what: Callable[[Report], Answer], ends: Sequence[asyncio.Future[Any]], notes: list[str]
    ) -> Answer:
        """The answer, on a thread."""
        late = threading.Event()

        def report(kind: str, facts: dict[str, Any]) -> None:
            if late.is_set():
                raise _Gone
            if kind == "note":
                notes.append(str(facts["text"]))

        work = asyncio.ensure_future(run_in_threadpool(what, report))
        try:
            await asyncio.wait({work, *ends}, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
            late.set()
            if not work.done() and not self._over.is_set():
                await asyncio.wait({work, ends[0]}, return_when=asyncio.FIRST_COMPLETED)  # the next must not begin yet
            if not work.done():
                raise self._refusal(ends, "took too long")
            return work.result()
        except _Gone as error:
            raise self._refusal(ends, "took too long") from error
        finally:
            late.set()
            work.add_done_callback(_heard)

    def _refusal(self, ends: Sequence[asyncio.Future[Any]], late: str) -> Refused:
        """Why there is no answer."""
        if self._over.is_set():
            return closing()
        left = any(end.done() for end in ends)
        return Refused(408, "the client has gone" if left else f"{self.name} {late}", retry=RETRY)

    def close(self, seconds: float) -> None:
        """Take no more, wait so long for what is under way, then tell whoever is left. Not for the loop's thread."""
        self._closing = True
        until = time.monotonic() + seconds
        while (self.waiting or self.running) and time.monotonic() < until:
            time.sleep(LOOK)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._over.set)


def closing() -> Refused:
    """What is said when the server is about to end."""
    return Refused(503, "the server is about to end", retry=RETRY)


def _heard(work: asyncio.Future[Any]) -> None:
    """Take note of how work ended that nobody waited for, which else is told as a fault."""
    if not work.cancelled():
        work.exception()


async def gone(request: Request) -> None:
    """Ends when the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        continue
