"""The engine: rows wait, join, are delivered, and leave."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
import torch

from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.search.continuous_batching import Drawn, Row
from ensue.search.sampling import Sampling, sample
from ensue.serve.engine import Busy, Closed, Engine

V = 19
GIVE_UP = 30.0


def model() -> GPTLanguageModel:
    torch.manual_seed(0)
    return GPTLanguageModel(GPTConfig(vocabulary=V, layers=2, heads=2, hidden=16, context=64)).double()


def row(tokens: int = 8, seed: int = 0, prompt: tuple[int, ...] = (1, 2)) -> Row:
    return Row(torch.tensor(prompt), Sampling(tokens=tokens, seed=seed))


class Inbox:
    """What was delivered, row by row."""

    def __init__(self) -> None:
        self.got: dict[int, list[Drawn | Exception]] = {}
        self._news = threading.Condition()

    def __call__(self, own: Row, one: Drawn | Exception) -> None:
        with self._news:
            self.got.setdefault(id(own), []).append(one)
            self._news.notify_all()

    def wait(self, ready: Callable[[], bool]) -> None:
        with self._news:
            assert self._news.wait_for(ready, GIVE_UP)

    def done(self, own: Row) -> bool:
        got = self.got.get(id(own))
        return bool(got) and (isinstance(got[-1], Exception) or got[-1].last)  # type: ignore[index]

    def tokens(self, own: Row) -> list[int]:
        return [one.token for one in self.got[id(own)] if isinstance(one, Drawn)]


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = Engine(model(), rows=3, waiting=6)
    yield made
    made.close(5.0)


def test_everybody_gets_what_they_would_have_got_alone(engine: Engine) -> None:
    inbox, rows = Inbox(), [row(4 + seed, seed, tuple(range(1, 2 + seed))) for seed in range(6)]
    for own in rows:
        engine.submit([own], inbox)
    inbox.wait(lambda: all(map(inbox.done, rows)))
    assert [inbox.tokens(own) for own in rows] == [sample(model(), own.prompt, own.how)[0].tokens for own in rows]
    assert engine.load == (0, 0) and engine.tokens == sum(len(inbox.tokens(own)) for own in rows)


def test_beyond_the_queue_nobody_is_taken(engine: Engine) -> None:
    inbox = Inbox()
    with pytest.raises(Busy):
        engine.submit([row() for _ in range(7)], inbox)
    assert engine.load[1] == 0 and not inbox.got


def test_who_goes_frees_the_place_for_the_next(engine: Engine) -> None:
    inbox, long = Inbox(), [row(100_000, seed) for seed in range(3)]
    engine.submit(long, inbox)
    waiting = row(3)
    engine.submit([waiting], inbox)
    inbox.wait(lambda: all(id(own) in inbox.got for own in long))
    assert engine.load == (3, 1)
    engine.leave([long[0]])
    inbox.wait(lambda: inbox.done(waiting))
    engine.leave(long)
    until = time.monotonic() + GIVE_UP
    while engine.load != (0, 0) and time.monotonic() < until:
        time.sleep(0.01)
    assert engine.load == (0, 0)
    again = row(2)
    engine.submit([again], inbox)
    inbox.wait(lambda: inbox.done(again))


def test_a_prompt_that_cannot_be_read_fails_alone(engine: Engine) -> None:
    inbox, good, bad = Inbox(), row(5), row(5, prompt=(V + 3,))
    engine.submit([good, bad], inbox)
    inbox.wait(lambda: inbox.done(good) and inbox.done(bad))
    assert isinstance(inbox.got[id(bad)][-1], Exception) and len(inbox.tokens(good)) == 5


def test_what_runs_is_finished_before_the_end_and_nothing_new_is_taken() -> None:
    engine, inbox, own = Engine(model(), rows=2), Inbox(), row(20)
    engine.submit([own], inbox)
    engine.close(GIVE_UP)
    assert inbox.done(own) and len(inbox.tokens(own)) == 20
    with pytest.raises(Closed):
        engine.submit([row()], inbox)


def test_what_takes_too_long_is_told_that_the_end_has_come() -> None:
    engine, inbox, own = Engine(model(), rows=1), Inbox(), row(10_000_000)
    waiting = row(5)
    engine.submit([own, waiting], inbox)
    inbox.wait(lambda: id(own) in inbox.got)
    engine.close(0.05)
    inbox.wait(lambda: inbox.done(waiting))
    assert isinstance(inbox.got[id(waiting)][-1], Closed)
    assert any(isinstance(one, Closed) for one in inbox.got[id(own)])
