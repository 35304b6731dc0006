"""Training in place: planned, stopped, resumed to the bit."""

import itertools
import os
import signal
import tempfile
from pathlib import Path

import pytest
import torch

from ensue.core.errors import InputError
from ensue.core.events import silent
from ensue.train.checkpoints import Checkpoints
from ensue.train.metrics import Metrics, read_metrics
from ensue.train.settings import WordTrainSettings
from ensue.train.word2vec_loop import plan_word2vec, train_word2vec


class Walker:
    """Adds numbers that follow from the step to a weight."""

    steps_per_epoch = 4

    def __init__(self, at=None, then=None):
        self.model = torch.nn.Linear(2, 2)
        torch.nn.init.zeros_(self.model.weight)
        self.at, self.then = at, then

    def rate(self, position):
        return 1 - position

    def update(self, step, position, after):
        if step == self.at:
            self.then()
        with torch.no_grad():
            noise = torch.rand(2, 2, generator=torch.Generator().manual_seed(step))
            self.model.weight += noise * self.rate(position)
        return float(step), 10


def walked(folder, walker, **how):
    settings, checkpoints = WordTrainSettings(log_every=2, **how), Checkpoints(folder / "checkpoints")
    latest = checkpoints.latest()
    metrics = Metrics(folder, latest.step if latest else 0)
    try:
        return train_word2vec(walker, settings, checkpoints, metrics, silent)[0]
    finally:
        metrics.close()


def test_an_interrupted_training_ends_like_an_uninterrupted_one(tmp_path):
    whole, first, second = (tmp_path / name for name in ("whole", "first", "second"))
    for folder in (whole, first, second):
        folder.mkdir()
    unbroken = Walker()
    outcome = walked(whole, unbroken, steps=9)
    assert (outcome.stopped, outcome.step, outcome.tokens) == ("finished", 9, 90)
    stopped = walked(first, Walker(4, lambda: os.kill(os.getpid(), signal.SIGINT)), steps=9)
    assert (stopped.stopped, stopped.step) == ("SIGINT", 5)

    def broken():
        raise RuntimeError("the power is gone")

    with pytest.raises(RuntimeError):
        walked(second, Walker(7, broken), steps=9, checkpoint_every=3)
    for folder in (first, second):
        again = Walker()
        outcome = walked(folder, again, steps=9)
        assert (outcome.stopped, outcome.step, outcome.tokens) == ("finished", 9, 90)
        assert torch.equal(again.model.weight, unbroken.model.weight)
        kept = [{name: record[name] for name in ("step", "loss", "lr")} for record in read_metrics(folder)]
        assert kept == [{name: record[name] for name in ("step", "loss", "lr")} for record in read_metrics(whole)]


def planned(epochs=5.0, budget=0.0, clock=1.0, monkeypatch=None):
    """The plan of a training in which every look at the clock finds some seconds gone."""
    if monkeypatch is not None:
        ticks = (clock * number for number in itertools.count())
        monkeypatch.setattr("ensue.train.word2vec_loop.time.perf_counter", lambda: next(ticks))
    walker, settings = Walker(), WordTrainSettings(epochs=epochs, budget=budget)
    settings, pace = plan_word2vec(walker, settings)
    with tempfile.TemporaryDirectory() as name:
        metrics = Metrics(Path(name))
        outcome, plan = train_word2vec(walker, settings, Checkpoints(Path(name) / "c"), metrics, silent, pace)
        metrics.close()
    assert outcome.stopped == "finished" and outcome.step == plan.steps
    return plan


def test_a_budget_makes_steps_fewer_and_never_more(monkeypatch):
    assert planned().steps == 20 and planned(epochs=1.0, budget=1e6).steps == 4
    assert 3 <= planned(budget=10.0, monkeypatch=monkeypatch).steps < 20
    assert plan_word2vec(Walker(), WordTrainSettings(steps=7))[0].steps == 7


def test_a_spent_budget_leaves_a_checkpoint(tmp_path, monkeypatch):
    clock = iter(range(10**6))
    monkeypatch.setattr("ensue.train.word2vec_loop.time.perf_counter", lambda: next(clock))
    outcome = walked(tmp_path, Walker(), steps=50, budget=10.0)
    assert outcome.stopped == "budget" and 0 < outcome.step < 50
    assert Checkpoints(tmp_path / "checkpoints").latest().step == outcome.step


def test_a_loss_that_is_not_finite_is_an_error(tmp_path, monkeypatch):
    walker = Walker()
    monkeypatch.setattr(walker, "update", lambda step, position, after: (float("nan"), 1))
    with pytest.raises(InputError, match=r"not finite at step 1; use a lower train\.lr"):
        walked(tmp_path, walker, steps=3)


@pytest.mark.parametrize("wrong", [{"lr": -1.0}, {"floor": 2.0}, {"epochs": 0.0}, {"threads": -1}, {"log_every": 0}])
def test_invalid_settings_are_refused(wrong):
    with pytest.raises(InputError):
        WordTrainSettings(**wrong)
