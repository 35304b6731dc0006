"""The request queue: one request at a time; disconnected clients leave it; closing answers everybody."""

import asyncio
import threading
import time

import pytest

from ensue.serve import request_queue
from ensue.serve.errors import ApiError
from ensue.serve.request_queue import RequestQueue

GIVE_UP = 30.0


class Client:
    """A request as the queue uses it: it tells when its client disconnects."""

    def __init__(self):
        self.left = asyncio.Event()

    async def receive(self):
        await self.left.wait()
        return {"type": "http.disconnect"}


class Work:
    """Work that runs until it is released and reports progress."""

    def __init__(self, reports=True):
        self.begun, self.released, self.reports = threading.Event(), threading.Event(), reports

    def __call__(self, report):
        self.begun.set()
        until = time.monotonic() + GIVE_UP
        while not self.released.is_set() and time.monotonic() < until:
            if self.reports:
                report("progress", {})
            time.sleep(0.005)
        report("note", {"text": "a note"})
        return "done"


async def begun(work):
    while not work.begun.is_set():
        await asyncio.sleep(0.005)


def run(test):
    return asyncio.run(asyncio.wait_for(test(), GIVE_UP))


def test_requests_run_one_at_a_time_and_collect_notes():
    async def test():
        queue, first, second, notes = RequestQueue("gpt"), Work(), Work(), []
        tasks = [asyncio.ensure_future(queue.run(first, notes=notes)), asyncio.ensure_future(queue.run(second))]
        await begun(first)
        assert (queue.running, queue.waiting) == (1, 1) and not second.begun.is_set()
        first.released.set(), second.released.set()
        assert await asyncio.gather(*tasks) == ["done", "done"] and notes == ["a note"]
        assert (queue.running, queue.waiting) == (0, 0)

    run(test)


def test_a_client_that_disconnects_while_waiting_never_runs():
    async def test():
        queue, first, second, client = RequestQueue("gpt"), Work(), Work(), Client()
        task = asyncio.ensure_future(queue.run(first))
        await begun(first)
        waits = asyncio.ensure_future(queue.run(second, client))
        await asyncio.sleep(0.02)
        client.left.set()
        with pytest.raises(ApiError, match="disconnected"):
            await waits
        assert queue.waiting == 0 and not second.begun.is_set()
        first.released.set()
        assert await task == "done" and queue.running == 0

    run(test)


def test_work_stops_when_its_client_disconnects_and_the_next_starts():
    async def test():
        queue, first, second, client = RequestQueue("gpt"), Work(), Work(), Client()
        task = asyncio.ensure_future(queue.run(first, client))
        await begun(first)
        after = asyncio.ensure_future(queue.run(second))
        client.left.set()
        with pytest.raises(ApiError, match="disconnected"):
            await task
        second.released.set()
        assert await after == "done"

    run(test)


def test_the_queue_is_bounded(monkeypatch):
    monkeypatch.setattr(request_queue, "MAX_WAITING", 1)

    async def test():
        queue, first = RequestQueue("gpt"), Work()
        tasks = [asyncio.ensure_future(queue.run(first))]
        await begun(first)
        tasks.append(asyncio.ensure_future(queue.run(Work(reports=False))))
        await asyncio.sleep(0.02)
        with pytest.raises(ApiError) as error:
            await queue.run(Work())
        assert error.value.status == 429 and error.value.retry
        for task in tasks:
            task.cancel()
        first.released.set()
        await asyncio.gather(*tasks, return_exceptions=True)

    run(test)


def test_a_request_times_out(monkeypatch):
    monkeypatch.setattr(request_queue, "REQUEST_TIMEOUT", 0.05)

    async def test():
        queue = RequestQueue("gpt")
        with pytest.raises(ApiError, match="gpt took too long") as error:
            await queue.run(Work())
        assert error.value.status == 408 and queue.running == 0

    run(test)


def test_close_answers_503_to_requests_that_are_not_done_in_time():
    async def test():
        queue, first, second = RequestQueue("gpt"), Work(reports=False), Work()
        tasks = [asyncio.ensure_future(queue.run(first)), asyncio.ensure_future(queue.run(second))]
        await begun(first)
        closing = threading.Thread(target=queue.close, args=(0.3,))
        closing.start()
        await asyncio.sleep(0.05)
        with pytest.raises(ApiError) as error:
            await queue.run(Work())
        assert error.value.status == 503
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [one.status for one in results] == [503, 503]  # the timeout ended although the first still runs
        first.released.set()
        closing.join()

    run(test)


def test_close_waits_for_running_requests():
    async def test():
        queue, work = RequestQueue("gpt"), Work()
        task = asyncio.ensure_future(queue.run(work))
        await begun(work)
        closing = threading.Thread(target=queue.close, args=(GIVE_UP,))
        closing.start()
        work.released.set()
        assert await task == "done"
        closing.join()

    run(test)
