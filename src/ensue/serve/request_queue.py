"""A queue of requests to one run: they run on a thread, one after the other.

waiting     in a bounded queue; beyond it the server answers 429
running     until it is done, the client disconnects or the timeout ends; work stops when it next reports progress
closing     nothing new is accepted; requests that are not done in time get 503
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
from ensue.serve.errors import ApiError

Result = TypeVar("Result")

MAX_WAITING = 32
"""Requests in the queue."""
REQUEST_TIMEOUT = 120.0
"""Seconds that a request may wait, and that it may then run."""
RETRY_AFTER = 2
"""Seconds after which a client may try again."""
POLL_INTERVAL = 0.05
"""Seconds between checks for remaining requests while closing."""


class _Cancelled(Exception):
    """The request has timed out or its client has disconnected."""


class RequestQueue:
    """Runs functions on a thread, one at a time; ``name`` appears in errors."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.waiting = 0
        self._lock, self._shutdown = asyncio.Lock(), asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = False

    @property
    def running(self) -> int:
        """The number of running requests: 0 or 1."""
        return int(self._lock.locked())

    async def run(
        self, work: Callable[[Report], Result], request: Request | None = None, notes: list[str] | None = None
    ) -> Result:
        """Wait in the queue and run ``work``; notes that it reports are added to ``notes``."""
        if self._closing:
            raise shutting_down()
        if self.waiting >= MAX_WAITING:
            raise ApiError(429, f"too many requests are waiting for {self.name}", retry=RETRY_AFTER)
        self._loop = asyncio.get_running_loop()
        aborts: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._shutdown.wait())]
        if request is not None:
            aborts.append(asyncio.ensure_future(disconnected(request)))
        try:
            await self._wait(aborts)
            try:
                return await self._run(work, aborts, [] if notes is None else notes)
            finally:
                self._lock.release()
        finally:
            for abort in aborts:
                abort.cancel()

    async def _wait(self, aborts: Sequence[asyncio.Future[Any]]) -> None:
        """Acquire the lock; a request that is aborted leaves the queue."""
        acquired = asyncio.ensure_future(self._lock.acquire())
        self.waiting += 1
        try:
            await asyncio.wait({acquired, *aborts}, timeout=REQUEST_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
            if any(abort.done() for abort in aborts) or not acquired.done():
                raise self._abort_error(aborts, "was busy for too long")
        except BaseException:
            if not acquired.cancel():  # acquired at the same moment
                self._lock.release()
            raise
        finally:
            self.waiting -= 1

    async def _run(
        self, work: Callable[[Report], Result], aborts: Sequence[asyncio.Future[Any]], notes: list[str]
    ) -> Result:
        """Run the work on a thread."""
        cancelled = threading.Event()

        def report(kind: str, facts: dict[str, Any]) -> None:
            if cancelled.is_set():
                raise _Cancelled
            if kind == "note":
                notes.append(str(facts["text"]))

        task = asyncio.ensure_future(run_in_threadpool(work, report))
        try:
            await asyncio.wait({task, *aborts}, timeout=REQUEST_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
            cancelled.set()
            if not task.done() and not self._shutdown.is_set():  # keep the lock until the thread has stopped
                await asyncio.wait({task, aborts[0]}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise self._abort_error(aborts, "took too long")
            return task.result()
        except _Cancelled as error:
            raise self._abort_error(aborts, "took too long") from error
        finally:
            cancelled.set()
            task.add_done_callback(_retrieve_exception)

    def _abort_error(self, aborts: Sequence[asyncio.Future[Any]], timeout: str) -> ApiError:
        """The error for a request that was aborted."""
        if self._shutdown.is_set():
            return shutting_down()
        left = any(abort.done() for abort in aborts)
        return ApiError(408, "the client disconnected" if left else f"{self.name} {timeout}", retry=RETRY_AFTER)

    def close(self, seconds: float) -> None:
        """Accept no more, wait ``seconds`` for the rest, then abort it. Not to be called on the event loop's thread."""
        self._closing = True
        deadline = time.monotonic() + seconds
        while (self.waiting or self.running) and time.monotonic() < deadline:
            time.sleep(POLL_INTERVAL)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._shutdown.set)


def shutting_down() -> ApiError:
    """The error for requests during shutdown."""
    return ApiError(503, "the server is shutting down", retry=RETRY_AFTER)


def _retrieve_exception(task: asyncio.Future[Any]) -> None:
    """Mark the exception of abandoned work as retrieved; otherwise asyncio logs it."""
    if not task.cancelled():
        task.exception()


async def disconnected(request: Request) -> None:
    """Return when the client disconnects."""
    while (await request.receive())["type"] != "http.disconnect":
        continue
