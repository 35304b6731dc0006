"""The mean of the last checkpoints' weights: what it is, and when a run keeps it."""

import numpy as np
import pytest
import torch

from ensue.train.checkpoints import BEST, Checkpoint, Checkpoints
from ensue.train.model_selection import select_weights
from ensue.train.objectives import next_token_loss
from ensue.train.settings import TrainSettings
from ensue.train.training import Outcome, Training

STEPS = (10, 20, 30, 40)


@pytest.fixture
def held(tmp_path):
    """Four checkpoints of a layer, whose weights are drawn, and one called best."""
    checkpoints = Checkpoints(tmp_path, keep=4)
    for step in STEPS:
        checkpoints.save(Checkpoint(step, {"model": dict(layer(step).state_dict())}, {}))
    checkpoints.save(Checkpoint(20, {"model": dict(layer(20).state_dict())}, {"worth": 0.5}), BEST)
    return checkpoints


def layer(seed):
    torch.manual_seed(seed)
    return torch.nn.Linear(3, 2)


def mean(*seeds):
    """By numpy, in double precision, then as the weights are."""
    states = [layer(seed).state_dict() for seed in seeds]
    return {
        name: np.mean([state[name].numpy().astype(np.float64) for state in states], axis=0).astype(np.float32)
        for name in states[0]
    }


def same(found, expected):
    return all(np.array_equal(np.asarray(found[name]), np.asarray(value)) for name, value in expected.items())


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_the_mean_is_that_of_the_last_few(held, count):
    assert same(held.mean_weights(count), mean(*STEPS[-count:]))


def test_with_fewer_checkpoints_all_are_averaged(held):
    assert same(held.mean_weights(9), mean(*STEPS))


def test_the_best_and_stop_checkpoints_are_not_averaged(held):
    held.save(Checkpoint(45, {"model": dict(layer(45).state_dict())}, {}), "stop")
    assert same(held.mean_weights(2), mean(30, 40))


def test_averaged_weights_keep_their_dtype(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for step, value in ((1, 1.0), (2, 2.0)):
        weights = {"half": torch.full((2,), value, dtype=torch.bfloat16), "wide": torch.full((2,), value).double()}
        checkpoints.save(Checkpoint(step, {"model": weights}, {}))
    found = checkpoints.mean_weights(2)
    assert found["half"].dtype == torch.bfloat16 and found["wide"].dtype == torch.float64
    assert found["half"].tolist() == found["wide"].tolist() == [1.5, 1.5]


def choose(checkpoints, losses, stopped="finished", **settings):
    """What ``fit`` keeps, where the held-out loss of weights is looked up by their first number."""
    model, notes = layer(40), []

    def evaluate(stop):
        first = model.weight[0, 0].item()
        return {"valid_loss": next(loss for key, loss in losses.items() if abs(key - first) < 1e-6)}

    work = Training(
        model=model,
        objective=next_token_loss,
        batches=None,
        checkpoints=checkpoints,
        settings=TrainSettings(**{"steps": 40, "average": 3, **settings}),
        evaluate=evaluate if losses else None,
        report=lambda kind, values: notes.append(values["text"]),
    )
    select_weights(work, checkpoints, Outcome(stopped, 40, 1.0, 0.5))
    return model.state_dict(), notes


def first(state):
    return float(np.asarray(state["weight"])[0, 0])


@pytest.mark.parametrize(("of_mean", "kept"), [(0.4, True), (0.6, False), (0.5, False)])
def test_the_better_one_is_kept(held, of_mean, kept):
    """The best weights have 0.5."""
    losses = {first(layer(20).state_dict()): 0.5, first(mean(20, 30, 40)): of_mean}
    found, notes = choose(held, losses)
    assert same(found, mean(20, 30, 40) if kept else mean(20))
    assert ("the weights are" if kept else "no better") in notes[0] and f"{of_mean:.4f} against 0.5000" in notes[0]


def test_a_run_that_keeps_the_last_keeps_the_mean_of_the_last(held):
    losses = {first(layer(40).state_dict()): 0.5, first(mean(20, 30, 40)): 0.6}
    found, _ = choose(held, losses, keep="last")
    assert same(found, mean(20, 30, 40))


def test_without_validation_the_mean_is_kept(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for step in (30, 40):
        checkpoints.save(Checkpoint(step, {"model": dict(layer(step).state_dict())}, {}))
    found, _ = choose(checkpoints, {}, average=2)
    assert same(found, mean(30, 40))


@pytest.mark.parametrize("average", [0, 1])
def test_nothing_is_averaged_unless_asked(held, average):
    found, notes = choose(held, {first(layer(20).state_dict()): 0.5}, average=average)
    assert same(found, mean(20)) and notes == []


def test_a_run_that_was_interrupted_averages_nothing(held):
    found, notes = choose(held, {}, stopped="SIGINT")
    assert same(found, mean(20)) and notes == []


def test_damaged_checkpoints_are_skipped_and_without_any_there_is_no_mean(held, tmp_path):
    (held.folder / "step-00000040" / "model.safetensors").write_bytes(b"damaged")
    assert same(held.mean_weights(2), mean(20, 30))
    assert Checkpoints(tmp_path / "none").mean_weights(3) == {}
