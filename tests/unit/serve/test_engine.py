"""The engine: rows wait, join the batch, receive tokens, and leave."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
import torch

from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.search.continuous_batching import DrawnToken, Row
from ensue.search.sampling import Sampling, sample
from ensue.serve.engine import Engine, EngineClosed, QueueFull, ReaderTooSlow

V = 19
GIVE_UP = 30.0


def model() -> GPTLanguageModel:
    torch.manual_seed(0)
    return GPTLanguageModel(GPTConfig(vocabulary=V, layers=2, heads=2, hidden=16, context=64)).double()


def row(tokens: int = 8, seed: int = 0, prompt: tuple[int, ...] = (1, 2)) -> Row:
    return Row(torch.tensor(prompt), Sampling(tokens=tokens, seed=seed))


class Inbox:
    """Collects delivered tokens by row."""

    def __init__(self) -> None:
        self.got: dict[int, list[DrawnToken | Exception]] = {}
        self._news = threading.Condition()

    def __call__(self, own: Row, one: DrawnToken | Exception) -> None:
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
        return [one.token for one in self.got[id(own)] if isinstance(one, DrawnToken)]


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = Engine(model(), rows=3, waiting=6)
    yield made
    made.close(5.0)


def test_batched_rows_get_the_same_tokens_as_alone(engine: Engine) -> None:
    inbox, rows = Inbox(), [row(4 + seed, seed, tuple(range(1, 2 + seed))) for seed in range(6)]
    for own in rows:
        engine.submit([own], inbox)
    inbox.wait(lambda: all(map(inbox.done, rows)))
    assert [inbox.tokens(own) for own in rows] == [sample(model(), own.prompt, own.how)[0].tokens for own in rows]
    assert engine.load == (0, 0) and engine.tokens == sum(len(inbox.tokens(own)) for own in rows)


def test_a_full_queue_accepts_nothing(engine: Engine) -> None:
    inbox = Inbox()
    with pytest.raises(QueueFull):
        engine.submit([row() for _ in range(7)], inbox)
    assert engine.load[1] == 0 and not inbox.got


def test_rows_that_have_had_a_turn_still_count_as_waiting() -> None:
    """Otherwise clients that keep asking could hold any number of states, and make everyone wait for all of them."""
    engine, inbox, rows = Engine(model(), rows=1, waiting=2), Inbox(), [row(100_000, seed) for seed in range(3)]
    engine.submit(rows[:1], inbox)
    inbox.wait(lambda: id(rows[0]) in inbox.got)
    engine.submit(rows[1:], inbox)
    inbox.wait(lambda: all(id(own) in inbox.got for own in rows))  # all have had a turn, two of them wait for the next
    with pytest.raises(QueueFull):
        engine.submit([row(1)], inbox)
    engine.close(0.05)


def test_a_cancelled_row_makes_room_for_the_next(engine: Engine) -> None:
    inbox, long = Inbox(), [row(100_000, seed) for seed in range(3)]
    engine.submit(long, inbox)
    waiting = row(3)
    engine.submit([waiting], inbox)
    inbox.wait(lambda: all(id(own) in inbox.got for own in long))
    assert engine.load == (3, 1)
    engine.cancel([long[0]])
    inbox.wait(lambda: inbox.done(waiting))
    engine.cancel(long)
    _wait(lambda: engine.load == (0, 0))
    again = row(2)
    engine.submit([again], inbox)
    inbox.wait(lambda: inbox.done(again))


def test_an_invalid_prompt_does_not_affect_others(engine: Engine) -> None:
    inbox, good, bad = Inbox(), row(5), row(5, prompt=(V + 3,))
    engine.submit([good, bad], inbox)
    inbox.wait(lambda: inbox.done(good) and inbox.done(bad))
    assert isinstance(inbox.got[id(bad)][-1], Exception) and len(inbox.tokens(good)) == 5


@pytest.mark.parametrize("operation", ["leave", "pause", "resume"])
def test_a_failure_between_two_steps_fails_its_rows_and_not_the_engine(
    operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, inbox = Engine(model(), rows=2, waiting=6), Inbox()
    long, last = [row(100_000, seed) for seed in range(4)], row(3)

    def fail(given: list[object], **_: object) -> list[object]:
        if given:
            monkeypatch.undo()
            raise RuntimeError("no memory")
        return []

    engine.submit(long, inbox)
    inbox.wait(lambda: all(id(own) in inbox.got for own in long))  # they take turns: all have states
    monkeypatch.setattr(engine._batch, operation, fail)
    engine.cancel(long[:1])
    inbox.wait(lambda: any(map(inbox.done, long)))
    engine.submit([last], inbox)
    inbox.wait(lambda: inbox.done(last))
    assert inbox.tokens(last) == sample(model(), last.prompt, last.how)[0].tokens
    engine.cancel(long)
    _wait(lambda: engine.load == (0, 0))
    engine.close(GIVE_UP)


def test_close_finishes_running_rows_and_accepts_no_new_ones() -> None:
    engine, inbox, own = Engine(model(), rows=2), Inbox(), row(20)
    engine.submit([own], inbox)
    engine.close(GIVE_UP)
    assert inbox.done(own) and len(inbox.tokens(own)) == 20
    with pytest.raises(EngineClosed):
        engine.submit([row()], inbox)


def test_close_sends_an_error_to_rows_that_take_too_long() -> None:
    engine, inbox, own = Engine(model(), rows=1), Inbox(), row(10_000_000)
    waiting = row(10_000_000, seed=1)
    engine.submit([own, waiting], inbox)
    inbox.wait(lambda: id(own) in inbox.got)
    engine.close(0.05)
    for one in (own, waiting):
        assert any(isinstance(got, EngineClosed) for got in inbox.got[id(one)])


def test_a_row_whose_reader_stops_draws_no_more_tokens_and_leaves_its_place_to_others() -> None:
    engine, inbox = Engine(model(), rows=1, waiting=6), Inbox()
    unread, other = row(40), row(30, seed=1)
    engine.submit([unread], inbox, ahead=8)
    engine.submit([other], inbox)
    inbox.wait(lambda: inbox.done(other))
    assert len(inbox.tokens(unread)) == 8 and engine.load == (0, 1) and engine.tokens == 38
    read = 0
    while not inbox.done(unread):
        inbox.wait(lambda before=read: len(inbox.tokens(unread)) > before)  # type: ignore[misc]
        for _ in inbox.tokens(unread)[read:]:
            engine.taken(unread)
            read += 1
        assert len(inbox.tokens(unread)) <= read + 8
    assert inbox.tokens(unread) == sample(model(), unread.prompt, unread.how)[0].tokens
    engine.close(GIVE_UP)


def test_long_texts_take_turns_with_those_that_wait() -> None:
    engine, inbox = Engine(model(), rows=2, waiting=6), Inbox()
    long, short = [row(300, seed) for seed in range(4)], row(5, seed=9)
    engine.submit(long, inbox)
    inbox.wait(lambda: all(id(own) in inbox.got for own in long))  # all of them begin before one ends
    engine.submit([short], inbox)
    inbox.wait(lambda: inbox.done(short))
    assert not any(map(inbox.done, long))
    inbox.wait(lambda: all(map(inbox.done, long)))
    for own in (*long, short):
        assert inbox.tokens(own) == sample(model(), own.prompt, own.how)[0].tokens
    engine.close(GIVE_UP)


def test_paused_rows_are_bounded_and_the_one_paused_longest_is_dropped() -> None:
    engine, inbox, rows = Engine(model(), rows=2, waiting=6, paused=2), Inbox(), [row(50, seed) for seed in range(3)]
    for own in rows:
        engine.submit([own], inbox, ahead=4)
        inbox.wait(lambda own=own: len(inbox.got.get(id(own), ())) >= 4)  # type: ignore[misc]
    inbox.wait(lambda: inbox.done(rows[0]))
    assert isinstance(inbox.got[id(rows[0])][-1], ReaderTooSlow)
    assert engine.load == (0, 2)
    engine.cancel(rows[1:])
    _wait(lambda: engine.load == (0, 0))
    engine.close(GIVE_UP)


def test_close_ends_paused_rows_with_an_error() -> None:
    engine, inbox, own = Engine(model(), rows=1), Inbox(), row(50)
    engine.submit([own], inbox, ahead=4)
    inbox.wait(lambda: len(inbox.got.get(id(own), ())) == 4)
    _wait(lambda: engine.load == (0, 1))
    engine.close(0.05)
    assert isinstance(inbox.got[id(own)][-1], EngineClosed) and not engine.running


def _wait(ready: Callable[[], bool]) -> None:
    until = time.monotonic() + GIVE_UP
    while not ready() and time.monotonic() < until:
        time.sleep(0.005)
    assert ready()
