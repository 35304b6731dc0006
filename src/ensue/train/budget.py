"""How many steps a budget buys: the speed of the first steps decides, before training begins.

The steps run here are thrown away, weights and random numbers put back, so a run planned by a budget is the same to the
bit as one whose run.toml names that number of steps.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from ensue.core.seeds import own_randomness
from ensue.train.layer_unfreezing import Thawing
from ensue.train.loop import Training, update
from ensue.train.optimisers import build_optimiser
from ensue.train.settings import TrainSettings

SPARE = 0.94
"""The share of a budget that is planned for; the rest is for a machine that slows down."""
TRIAL = 0.04
"""The share of a budget that may go into measuring speed."""


def plan(work: Training, steps_per_epoch: int) -> TrainSettings:
    """The settings with steps, eval_every and checkpoint_every resolved."""
    settings = work.settings
    steps, evaluations = settings.steps, 10
    if not steps and settings.epochs:
        steps = max(1, round(settings.epochs * steps_per_epoch / settings.accumulate))
    if settings.budget:
        covers_all = settings.budget_covers == "all"
        begun = time.perf_counter()
        paces = step_paces(work, settings.budget * TRIAL)
        how = {} if work.ranks.count == 1 else {"ranks": work.ranks}
        cost = timed(partial(work.evaluate, lambda: False, **how)) if work.evaluate else 0.0
        left = settings.budget * SPARE - (time.perf_counter() - begun) * covers_all
        evaluations = max(1, min(10, int(0.15 * left / cost))) if cost else 10
        left -= evaluations * cost * covers_all
        allowed = max(1, steps_within(left, paces, work.thawing))
        steps = min(steps, allowed) if steps else allowed
        steps, evaluations = work.ranks.agree((steps, evaluations))
        work.report("plan", {"steps": steps, "step_seconds": max(left / allowed, paces[0])})
    steps = steps or steps_per_epoch
    return replace(
        settings,
        steps=steps,
        eval_every=settings.eval_every or max(1, -(-steps // evaluations)),
        checkpoint_every=settings.checkpoint_every or max(1, steps // 10),
    )


def step_paces(work: Training, limit: float) -> list[float]:
    """Seconds of one update in each stage of thawing: the first and the last are tried, those between lie evenly.

    Where layers are let go one after the other, each stage's steps take longer than those before.
    """
    stages = work.thawing.stages if work.thawing else 1
    if stages == 1:
        return [step_seconds(work, limit)]
    assert work.thawing is not None
    first, last = (step_seconds(work, limit / 2, at) for at in (0, work.thawing.thawed))
    return [first + (last - first) * place / (stages - 1) for place in range(stages)]


def steps_within(seconds: float, paces: Sequence[float], thawing: Thawing | None = None) -> int:
    """How many updates fit into a time, stage after stage.

    >>> steps_within(10.0, [0.5])
    20
    >>> steps_within(10.0, [0.5, 1.0, 2.0], Thawing({"w": 0, "head": 2}, frozen=2, every=4))  # 4 · 0.5 + 4 · 1 + 2 · 2
    10
    """
    done = 0
    for pace in paces[:-1]:
        assert thawing is not None
        count = min(thawing.every, int(seconds / pace))
        done, seconds = done + count, seconds - count * pace
        if count < thawing.every:
            return done
    return done + int(max(0.0, seconds) / paces[-1])


def step_seconds(work: Training, limit: float, first: int = 0) -> float:
    """Seconds of one update, the median of a few on a copy of the model, from step ``first`` on."""
    times: list[float] = []
    begun = time.perf_counter()
    with own_randomness(0):
        trial = replace(work, model=copy.deepcopy(work.model))
        if work.compile:
            trial.model.compile()
        trial.ask = work.ranks.spread(trial.model, work.device)
        scales = work.thawing.scales() if work.thawing else None
        optimiser, state = build_optimiser(trial.model, work.settings, scales), None
        while work.ranks.agree(len(times) < 3 or (len(times) < 40 and time.perf_counter() - begun < limit)):
            at = time.perf_counter()
            _, _, state, _ = update(trial, optimiser, first + len(times), state, 0.0)
            times.append(time.perf_counter() - at)
    settled = sorted(times[1:])  # the first pays for what is set up once
    return settled[len(settled) // 2]


def timed(action: Callable[[], object]) -> float:
    """Seconds that an action takes."""
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun
