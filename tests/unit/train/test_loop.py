import json
import math
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch

from ensue.core.errors import InputError
from ensue.core.events import Abandoned
from ensue.data.batches import StreamBatches, WindowBatches
from ensue.models.recurrent import LSTMConfig, LSTMLanguageModel
from ensue.models.table import SYSTEMS
from ensue.nn.dropout import Dropout
from ensue.train.checkpoints import Checkpoint, Checkpoints
from ensue.train.loop import train
from ensue.train.metrics import Metrics, read_metrics
from ensue.train.objectives import next_token_loss
from ensue.train.optimisers import learning_rate
from ensue.train.plan import resolve_steps
from ensue.train.settings import TextTrainSettings, TrainSettings
from ensue.train.training import Training

TOKENS = np.random.default_rng(0).integers(1, 12, size=2000)


def work(folder, objective=next_token_loss, **settings):
    torch.manual_seed(3)
    model = LSTMLanguageModel(LSTMConfig(vocabulary=12, hidden=8, dropout=0.2))
    given = {
        "steps": 20,
        "batch": 4,
        "checkpoint_every": 6,
        "eval_every": 5,
        "log_every": 4,
        "lr": 1e-2,
        **settings,
    }
    folder.mkdir(exist_ok=True)
    return Training(
        model=model,
        objective=objective,
        batches=StreamBatches(TOKENS, 4, 10, seed=1),
        settings=TextTrainSettings(**given),
        checkpoints=Checkpoints(folder / "checkpoints"),
    )


def weights(training):
    return torch.cat([p.detach().flatten() for p in training.model.parameters()])


class Broken(Exception):
    pass


def breaking(at, kind=Broken):
    """An objective that raises at its n-th call, as a power cut would."""
    calls = [0]

    def objective(model, batch, state):
        calls[0] += 1
        if calls[0] == at:
            raise kind
        return next_token_loss(model, batch, state)

    return objective


@pytest.mark.parametrize("at", [1, 3, 7, 13, 20])
def test_an_interrupted_run_resumes_to_the_same_bits(tmp_path, at):
    whole = work(tmp_path / "whole")
    train(whole)
    with pytest.raises(Broken):
        train(work(tmp_path / "broken", breaking(at)))
    resumed = work(tmp_path / "broken")
    train(resumed)
    assert torch.equal(weights(whole), weights(resumed))


def test_a_value_that_is_not_finite_never_reaches_the_weights(tmp_path):
    calls = [0]

    def explodes(model, batch, state):
        calls[0] += 1
        loss, after = next_token_loss(model, batch, state)
        return (loss * math.nan if calls[0] == 9 else loss), after

    notes = []
    training = replace(
        work(tmp_path, explodes),
        report=lambda kind, values: notes.append(values.get("text")) if kind == "note" else None,
    )
    outcome = train(training)
    assert outcome.stopped == "finished" and torch.isfinite(weights(training)).all()
    assert any("rolled back to step 6 at 0.5 of the learning rate" in note for note in notes if note)


def test_rollbacks_step_further_back_when_a_checkpoint_has_already_diverged(tmp_path):
    """Weights of step 6 that diverge at once, at any rate: only those of an earlier checkpoint can be trained."""
    notes = []
    training = work(tmp_path, steps=12, checkpoint_every=3)

    def poisoned_after_three(model, batch, state):
        loss, after = next_token_loss(model, batch, state)
        bad = training.checkpoints.latest_scheduled().step == 6 and not notes_of_step_three()
        return (loss * math.nan if bad else loss), after

    def notes_of_step_three():
        return any("rolled back to step 3" in note for note in notes)

    training.objective = poisoned_after_three
    training.report = lambda kind, values: notes.append(values["text"]) if kind == "note" else None
    assert train(training).stopped == "finished"
    assert [note.split(": ")[1] for note in notes] == [
        "rolled back to step 6 at 0.5 of the learning rate",
        "rolled back to step 6 at 0.25 of the learning rate",
        "rolled back to step 3 at 0.125 of the learning rate",
    ]


def test_a_loss_that_is_never_finite_ends_with_one_line(tmp_path):
    with pytest.raises(InputError, match="not finite"):
        train(work(tmp_path, lambda m, b, s: (next_token_loss(m, b, s)[0] * math.inf, None)))


def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path):
    whole = work(tmp_path / "whole")
    train(whole)
    with pytest.raises(Broken):
        train(work(tmp_path / "broken", breaking(15)))
    newest = sorted((tmp_path / "broken" / "checkpoints").glob("step-*"))[-1]
    file = newest / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(bytes(data))
    notes = []
    resumed = replace(
        work(tmp_path / "broken"),
        report=lambda kind, values: notes.append(values) if kind == "note" else None,
    )
    train(resumed)
    assert torch.equal(weights(whole), weights(resumed))
    assert any("damaged" in note["text"] for note in notes)


def test_the_best_weights_are_kept_and_patience_ends_training(tmp_path):
    values = iter([3.0, 2.0, 2.5, 2.6, 2.7, 2.8])
    training = work(tmp_path, patience=2)
    training.evaluate = lambda stop: {"valid_loss": next(values)}
    outcome = train(training)
    assert outcome.stopped == "patience" and outcome.step == 20
    best = training.checkpoints.best()
    assert best.step == 10 and best.progress["worth"] == 2.0


def test_plateau_halves_the_rate_when_validation_stalls(tmp_path):
    training = work(tmp_path, schedule="plateau", warmup=0.0, log_every=1, eval_every=5)
    training.metrics = Metrics(tmp_path)
    values = iter([3.0, 4.0, 5.0, 6.0])
    training.evaluate = lambda stop: {"valid_loss": next(values)}
    train(training)
    training.metrics.close()
    rates = [r["lr"] for r in read_metrics(tmp_path)]
    assert rates[9] == pytest.approx(1e-2) and rates[10] == pytest.approx(5e-3) and rates[15] == pytest.approx(2.5e-3)


def test_metrics_are_cut_back_to_the_checkpoint(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps({"step": n, "loss": 1.0}) + "\n" for n in range(1, 6)) + '{"step": 6, "lo')
    metrics = Metrics(tmp_path, step=3)
    metrics.write({"step": 4, "loss": 0.5})
    metrics.close()
    assert [(r["step"], r["loss"]) for r in read_metrics(tmp_path)] == [
        (1, 1.0),
        (2, 1.0),
        (3, 1.0),
        (4, 0.5),
    ]


def test_accumulating_two_batches_is_one_batch_of_twice_the_rows(tmp_path):
    class Halves:
        rows = 2

        def __init__(self, whole):
            self.whole = whole

        def batch(self, number):
            batch = self.whole.batch(number // 2)
            part = slice(0, 2) if number % 2 == 0 else slice(2, 4)
            return replace(batch, tokens=batch.tokens[part], targets=batch.targets[part])

    whole = work(tmp_path / "a", optimiser="sgd", steps=3)
    halves = work(tmp_path / "b", optimiser="sgd", steps=3, accumulate=2)
    for part in (*whole.model.modules(), *halves.model.modules()):
        if isinstance(part, Dropout):
            part.p = 0.0
    windows = WindowBatches(TOKENS, 4, 10, seed=1)
    whole.batches, halves.batches = windows, Halves(windows)
    train(whole)
    train(halves)
    torch.testing.assert_close(weights(whole), weights(halves), atol=1e-6, rtol=0)


def test_epochs_become_steps():
    assert resolve_steps(TrainSettings(epochs=2.5), 40).steps == 100


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [0.1, 1, 1, 1]),
        ("cosine", [0.1, 1, 0.55, 0.1]),
        ("one-cycle", [0.1, 1, 0.55, 0.1]),
        ("inverse-sqrt", [0.1, 1, (10 / 55) ** 0.5, (10 / 100) ** 0.5]),
    ],
)
def test_schedules_at_known_steps(schedule, expected):
    settings = TrainSettings(lr=1.0, schedule=schedule, warmup=0.1, floor=0.1)
    found = [learning_rate(step, 100, settings) for step in (0, 9, 54, 99)]
    assert found == pytest.approx(expected, abs=1e-6)


