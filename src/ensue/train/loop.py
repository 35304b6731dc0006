"""The training loop: one function, in the order things happen.

Everything that training needs is in ``Training``; everything that an interruption must not lose is in ``Progress`` and
the tensors of a checkpoint. A batch is a pure function of its number, so a resumed run is bit-identical to one that was
never interrupted.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict
from typing import Any

import torch

from ensue.core.errors import InputError
from ensue.core.seeds import get_random_state, set_random_state
from ensue.nn.adapters import trained_state
from ensue.nn.state import State
from ensue.train.checkpoints import BEST, STOP, Checkpoint, Tensors
from ensue.train.interrupts import Interrupts
from ensue.train.optimisers import build_optimiser, learning_rate, optimiser_tensors
from ensue.train.progress import Progress
from ensue.train.training import Outcome, Training
from ensue.train.update import initial_state, update

MAX_ROLLBACKS = 10
"""Rollbacks without a new checkpoint in between."""
TRIES = 2
"""Rollbacks to one checkpoint; after them its weights are given up for those of the one before."""
MIN_PENALTY = 2.0**-20
"""The smallest learning-rate factor of rollbacks."""


def train(training: Training) -> Outcome:
    """Train until the plan is done, the budget is spent, validation stops improving, or a signal arrives."""
    settings, ranks, plan = training.settings, training.ranks, training.plan
    scales = training.unfreezing.scales() if training.unfreezing else None
    optimiser = build_optimiser(training.model, settings, scales)
    progress, state = restore(training, optimiser, training.checkpoints.latest())
    plan.resume(progress)
    if progress.step == 0:
        save(training, optimiser, progress, state)  # something to roll back to
    spent_before = spent(training, progress)
    stopped = ""
    with Interrupts() as interrupts:
        while not stopped and (progress.owed or progress.step < plan.steps):
            if not progress.owed:  # else the process was interrupted in the evaluation of this step
                # one update
                started, begun = time.perf_counter(), training.clock()
                rate = scheduled_rate(training, progress)
                loss, norm, state, tokens = update(training, optimiser, progress.step, state, rate)
                progress.add_time(time.perf_counter() - started, tokens)
                if not (math.isfinite(loss) and math.isfinite(norm)):
                    progress, state = roll_back(training, optimiser, progress, begun)
                    continue
                progress.add_update(loss, norm, rate, settings.clip)
                plan.advance(progress)
                training.run_hooks(progress.step)
                revise_plan(training, progress, training.clock() - begun)
                report_step(training, progress, loss)

            # evaluation, metrics, a sample, a checkpoint
            started, begun = time.perf_counter(), training.clock()
            last = progress.step >= plan.steps
            measures = evaluate(training, progress, interrupts)
            if progress.owed:
                stopped = ranks.stop_signal(interrupts.signal)
                save(training, optimiser, progress, state, STOP)
                break
            if measures or last or progress.step % settings.log_every == 0:
                log(training, progress, measures)
            generate_sample(training, progress)
            if last or plan.due(progress, settings.checkpoint_every):
                progress.rollbacks = 0
                save(training, optimiser, progress, state)
            add_overhead(training, progress, time.perf_counter() - started, training.clock() - begun)

            # reasons to stop early
            signal = ranks.stop_signal(interrupts.signal)
            over_budget = training.pace is None and spent(training, progress) - spent_before > settings.budget
            if measures and 0 < settings.patience <= progress.stale:
                stopped = "patience"
            elif not last and settings.budget and ranks.broadcast(over_budget):
                stopped = "budget"
            elif not last:
                stopped = signal
            if stopped:
                save(training, optimiser, progress, state, STOP)
    ended = stopped or "finished"
    return Outcome(ended, progress.step, progress.seconds, progress.best, progress.tokens, training.pace)


def scheduled_rate(training: Training, progress: Progress) -> float:
    """Return the learning rate of the next update: the schedule's, lowered by plateaus and rollbacks."""
    plan = training.plan
    scheduled = learning_rate(plan.schedule_step(progress), plan.steps, training.settings)
    return progress.penalty * progress.lr_scale * scheduled


