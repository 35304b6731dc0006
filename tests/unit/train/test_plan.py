import itertools
import math
from types import SimpleNamespace

import pytest
import torch
from test_loop import Broken, breaking, next_token_loss, weights, work

from ensue.core.cpu_load import CPULoad
from ensue.core.errors import InputError
from ensue.core.events import Abandoned
from ensue.train.budget import PLANNED_SHARE, PROVISIONAL_STEPS, Pace, evaluation_seconds
from ensue.train.loop import report_step, train
from ensue.train.optimisers import learning_rate
from ensue.train.plan import Plan, Revision, fixed_plan, parse_revision, resolve_steps
from ensue.train.planning import plan_by_budget
from ensue.train.progress import Progress
from ensue.train.settings import TrainSettings
from ensue.train.update import update


def simulated(step_seconds, budget=100.0, steps=0, first=0.0):
    """Steps and time of a training at a speed given as a function of the time."""
    pace = Pace(budget, steps=steps)
    plan, progress, now = Plan([Revision(0, steps or PROVISIONAL_STEPS, 0)]), Progress(), 0.0
    rates = []
    while progress.step < plan.steps:
        rates.append(learning_rate(plan.schedule_step(progress), plan.steps, TrainSettings(lr=1.0, warmup=0.1)))
        seconds = step_seconds(now) + (first if progress.step == 0 else 0.0)
        now += seconds
        progress.step, progress.updates = progress.step + 1, progress.updates + 1
        plan.advance(progress)
        pace.add_step(seconds)
        planned = pace.planned_steps(progress.step, plan.steps, progress.position)
        if planned != plan.steps:
            plan.revise(progress, planned, 0)
        plan.follow(progress)
    return progress, now, plan, rates


SPEEDS = {
    "steady": lambda now: 0.1,
    "ten times slower from half on": lambda now: 0.1 if now < 50 else 1.0,
    "ten times faster from half on": lambda now: 1.0 if now < 50 else 0.1,
    "busy every ten seconds": lambda now: 0.5 if int(now / 10) % 2 else 0.05,
    "slower and slower": lambda now: 0.05 + now / 500,
}


@pytest.mark.parametrize("speed", SPEEDS.values(), ids=SPEEDS)
def test_a_budget_is_kept_whatever_the_machine_does(speed):
    progress, used, plan, _ = simulated(speed)
    assert 90 < used <= 104 and progress.step == plan.steps


@pytest.mark.parametrize("speed", SPEEDS.values(), ids=SPEEDS)
def test_the_schedule_reaches_its_end_and_never_jumps(speed):
    progress, _, _, rates = simulated(speed)
    assert progress.position == pytest.approx(1.0) and rates[-1] == pytest.approx(0.05, abs=0.02)
    assert all(abs(after - before) < 0.25 for before, after in itertools.pairwise(rates[5:]))
    peak = rates.index(max(rates))
    assert all(before >= after - 1e-9 for before, after in itertools.pairwise(rates[peak:]))


def test_a_first_step_that_compiles_does_not_count_as_the_speed():
    progress, used, *_ = simulated(SPEEDS["steady"], first=20.0)
    assert 90 < used <= 104 and progress.step > 700


def test_a_comparison_does_not_count_the_compilation_in_the_first_step():
    pace = Pace(100.0, counts_first=False)
    pace.add_step(30.0)
    pace.add_step(1.0)
    assert pace.spent == 1.0 and pace.step_seconds == pytest.approx(1.0)


def test_threads_are_recorded_even_if_the_plan_is_never_revised():
    settings = Plan([Revision(0, 50, 1)], by_budget=True).settings(TrainSettings())
    assert settings.plan == ("0: 50 steps, 1 thread",) and fixed_plan(settings).threads == 1
    assert fixed_plan(settings).settings(settings).plan == settings.plan
    assert fixed_plan(TrainSettings(steps=50)).settings(TrainSettings()).plan == ()


def test_a_step_longer_than_the_budget_is_the_only_one():
    progress, used, *_ = simulated(lambda now: 300.0)
    assert (progress.step, used) == (1, 300.0)


def test_the_steps_that_were_asked_for_are_never_exceeded():
    progress, used, plan, _ = simulated(SPEEDS["steady"], steps=50)
    assert progress.step == 50 and used == pytest.approx(5.0) and len(plan.revisions) == 1


def test_a_steady_machine_needs_few_revisions():
    assert len(simulated(SPEEDS["steady"])[2].revisions) <= 4


