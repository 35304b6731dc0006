"""The start of a training with a time budget: threads, evaluations, and a plan until the speed is known."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from functools import partial

import torch

from ensue.core.cpu_load import CPULoad
from ensue.train.budget import EVALUATION_SHARE, PROVISIONAL_STEPS, Pace, affordable_evaluations, evaluation_seconds
from ensue.train.plan import Plan, Revision, resolve_steps
from ensue.train.training import Training


def plan_by_budget(training: Training, steps_per_epoch: int, load: CPULoad, fixed_threads: bool) -> None:
    """Give a training its provisional plan, and the pace that revises it.

    The threads follow the load of the machine unless they are fixed. One evaluation is timed; it tells how many the
    budget affords.
    """
    settings = training.settings
    clock = time.process_time if settings.budget_clock == "cpu" else time.perf_counter
    started = clock()
    covers_all = settings.budget_covers == "all"
    limited = settings.steps or settings.epochs
    steps = resolve_steps(settings, steps_per_epoch).steps if limited else 0
    ranks = training.ranks
    adapt = not fixed_threads and training.device.type == "cpu" and ranks.world_size == 1
    adapt = adapt and "OMP_NUM_THREADS" not in os.environ
    most = torch.get_num_threads() if adapt else 0
    pace = Pace(settings.budget, steps, covers_all, most_threads=most, load=load, ranks=ranks.world_size, clock=clock)
    threads = pace.suitable_threads(pace.most_threads)
    training.plan = Plan([Revision(0, steps or PROVISIONAL_STEPS, threads)], by_budget=True)
    torch.set_num_threads(threads or torch.get_num_threads())
    evaluate = training.evaluate
    if evaluate is not None and ranks.world_size > 1:
        evaluate = partial(evaluate, ranks=ranks)
    seconds = ranks.broadcast(evaluation_seconds(evaluate, settings.budget * EVALUATION_SHARE, clock, ranks.broadcast))
    evaluations = affordable_evaluations(settings.budget, seconds, settings.evaluations)
    evaluations = evaluations if covers_all else max(1, evaluations)
    training.settings = replace(settings, evaluations=evaluations)
    if covers_all:
        if evaluations and not settings.eval_every:
            pace.evaluation, pace.evaluations = seconds, evaluations
        pace.add_other(clock() - started)
    load.restart_mean()
    training.pace = pace