def spent(training: Training, progress: Progress) -> float:
    """Return the seconds that count against the budget."""
    return progress.seconds + progress.overhead * (training.settings.budget_covers == "all")


def revise_plan(training: Training, progress: Progress, seconds: float) -> None:
    """Revise the plan if the budget asks for it, record that, and put the revision that is due in force."""
    plan, pace = training.plan, training.pace
    if pace is not None:
        pace.add_step(seconds)
        provisional = not pace.first_plan
        steps = pace.planned_steps(progress.step, plan.steps, progress.previous_position)
        threads = pace.suitable_threads(plan.threads)
        known = bool(pace.first_plan)
        steps, threads, known, first = training.ranks.broadcast((steps, threads, known, known and provisional))
        changed = known and (steps, threads) != (plan.steps, plan.threads)
        if changed:
            plan.revise(progress, steps, threads)
        if changed or first:
            training.record_plan()
            values = {"steps": steps, "threads": threads, "step_seconds": pace.step_seconds, "first": first}
            training.report("plan", values)
    plan.follow(progress)


def generate_sample(training: Training, progress: Progress) -> None:
    """Report a generated text if it is time for one."""
    every = training.settings.sample_every
    if training.sample and every and progress.step % every == 0:
        text = training.ranks.sample(training.with_weights, training.sample)
        training.report("sample", {"step": progress.step, "text": text})


def add_overhead(training: Training, progress: Progress, seconds: float, counted: float) -> None:
    """Count time that was not spent in updates; ``counted`` is that time by the clock of the budget."""
    progress.overhead += seconds
    if training.pace is not None and training.settings.budget_covers == "all":
        training.pace.add_other(counted)


def report_step(training: Training, progress: Progress, loss: float) -> None:
    """Report a step and the estimated time left."""
    steps = training.plan.steps
    values: dict[str, Any] = {"step": progress.step, "steps": steps, "loss": loss}
    values |= {"tokens_per_second": progress.tokens / progress.seconds, "counts": training.item_name}
    left = (steps - progress.step) * (progress.seconds + progress.overhead) / progress.step
    if training.pace is not None and not training.pace.first_plan:  # the number of steps is not known yet
        left = min(left, max(training.pace.budget - training.pace.spent, 0.0))
    values |= {"left": left}
    training.report("step", values)


def evaluate(training: Training, progress: Progress, interrupts: Interrupts) -> dict[str, float]:
    """Evaluate if it is time, and save the best weights; an interrupted evaluation is repeated on resume."""
    plan, settings = training.plan, training.settings
    due = progress.step >= plan.steps or plan.due(progress, settings.eval_every, settings.evaluations)
    none_wanted = not (settings.eval_every or settings.evaluations)
    if training.evaluate is None or none_wanted or not due:
        return {}
    training.model.eval()
    started = training.clock()
    measures = training.ranks.evaluate(training.with_weights, training.evaluate, interrupts)
    if training.pace is not None and training.pace.evaluation:
        training.pace.evaluation = training.clock() - started
    progress.owed = measures is None
    if measures is None:
        return {}
    training.report("evaluation", {"step": progress.step, **measures})
    value = training.badness(measures)
    if value < progress.best:
        progress.best, progress.stale = value, 0
        weights = {"model": trained_state(training.model)}
        training.checkpoints.save(Checkpoint(progress.step, weights, {"worth": value}), BEST)
    else:
        progress.stale += 1
        if training.settings.schedule == "plateau":
            progress.lr_scale /= 2
    return measures


def log(training: Training, progress: Progress, measures: dict[str, float]) -> None:
    """Write a metrics record: mean loss, largest norm and clipped updates since the record before."""
    if training.metrics is not None:
        record = {"step": progress.step, "loss": progress.loss / progress.count, "lr": progress.rate}
        record |= {"norm": progress.norm, "norm_top": progress.top, "clipped": progress.clipped}
        training.metrics.write({**record, "seconds": round(progress.seconds, 3), **measures})
    progress.loss, progress.count, progress.top, progress.clipped = 0.0, 0, 0.0, 0