def test_an_unrevised_plan_follows_the_steps_themselves():
    plan, progress = fixed_plan(TrainSettings(steps=30)), Progress()
    for step in range(30):
        assert plan.schedule_step(progress) == step
        progress.step += 1
        plan.advance(progress)
        assert progress.position == progress.step / 30


def test_revisions_are_read_as_they_are_written():
    revisions = [Revision(0, 1000, 2), Revision(2, 279, 1), Revision(40, 1, 0)]
    assert [parse_revision(str(one)) for one in revisions] == revisions
    assert str(revisions[1]) == "2: 279 steps, 1 thread"
    with pytest.raises(InputError, match=r"train\.plan has '2: many steps'"):
        parse_revision("2: many steps")


def test_a_plan_is_dropped_if_other_steps_are_asked_for():
    settings = TrainSettings(steps=20, plan=("0: 1000 steps, 1 thread", "2: 20 steps, 1 thread"))
    assert len(fixed_plan(settings).revisions) == 2
    assert fixed_plan(TrainSettings(steps=24, plan=settings.plan)).revisions == [Revision(0, 24, 0)]


def with_budget(folder, objective=next_token_loss, slow_from=8, steps=0):
    """A training of a simulated second a step, five from a step on, with a budget of 40 seconds."""
    training = work(folder, objective, steps=steps, budget=40.0, eval_every=0, checkpoint_every=0, evaluations=3)
    seconds = (1.0 if number < slow_from else 5.0 for number in itertools.count())
    training.pace = Pace(40.0, steps=steps)
    add = training.pace.add_step
    training.pace.add_step = lambda _: add(next(seconds))
    training.pace.add_other = lambda _: None
    training.plan = Plan([Revision(0, steps or PROVISIONAL_STEPS, 1)], by_budget=True)
    training.evaluate = lambda stop: {"valid_loss": float(weights(training).square().sum())}
    return training


def test_the_time_left_is_that_of_the_budget_until_the_number_of_steps_is_known():
    said, pace = [], Pace(40.0)
    pace.add_step(28.0)
    plan = Plan([Revision(0, PROVISIONAL_STEPS, 0)], by_budget=True)
    training = SimpleNamespace(
        plan=plan, pace=pace, item_name="tokens", report=lambda kind, values: said.append(values["left"])
    )
    report_step(training, Progress(step=1, seconds=28.0, tokens=512), 4.0)
    assert said == [12.0]


def test_a_budget_of_cpu_time_does_not_count_the_time_of_other_processes(tmp_path, monkeypatch):
    """A step takes half a second of CPU time, and at least ten seconds by the clock on the wall."""
    cpu, wall = itertools.count(0.0, 0.5), itertools.count(0.0, 10.0)  # what one reading adds
    training = work(tmp_path, next_token_loss, steps=0, budget=40.0, budget_clock="cpu", budget_covers="training")
    training.evaluate = None
    monkeypatch.setattr("ensue.train.planning.time.process_time", lambda: next(cpu))
    monkeypatch.setattr("ensue.train.planning.time.perf_counter", lambda: next(wall))
    plan_by_budget(training, 10, CPULoad(), fixed_threads=True)
    outcome = train(training)
    assert outcome.stopped == "finished" and 75 <= outcome.step <= 80 and outcome.seconds > 750


def repeated(folder, settings, objective=next_token_loss):
    training = work(folder, objective)
    training.settings = resolve_steps(settings, 10)
    training.evaluate = lambda stop: {"valid_loss": float(weights(training).square().sum())}
    return training


def test_a_repeated_run_follows_the_recorded_plan_to_the_same_bits(tmp_path):
    first = with_budget(tmp_path / "first")
    outcome = train(first)
    recorded = first.plan.settings(first.settings)
    assert len(recorded.plan) >= 3 and outcome.step == recorded.steps < 30
    second = repeated(tmp_path / "second", recorded)
    train(second)
    assert torch.equal(weights(first), weights(second))
    assert first.checkpoints.best().step == second.checkpoints.best().step


@pytest.mark.parametrize("at", [2, 7, 12])
def test_a_killed_run_resumes_along_the_recorded_plan(tmp_path, at):
    """The plan is recorded before a revision takes effect, so steps after the last checkpoint are made again alike."""
    recorded = []
    broken = with_budget(tmp_path / "broken", breaking(at))
    broken.record_plan = lambda: recorded.append(broken.plan.settings(broken.settings))
    with pytest.raises(Broken):
        train(broken)
    if not recorded:  # killed before there was a plan: nothing but the budget is known
        assert at == 2
        return
    resumed = repeated(tmp_path / "broken", recorded[-1])
    train(resumed)
    whole = repeated(tmp_path / "whole", recorded[-1])
    train(whole)
    assert torch.equal(weights(whole), weights(resumed))


