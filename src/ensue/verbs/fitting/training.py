"""Train the model of a run: by gradient with the training loop, by counting, or by a task's own loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from ensue.core.device import check_bf16
from ensue.core.errors import InputError
from ensue.core.events import report_all
from ensue.core.run_files import COUNTING
from ensue.nn.recompute import recompute
from ensue.runs.disk_counting import check_on_disk, fit_on_disk
from ensue.runs.distributed import check_ranks, training_ranks
from ensue.runs.held_out import RestFolder
from ensue.tasks.settings import Settings
from ensue.tasks.table import trained_by_counting
from ensue.train.checkpoints import Checkpoints
from ensue.train.counting import fit_by_counting
from ensue.train.loop import train
from ensue.train.metrics import Metrics
from ensue.train.model_selection import select_weights
from ensue.train.plan import resolve_steps
from ensue.train.planning import plan_by_budget
from ensue.train.training import Training
from ensue.verbs.fitting.work import Fit, Trained


def plan_training(work: Fit) -> Callable[[], Trained]:
    """Return the function that trains the model; all its parts are built here, before anything is written."""
    settings, task, corpus, model, ranks = work.settings, work.task, work.corpus, work.model, work.ranks
    check_ranks(settings, model, ranks)
    if getattr(settings.train, "memory", 0):
        check_on_disk(model, settings.train.budget)
    if getattr(settings.train, "budget_clock", "wall") == "cpu" and settings.run.device != "cpu":
        hint = "leave out --match cpu and train.budget_clock"
        raise InputError(f"CPU time says little about training on {settings.run.device}", hint=hint)
    if getattr(settings.train, "precision", "") == "bf16":
        check_bf16(settings.run.device)
    counts = trained_by_counting(settings.run.system, settings.run.task)
    device, sample = ranks.device(settings.run.device), None
    if getattr(settings.train, "sample_every", 0):
        sample = None if counts else task.sampler(settings, model, corpus, device)
        if sample is None:
            hint = "leave out --sample-every" + ("" if corpus.valid is not None else ", or hold something out")
            raise InputError(f"{settings.run.system} generates no samples during training", hint=hint)
    if counts:
        return partial(_fit_by_counting, work)
    batches = task.batches(settings, model, corpus)
    if task.train is not None:
        return partial(task.train, work.folder, settings, corpus, batches, work.report)
    options, ranks = task.options(settings, model, corpus), training_ranks(settings, ranks)
    training = Training(
        model=model,
        objective=task.objective(settings, model, corpus),
        batches=batches,
        settings=settings.train,
        checkpoints=ranks.checkpoints(work.folder.checkpoints, max(2, settings.train.average)),
        evaluate=task.evaluator(settings, model, corpus),
        selection_metric=options.chosen_by,
        item_name=options.counts,
        loss_unit=options.unit,
        unfreezing=options.unfreezing,
        sample=sample,
        report=work.report,
        device=device,
        compile=settings.run.compile,
        ranks=ranks,
    )
    return partial(_fit_by_gradient, work, training, batches.steps_per_epoch)


def _fit_by_gradient(work: Fit, training: Training, steps_per_epoch: int) -> Trained:
    """Train with the loop; the run keeps the best weights or the last."""
    task, model, settings, folder = work.task, training.model, work.settings, work.folder
    ranks, checkpoints = training.ranks, training.checkpoints
    task.prepare_model(settings, model, work.corpus)
    full = ranks.full_copy(model)
    model.to(training.device)
    if settings.train.recompute == "blocks":
        recompute(model, settings.run.system)
    if settings.run.compile:
        model.compile()
    latest = checkpoints.latest()
    checkpoints.notes.clear()  # the loop finds the same and reports it
    purpose = f" to {task.name}" if task.by_name else ""
    work.report("phase", {"name": f"training {settings.run.system}{purpose}"})
    threads = torch.get_num_threads()

    def planned() -> Settings:
        """The settings with the plan so far, which the budget has become."""
        return replace(settings, train=training.plan.settings(replace(training.settings, budget=0.0)))

    def record_plan() -> None:
        if ranks.first:
            folder.write_settings(planned().toml())

    if settings.train.budget and (latest is None or not settings.train.steps):
        training.record_plan = record_plan
        plan_by_budget(training, steps_per_epoch, work.cpu_load, work.fixed_threads)
    elif latest is None:
        training.settings = resolve_steps(training.settings, steps_per_epoch)
    if training.pace is None:
        record_plan()
    if ranks.first:
        training.metrics = Metrics(folder.path, latest.step if latest else 0)
    training.with_weights = ranks.distribute(model, training.device)
    try:
        outcome = train(training)
    finally:
        torch.set_num_threads(threads)
        if training.metrics is not None:
            training.metrics.close()
    if training.pace is not None and outcome.stopped == "finished":
        record_plan()  # also if the speed was never known
    settings = planned()
    ranks.copy_full_weights(model, full)
    if not ranks.first:
        return model, settings, outcome
    if full is not model:
        evaluate = task.evaluator(settings, full, work.corpus)
        training = replace(training, model=full.to(training.device), evaluate=evaluate)
    select_weights(training, Checkpoints(folder.checkpoints, checkpoints.keep), outcome)
    return task.finish_model(full.cpu()), settings, outcome


def _fit_by_counting(work: Fit) -> Trained:
    """Count with the model's counter, or on disk if memory is limited."""
    fitted: Any
    train, tokens, report = work.settings.train, work.corpus.train.tokens, work.report
    if getattr(train, "memory", 0):
        fitted, outcome = fit_on_disk(work.model.config, tokens, work.folder.path / COUNTING, train.memory, report)
    else:
        part = " without the held-out part" if isinstance(work.folder, RestFolder) else ""
        report("phase", {"name": f"counting for {work.settings.run.system}{part}"})
        checkpoints = Checkpoints(work.folder.checkpoints)
        fitted, outcome = fit_by_counting(work.model.counter(), tokens, checkpoints, train.budget, report)
    report_all(fitted.notes, report)
    return fitted, work.settings, outcome