def roll_back(
    training: Training, optimiser: torch.optim.Optimizer, broken: Progress, begun: float
) -> tuple[Progress, State | None]:
    """Return to a scheduled checkpoint and halve the learning rate; time, since ``begun``, and tokens stay counted.

    A checkpoint may hold weights that have already diverged. After ``TRIES`` rollbacks to it, it is removed, and the
    one before it is used.
    """
    checkpoints = training.checkpoints
    if broken.rollbacks == MAX_ROLLBACKS or broken.penalty <= MIN_PENALTY:
        tried = f"after a rollback to step {broken.restored} and {broken.penalty:g} of the learning rate"
        raise InputError(
            f"the loss is not finite at step {broken.step + 1}, {tried}",
            hint="lower train.lr, or check the data for extreme values",
        )
    checkpoints.remove_stop()
    if broken.rollbacks and broken.rollbacks % TRIES == 0:
        training.ranks.barrier()
        if training.ranks.first:
            checkpoints.remove_newest()
        training.ranks.barrier()
    progress, state = restore(training, optimiser, checkpoints.latest_scheduled())
    progress.penalty, progress.rollbacks, progress.restored = broken.penalty / 2, broken.rollbacks + 1, progress.step
    progress.seconds, progress.overhead, progress.tokens = broken.seconds, broken.overhead, broken.tokens
    progress.updates = broken.updates
    if training.plan.revised:
        progress.anchor()
    if broken.best != progress.best:  # the best weights come from the steps that are rolled back
        progress.best = math.inf
    if training.metrics is not None:
        training.metrics.truncate(progress.step)
    if training.pace is not None:
        training.pace.add_rolled_back(training.clock() - begun)
    action = f"rolled back to step {progress.step} at {progress.penalty:g} of the learning rate"
    training.report("note", {"text": f"the loss is not finite at step {broken.step + 1}: {action}"})
    return progress, state


def save(
    training: Training, optimiser: torch.optim.Optimizer, progress: Progress, state: State | None, name: str = ""
) -> None:
    """Write a checkpoint: a scheduled one, or one with a name."""
    full_state = training.ranks.gather_state(state, training.batches.rows)
    groups: dict[str, Tensors] = {
        "model": trained_state(training.model),
        "optimiser": optimiser_tensors(optimiser),
        "random": get_random_state(),
        "state": dict(full_state.tensors()) if full_state is not None else {},
    }
    groups |= {"ranks": states} if (states := training.ranks.random_states()) else {}
    best = progress.best if math.isfinite(progress.best) else None
    training.checkpoints.save(Checkpoint(progress.step, groups, {**asdict(progress), "best": best}), name)


def restore(
    training: Training, optimiser: torch.optim.Optimizer, checkpoint: Checkpoint | None
) -> tuple[Progress, State | None]:
    """Load a checkpoint, or start from the beginning if there is none."""
    while training.checkpoints.notes:
        training.report("note", {"text": training.checkpoints.notes.pop()})
    if checkpoint is None:
        training.ranks.set_random_state({}, 0)
        training.run_hooks(0)
        return Progress(), None
    training.ranks.restore(training.model, optimiser, checkpoint)
    set_random_state(checkpoint.tensors["random"])
    training.ranks.set_random_state(checkpoint.tensors.get("ranks", {}), checkpoint.step)
    values = {**checkpoint.progress, "step": checkpoint.step}
    values["best"] = math.inf if values["best"] is None else values["best"]
    state = None
    if checkpoint.tensors["state"]:
        full_state = initial_state(training, training.batches.rows).filled(checkpoint.tensors["state"])
        local_state = training.ranks.local_state(full_state, training.batches.rows)
        state = local_state.map(lambda tensor: tensor.to(training.device))
    training.run_hooks(checkpoint.step)
    return Progress(**values), state