def explodes_at(call):
    """An objective whose n-th loss is not finite."""
    calls = [0]

    def objective(model, batch, state):
        calls[0] += 1
        loss, after = next_token_loss(model, batch, state)
        return (loss * float("nan") if calls[0] == call else loss), after

    return objective


@pytest.mark.parametrize(("call", "steps"), [(11, 0), (7, 25)], ids=["after a revision", "before the only revision"])
def test_a_rollback_in_a_revised_plan_is_repeated_alike(tmp_path, monkeypatch, call, steps):
    rates = []

    def update_with(training, optimiser, step, state, rate):
        rates.append(rate)
        return update(training, optimiser, step, state, rate)

    monkeypatch.setattr("ensue.train.loop.update", update_with)
    first = with_budget(tmp_path / "first", explodes_at(call), steps=steps)
    train(first)
    recorded, first_rates = first.plan.settings(first.settings), rates.copy()
    assert len(recorded.plan) >= 2
    rates.clear()
    second = repeated(tmp_path / "second", recorded, explodes_at(call))
    train(second)
    assert torch.equal(weights(first), weights(second)) and first_rates == rates


def test_the_time_of_a_rolled_back_update_is_used_time(tmp_path):
    training = with_budget(tmp_path, explodes_at(5))
    rolled_back = []
    training.pace.add_rolled_back = rolled_back.append
    train(training)
    assert len(rolled_back) == 1 and rolled_back[0] > 0


def test_a_plan_is_recorded_once_the_speed_is_known_even_if_it_stays(tmp_path):
    """A run that is killed later must find its threads and evaluations in run.toml."""
    training, recorded = with_budget(tmp_path, slow_from=100, steps=12), []
    training.record_plan = lambda: recorded.append(training.plan.settings(training.settings).plan)
    train(training)
    assert recorded == [("0: 12 steps, 1 thread",)]


def test_the_number_of_evaluations_is_kept_without_a_budget():
    assert resolve_steps(TrainSettings(steps=100, evaluations=4), 10).eval_every == 25
    assert resolve_steps(TrainSettings(steps=100), 10).eval_every == 10
    assert resolve_steps(TrainSettings(steps=100, evaluations=0), 10).eval_every == 0


def test_a_long_training_looks_at_the_load_less_often():
    class Load(CPULoad):
        def others(self, interval):
            intervals.append(interval)

    intervals = []
    pace = Pace(86400.0, most_threads=2, load=Load())
    for pace.spent in (0.0, 3600.0):
        assert pace.suitable_threads(2) == 2
    assert intervals == [pytest.approx(0.2), pytest.approx(36.0)]


def test_ranks_give_up_a_long_evaluation_together():
    """The first rank decides: one that stopped alone would leave the others waiting for its sum."""
    clock = itertools.count(0.0, 10.0)

    def evaluate(stop):
        if stop():
            raise Abandoned

    assert evaluation_seconds(evaluate, 5.0, lambda: next(clock)) == math.inf
    assert evaluation_seconds(evaluate, 5.0, lambda: next(clock), agree=lambda late: False) == 20.0


def test_evaluations_that_cost_time_leave_less_for_steps():
    pace = Pace(100.0, evaluations=5, evaluation=10.0)
    assert pace.left(0.0) == pytest.approx(100 * PLANNED_SHARE - 50)
    assert pace.left(0.5) == pytest.approx(100 * PLANNED_SHARE - 30)
    assert pace.left(1.0) == pytest.approx(100 * PLANNED_SHARE)


def test_the_ranks_of_a_training_are_not_other_processes():
    load = SimpleNamespace(mean_others=lambda: 1.7)
    assert Pace(10.0, load=load).figures()["others"] == 1.7 and Pace(10.0, load=load).remarks(1)
    assert Pace(10.0, load=load, ranks=2).figures()["others"] == 0.0 and not Pace(10.0, load=load, ranks=2).remarks(1)


def test_compilation_that_takes_much_of_a_budget_is_said():
    pace = Pace(10.0)
    pace.add_step(4.0)
    pace.add_step(0.1)
    assert any("the first step took 4 s of 10 s" in remark for remark in pace.remarks(2))
    for _ in range(9):
        pace.add_step(2.0)  # all are slow
    assert not any("the first step" in remark for remark in pace.remarks(11))


def test_an_excess_is_explained():
    pace = Pace(10.0)
    pace.add_step(1.0)
    pace.add_step(14.0)
    assert any("training took 15 s of 10 s: a step took 14 s" in remark for remark in pace.remarks(2))
