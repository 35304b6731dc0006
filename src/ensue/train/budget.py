"""How many steps fit into a time budget, from the speed of a few trial steps.

Trial steps run on a copy of the model and leave the random state as it was, so a run planned by a budget is
bit-identical to one whose run.toml gives that number of steps.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from ensue.core.seeds import isolated_rng
from ensue.nn.state import State
from ensue.train.layer_unfreezing import LayerUnfreezing
from ensue.train.optimisers import build_optimiser
from ensue.train.ranks import SINGLE, Ranks
from ensue.train.settings import TrainSettings
from ensue.train.training import Training
from ensue.train.update import update

PLANNED_SHARE = 0.94
"""The share of a budget that is planned; the rest is a reserve in case the machine slows down."""
TRIAL_SHARE = 0.04
"""The share of a budget that trial steps may take."""
MIN_TRIALS, MAX_TRIALS = 3, 40


def plan_steps(training: Training, steps_per_epoch: int) -> TrainSettings:
    """Return the settings with steps, eval_every and checkpoint_every resolved."""
    settings = training.settings
    steps, evaluations = settings.steps, 10
    if not steps and settings.epochs:
        steps = max(1, round(settings.epochs * steps_per_epoch / settings.accumulate))
    if settings.budget:
        covers_all = settings.budget_covers == "all"
        started = time.perf_counter()
        seconds = stage_seconds(training, settings.budget * TRIAL_SHARE)
        extra = {} if training.ranks.world_size == 1 else {"ranks": training.ranks}
        cost = timed(partial(training.evaluate, lambda: False, **extra)) if training.evaluate else 0.0
        left = settings.budget * PLANNED_SHARE - (time.perf_counter() - started) * covers_all
        evaluations = max(1, min(10, int(0.15 * left / cost))) if cost else 10
        left -= evaluations * cost * covers_all
        allowed = max(1, steps_within(left, seconds, training.unfreezing))
        steps = min(steps, allowed) if steps else allowed
        steps, evaluations = training.ranks.broadcast((steps, evaluations))
        training.report("plan", {"steps": steps, "step_seconds": max(left / allowed, seconds[0])})
    steps = steps or steps_per_epoch
    return replace(
        settings,
        steps=steps,
        eval_every=settings.eval_every or max(1, -(-steps // evaluations)),
        checkpoint_every=settings.checkpoint_every or max(1, steps // 10),
    )


def stage_seconds(training: Training, limit: float) -> list[float]:
    """Return the seconds of one update in each stage of unfreezing.

    The more layers are trained, the longer a step takes: the first and the last stage are measured, those between are
    interpolated.
    """
    unfreezing = training.unfreezing
    if unfreezing is None or unfreezing.stages == 1:
        return [update_seconds(training, limit)]
    first, last = (update_seconds(training, limit / 2, step) for step in (0, unfreezing.last_stage_step))
    return [first + (last - first) * stage / (unfreezing.stages - 1) for stage in range(unfreezing.stages)]


def steps_within(seconds: float, stages: Sequence[float], unfreezing: LayerUnfreezing | None = None) -> int:
    """Return how many updates fit into a time, given the seconds of one update in each stage of unfreezing.

    >>> steps_within(10.0, [0.5])
    20
    >>> unfreezing = LayerUnfreezing({"w": 0, "head": 2}, frozen=2, every=4)
    >>> steps_within(10.0, [0.5, 1.0, 2.0], unfreezing)  # 4 · 0.5 + 4 · 1 + 2 · 2
    10
    """
    done = 0
    for step_seconds in stages[:-1]:
        assert unfreezing is not None
        count = min(unfreezing.every, int(seconds / step_seconds))
        done, seconds = done + count, seconds - count * step_seconds
        if count < unfreezing.every:
            return done
    return done + int(max(0.0, seconds) / stages[-1])


def update_seconds(training: Training, limit: float, first: int = 0) -> float:
    """Return the median seconds of an update, measured on a copy of the model from step ``first`` on."""
    with isolated_rng(0):
        trial = replace(training, model=copy.deepcopy(training.model), after_update=())
        if training.compile:
            trial.model.compile()
        trial.with_weights = training.ranks.distribute(trial.model, training.device)
        scales = training.unfreezing.scales() if training.unfreezing else None
        optimiser = build_optimiser(trial.model, training.settings, scales)
        state: State | None = None

        def step(number: int) -> None:
            nonlocal state
            trial.run_hooks(first + number)
            _, _, state, _ = update(trial, optimiser, first + number, state, 0.0)

        return median_seconds(step, limit, ranks=training.ranks)


def median_seconds(step: Callable[[int], object], limit: float, most: float = math.inf, ranks: Ranks = SINGLE) -> float:
    """Return the median seconds of trial steps.

    At least three are run, and more until ``limit`` seconds have passed; fewer if ``most`` seconds have passed. The
    first is not counted: it pays for compilation and set-up.
    """
    times: list[float] = []
    started = time.perf_counter()
    while ranks.broadcast(
        len(times) < MIN_TRIALS or (len(times) < MAX_TRIALS and time.perf_counter() - started < limit)
    ):
        times.append(timed(partial(step, len(times))))
        if time.perf_counter() - started > most:
            break
    counted = sorted(times[1:] or times)
    return counted[len(counted) // 2]


def timed(action: Callable[[], object]) -> float:
    """Return the seconds that an action takes."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started