def test_a_checkpoint_is_complete_or_absent(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in (1, 2, 3):
        checkpoints.save(Checkpoint(step, {"model": {"w": torch.full((2,), float(step))}}, {"note": "x"}))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000002", "step-00000003"]
    found = checkpoints.latest()
    assert found.step == 3 and found.tensors["model"]["w"].tolist() == [3, 3] and found.progress == {"note": "x"}
    (tmp_path / "step-00000003" / "manifest.json").unlink()
    assert checkpoints.latest().step == 2


def test_an_interrupted_evaluation_is_repeated_on_resume(tmp_path):
    """A wish to stop during an evaluation ends it; resumed, the run keeps the same best weights as an unbroken one."""

    def measured(training, stops):
        def evaluate(stop):
            if stops and stops.pop(0):
                signal.raise_signal(signal.SIGTERM)
            if stop():
                raise Abandoned
            return {"valid_loss": float(weights(training).square().sum())}

        training.evaluate = evaluate
        return training

    whole = measured(work(tmp_path / "whole"), [])
    train(whole)
    broken = measured(work(tmp_path / "broken"), [False, True])
    outcome = train(broken)
    assert outcome.stopped == "SIGTERM" and outcome.step == 10
    resumed = measured(work(tmp_path / "broken"), [])
    train(resumed)
    assert torch.equal(weights(whole), weights(resumed))
    assert whole.checkpoints.best().step == resumed.checkpoints.best().step


def test_a_stop_before_a_value_that_is_not_finite_changes_nothing(tmp_path):
    """A roll-back goes to the last checkpoint of the schedule, whether or not somebody stopped in between."""

    def explodes_once():
        broken = [False]

        def objective(model, batch, state):
            loss, after = next_token_loss(model, batch, state)
            if not broken[0] and batch.tokens[0, 0] == mark:
                broken[0] = True
                return loss * math.nan, after
            return loss, after

        return objective

    stream = StreamBatches(TOKENS, 4, 10, seed=1)
    mark = stream.batch(9).tokens[0, 0]
    first = next(n for n in range(20) if stream.batch(n).tokens[0, 0] == mark)
    whole = work(tmp_path / "whole", explodes_once())
    train(whole)

    def stops(model, batch, state):
        if batch.tokens.equal(stream.batch(max(0, first - 1)).tokens):
            signal.raise_signal(signal.SIGTERM)
        return next_token_loss(model, batch, state)

    assert train(work(tmp_path / "broken", stops)).stopped == "SIGTERM"
    resumed = work(tmp_path / "broken", explodes_once())
    train(resumed)
    assert torch.equal(weights(whole), weights(resumed))


def test_a_budget_counts_from_the_moment_of_resuming(tmp_path):
    first = train(work(tmp_path, steps=2000, budget=0.3, eval_every=10**6, checkpoint_every=500))
    assert first.stopped == "budget"
    second = train(work(tmp_path, steps=2000, budget=0.3, eval_every=10**6, checkpoint_every=500))
    assert second.step > first.step + 1


def test_a_damaged_best_checkpoint_is_skipped(tmp_path):
    training = work(tmp_path)
    training.evaluate = lambda stop: {"valid_loss": 1.0}
    train(training)
    (tmp_path / "checkpoints" / "best" / "model.safetensors").write_bytes(b"")
    assert training.checkpoints.best() is None and "damaged" in training.checkpoints.notes[0]


def test_a_state_is_carried_within_an_epoch_only(tmp_path):
    given = []

    def objective(model, batch, state):
        given.append((batch.reset_state, state is None))
        return next_token_loss(model, batch, state)

    train(work(tmp_path, objective, steps=6))
    assert all(fresh == empty for fresh, empty in given) and len({fresh for fresh, _ in given}) == 2


@pytest.mark.parametrize(
    ("name", "more"), [("window", {}), ("gru-cho", {}), ("gpt", {}), ("lstm", {"attend": 2, "span": 16})]
)
def test_every_kind_of_state_resumes_to_the_same_bits(tmp_path, name, more):
    """A gpt carries no state in training, but a checkpoint must be able to hold one."""
    cls = SYSTEMS.load(name)
    size = {"layers": 1, "hidden": 8, "heads": 2, "embedding": 4, "context": 12}
    known = {k: v for k, v in size.items() if k in cls.Config.__dataclass_fields__} | more

    def made(folder, objective=next_token_loss):
        training = work(folder, objective, renew=0.0 if name == "gpt" else 0.2)  # keys of rows are of one length
        torch.manual_seed(5)
        training.model = cls(cls.Config(vocabulary=12, **known))
        return training

    whole = made(tmp_path / "whole")
    train(whole)
    with pytest.raises(Broken):
        train(made(tmp_path / "broken", breaking(9)))
    resumed = made(tmp_path / "broken")
    train(resumed)
    assert torch.equal(weights(whole), weights(resumed))


def test_hooks_run_before_the_first_update_after_each_one_and_after_a_rollback(tmp_path):
    calls, steps = [0], []

    def explodes(model, batch, state):
        calls[0] += 1
        loss, after = next_token_loss(model, batch, state)
        return (loss * math.nan if calls[0] == 3 else loss), after

    hook = [lambda model, step: steps.append(step)]
    train(replace(work(tmp_path, explodes, steps=4, checkpoint_every=2), after_update=hook))
    assert steps == [0, 1, 2, 2, 3, 4]
