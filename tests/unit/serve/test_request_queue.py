"""Turns: one after the other, those who go are out of the line, and at the end everybody is told."""

import asyncio
import threading
import time

import pytest

from ensue.serve import request_queue as turns
from ensue.serve.errors import Refused
from ensue.serve.request_queue import Turns

GIVE_UP = 30.0


class Client:
    """What of a request turns look at: whether its client has gone."""

    def __init__(self):
        self.left = asyncio.Event()

    async def receive(self):
        await self.left.wait()
        return {"type": "http.disconnect"}


class Work:
    """Something that takes until it is let go; it reports how far it is."""

    def __init__(self, reports=True):
        self.begun, self.let, self.reports = threading.Event(), threading.Event(), reports

    def __call__(self, report):
        self.begun.set()
        until = time.monotonic() + GIVE_UP
        while not self.let.is_set() and time.monotonic() < until:
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


def test_one_at_a_time_with_its_notes():
    async def test():
        line, first, second, notes = Turns("gpt"), Work(), Work(), []
        tasks = [asyncio.ensure_future(line.take(first, notes=notes)), asyncio.ensure_future(line.take(second))]
        await begun(first)
        assert (line.running, line.waiting) == (1, 1) and not second.begun.is_set()
        first.let.set(), second.let.set()
        assert await asyncio.gather(*tasks) == ["done", "done"] and notes == ["a note"]
        assert (line.running, line.waiting) == (0, 0)

    run(test)


def test_who_goes_while_waiting_is_out_of_the_line_and_never_begins():
    async def test():
        line, first, second, client = Turns("gpt"), Work(), Work(), Client()
        task = asyncio.ensure_future(line.take(first))
        await begun(first)
        waits = asyncio.ensure_future(line.take(second, client))
        await asyncio.sleep(0.02)
        client.left.set()
        with pytest.raises(Refused, match="gone"):
            await waits
        assert line.waiting == 0 and not second.begun.is_set()
        first.let.set()
        assert await task == "done" and line.running == 0

    run(test)


def test_work_is_broken_off_when_its_client_goes_and_the_next_begins():
    async def test():
        line, first, second, client = Turns("gpt"), Work(), Work(), Client()
        task = asyncio.ensure_future(line.take(first, client))
        await begun(first)
        after = asyncio.ensure_future(line.take(second))
        client.left.set()
        with pytest.raises(Refused, match="gone"):
            await task
        second.let.set()
        assert await after == "done"

    run(test)


def test_the_line_is_bounded(monkeypatch):
    monkeypatch.setattr(turns, "MOST_WAITING", 1)

    async def test():
        line, first = Turns("gpt"), Work()
        tasks = [asyncio.ensure_future(line.take(first))]
        await begun(first)
        tasks.append(asyncio.ensure_future(line.take(Work(reports=False))))
        await asyncio.sleep(0.02)
        with pytest.raises(Refused) as refused:
            await line.take(Work())
        assert refused.value.status == 429 and refused.value.retry
        for task in tasks:
            task.cancel()
        first.let.set()
        await asyncio.gather(*tasks, return_exceptions=True)

    run(test)


def test_patience_ends(monkeypatch):
    monkeypatch.setattr(turns, "PATIENCE", 0.05)

    async def test():
        line = Turns("gpt")
        with pytest.raises(Refused, match="gpt took too long") as refused:
            await line.take(Work())
        assert refused.value.status == 408 and line.running == 0

    run(test)


def test_at_the_end_what_runs_is_finished_and_the_rest_is_told():
    async def test():
        line, first, second = Turns("gpt"), Work(reports=False), Work()
        tasks = [asyncio.ensure_future(line.take(first)), asyncio.ensure_future(line.take(second))]
        await begun(first)
        closing = threading.Thread(target=line.close, args=(0.3,))
        closing.start()
        await asyncio.sleep(0.05)
        with pytest.raises(Refused) as refused:
            await line.take(Work())
        assert refused.value.status == 503
        told = await asyncio.gather(*tasks, return_exceptions=True)
        assert [one.status for one in told] == [503, 503]  # time was up, whatever the first does
        first.let.set()
        closing.join()

    run(test)


def test_the_end_waits_for_what_runs():
    async def test():
        line, work = Turns("gpt"), Work()
        task = asyncio.ensure_future(line.take(work))
        await begun(work)
        closing = threading.Thread(target=line.close, args=(GIVE_UP,))
        closing.start()
        work.let.set()
        assert await task == "done"
        closing.join()

    run(test)
