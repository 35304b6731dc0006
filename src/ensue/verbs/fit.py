"""``ensue fit``: train a system, or a system for a task, and write a run folder.

Resolve the settings, read the data, build the model, plan the training; then train, measure and write. Nothing is
written before the settings, the data and the model are known to be good.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

import ensue
from ensue.core.cpu_load import CPULoad
from ensue.core.device import check_bf16, check_device
from ensue.core.durations import seconds
from ensue.core.errors import InputError, Interrupted, errors_in
from ensue.core.events import Report, report_all, silent
from ensue.core.files import write_text
from ensue.core.memory import keep_freed_memory, release_freed_memory
from ensue.core.run_files import COUNTING
from ensue.core.run_folder import RunFolder
from ensue.models.backbones import system_config
from ensue.models.ngram import NGram
from ensue.nn.recompute import recompute
from ensue.runs.build_model import build_model
from ensue.runs.disk_counting import check_on_disk, fit_on_disk
from ensue.runs.distributed import check_ranks, check_trainable, first_rank_first, read_corpus, training_ranks
from ensue.runs.fit_settings import check_new_folder, flat_settings, new_settings, resumed_settings
from ensue.runs.held_out import (
    HELD_OUT,
    RestFolder,
    counted_again,
    rest_figures,
    rest_folder,
    rest_settings,
    whole_settings,
)
from ensue.runs.init_from import init_weights
from ensue.runs.load import Run, load
from ensue.runs.memory_check import check_memory
from ensue.runs.model_card import model_card
from ensue.runs.save_weights import write_weights
from ensue.tasks.labels.features import describe_features
from ensue.tasks.settings import Settings
from ensue.tasks.spec import Task
from ensue.tasks.table import task_of, trained_by_counting
from ensue.train.checkpoints import Checkpoints
from ensue.train.counting import fit_by_counting
from ensue.train.interrupts import sigterm_as_interrupt
from ensue.train.loop import train
from ensue.train.metrics import Metrics
from ensue.train.model_selection import select_weights
from ensue.train.plan import resolve_steps
from ensue.train.planning import plan_by_budget
from ensue.train.process_group import join_process_group
from ensue.train.ranks import Ranks
from ensue.train.training import Outcome, Training

DONE = ("finished", "patience")
"""Why training stopped, in runs that have nothing left to train."""
Trained = tuple[torch.nn.Module, Settings, Outcome]
"""The trained model, its settings with the plan of the training, and how training ended."""


def fit(
    what: str,
    data: str | Path | Sequence[str | Path] = (),
    *,
    valid: str | Path | Sequence[str | Path] = (),
    model: str = "",
    out: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    config: str | Path | None = None,
    budget: str | float | None = None,
    resume: bool = False,
    force: bool = False,
    command: str = "",
    report: Report = silent,
    **flat: Any,
) -> Run:
    """Train ``what`` on ``data`` and return the run.

    ``what`` is a system, or a task such as classify or tag, whose system is ``model`` or that of the run that its
    weights come from. ``settings`` are flat names as in run.toml (``{"train.lr": 3e-4}``); keywords name settings
    without a dot (``layers=2, tokenizer="word", seed=1``). Without ``out`` the run goes to ``runs/WHAT``. ``command``
    is the command line that the model card shows.

    >>> import tempfile
    >>> run = fit("ngram", "hello", out=tempfile.mkdtemp() + "/run", order=2)
    >>> run.score(text="hello").tokens
    6
    """
    folder = RunFolder(Path(out) if out is not None else Path("runs") / what)
    typed = flat_settings(data, valid, settings, flat)
    budget = None if budget is None else seconds(str(budget))
    with join_process_group() as ranks:
        report = report if ranks.first else silent
        if not resume:
            typed |= {"command": command or f"ensue fit {what} --config run.toml"}
            typed |= {} if budget is None else {"train.budget": budget}
            resolved, initial = new_settings(what, model, typed, config, report)
            check_new_folder(folder, resolved, force, ranks)
            return _train_run(folder, resolved, initial, False, force, report, ranks)
        if config is not None:
            raise InputError("--resume uses the run's own run.toml", hint="leave out --config")
        resolved = resumed_settings(folder, what, typed, budget or 0.0, report)
        damaged = folder.damage() if folder.config.exists() else {}
        report_all([f"{folder.path / name}: {wrong}; it is written again" for name, wrong in damaged.items()], report)
        complete = not damaged and folder.config.exists()
        if complete and folder.read_config().get("figures", {}).get("stopped") in DONE:
            report("note", {"text": f"{folder.path} is finished: there is nothing left to do"})
            return load(folder.path)
        return _train_run(folder, resolved, None, True, False, report, ranks)


@dataclass(frozen=True)
class Fit:
    """A training: its settings, its data and its model."""

    folder: RunFolder
    settings: Settings
    task: Task
    corpus: Any
    model: Any
    report: Report
    ranks: Ranks
    cpu_load: CPULoad
    """What other processes have used since the command started."""
    fixed_threads: bool
    """True if the number of threads was set by hand."""
    rest: dict[str, Any] | None = None
    """The figures of a model without the held-out part, if the run itself counts that part too."""


def _train_run(
    folder: RunFolder, settings: Settings, initial: Run | None, resume: bool, force: bool, report: Report, ranks: Ranks
) -> Run:
    """Train a run with resolved settings; ``initial`` is the run that its weights come from."""
    if not counted_again(settings):
        _train_in(folder, settings, initial, resume, partial(folder.make, force), report, ranks)
        return load(folder.path)
    try:
        settings, rest = _measure_rest(folder, settings, resume, force, report, ranks)
        _train_in(folder, settings, None, bool(settings.data.hash), lambda: None, report, ranks, rest)
    except Interrupted as stop:
        if not folder.settings.exists():
            raise
        raise Interrupted(folder.path, _resume_command(folder)) from stop
    return load(folder.path)


def _measure_rest(
    folder: RunFolder, settings: Settings, resume: bool, force: bool, report: Report, ranks: Ranks
) -> tuple[Settings, dict[str, Any]]:
    """Measure a model of all but the held-out part; return the settings of the model of all, and the figures."""
    rest = rest_folder(folder, settings)
    saved = rest.saved_settings() if resume else None
    figures = rest.read_figures() if resume else None
    if figures is None:
        if settings.data.hash:  # they were deleted
            _check_unchanged(settings, read_corpus(settings, folder, silent, ranks))
        own = saved if saved is not None else rest_settings(settings)
        own = replace(own, train=replace(own.train, budget=settings.train.budget / 2))
        make = partial(rest.make, force) if not resume else partial(rest.path.mkdir, exist_ok=True)
        _train_in(rest, own, None, saved is not None, make, report, ranks)
        figures, saved = rest.read_figures(), rest.saved_settings()
    elif not settings.data.hash:  # the model of all was not started: its text must be the same
        assert saved is not None
        _check_unchanged(saved, read_corpus(saved, rest, silent, ranks))
    assert figures is not None and saved is not None
    return whole_settings(settings, saved, figures["seconds"]), figures


def _resume_command(folder: RunFolder) -> str:
    return f"ensue fit {folder.quoted} --resume"


def _train_in(
    folder: RunFolder,
    settings: Settings,
    initial: Run | None,
    resume: bool,
    make: Callable[[], None],
    report: Report,
    ranks: Ranks,
    rest: dict[str, Any] | None = None,
) -> None:
    """Read the data, build the model and train it in a folder, which ``make`` creates for a new run."""
    task, cpu_load, fixed_threads = task_of(settings), CPULoad(), bool(settings.train.threads)
    check_trainable(settings, ranks, report)
    _prepare_process(settings, ranks)

    if resume:
        with errors_in(folder.settings):
            settings = replace(settings, run=replace(settings.run, device=check_device(settings.run.device)))
        corpus = read_corpus(settings, folder, report, ranks)
        _check_unchanged(settings, corpus)
    else:
        check_memory(settings, ranks)
        corpus = read_corpus(settings, initial.folder if initial else None, report, ranks)
        check_memory(settings, ranks, corpus)

    model = build_model(settings, corpus)
    # a checkpoint holds every weight, so the initial run may have been deleted
    if not resume or not ranks.broadcast(ranks.first and Checkpoints(folder.checkpoints).latest() is not None):
        init_weights(model, settings, corpus, report, initial)
    if not resume:
        settings = task.complete_settings(settings, model, corpus)
    data = replace(settings.data, hash=corpus.hash)
    settings = replace(settings, data=data, model=asdict(system_config(model)))

    work = Fit(folder, settings, task, corpus, model, report, ranks, cpu_load, fixed_threads, rest)
    train_model = _plan(work)
    if not resume:
        ranks.barrier()
        if ranks.first:
            make()

    _prepare_process(settings, ranks)  # loading another run for its weights may have changed the use of memory
    again = _resume_command(folder)
    with folder.lock() if ranks.first else nullcontext(), sigterm_as_interrupt():
        try:
            stopped = _train_and_write(work, train_model)
        except KeyboardInterrupt:
            raise Interrupted(folder.path, again) from None
        except torch._dynamo.exc.TorchDynamoException as error:
            hint = "leave out --compile, or see what is missing with --debug"
            raise InputError("this machine's compiler cannot compile the model", hint=hint) from error
        if stopped.startswith("SIG"):
            raise Interrupted(folder.path, again)


def _prepare_process(settings: Settings, ranks: Ranks) -> None:
    """Set the number of threads, with several ranks at most a rank's share, and whether freed memory is kept.

    It is, except when peak memory matters: for counting, and with recomputed blocks.
    """
    if settings.train.threads:
        most = torch.get_num_threads() if ranks.world_size > 1 else settings.train.threads
        torch.set_num_threads(min(settings.train.threads, most))
    counts = trained_by_counting(settings.run.system, settings.run.task)
    if counts or getattr(settings.train, "recompute", "none") != "none":
        release_freed_memory()
    else:
        keep_freed_memory()


def _check_unchanged(settings: Settings, corpus: Any) -> None:
    """Refuse to resume with other data."""
    if settings.data.hash != corpus.hash:
        files = (*settings.data.files, *getattr(settings.distil, "files", ()))
        hint = "restore it, or start a new run"
        raise InputError("the text has changed since this run started", where=", ".join(files), hint=hint)


def _plan(work: Fit) -> Callable[[], Trained]:
    """Return the function that trains the model; all its parts are built here, before anything is written."""
    settings, task, corpus, model, ranks = work.settings, work.task, work.corpus, work.model, work.ranks
    check_ranks(settings, model, ranks)
    if getattr(settings.train, "memory", 0):
        check_on_disk(model, settings.train.budget)
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


def _train_and_write(work: Fit, train_model: Callable[[], Trained]) -> str:
    """Train, write the run, and return why training stopped."""
    task, folder, ranks = work.task, work.folder, work.ranks
    if ranks.first:
        folder.write_settings(work.settings.toml())
        task.save_tokenizers(work.corpus, folder)
    first_rank_first(ranks, lambda: task.prepare_corpus(work.settings, work.corpus, folder, work.report))
    model, settings, outcome = train_model()
    if isinstance(folder, RestFolder):
        _measure_and_forget(replace(work, model=model), folder, outcome)
    elif ranks.first:
        _measure_and_write(replace(work, model=model, settings=settings), outcome)
        shutil.rmtree(folder.path / COUNTING, ignore_errors=True)  # the weights hold what was counted on disk
        if not outcome.stopped.startswith("SIG"):
            shutil.rmtree(folder.path / HELD_OUT, ignore_errors=True)
    ranks.barrier()
    return outcome.stopped


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
        record_plan()  # also if it was never revised
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


def _measure_and_forget(work: Fit, folder: RestFolder, outcome: Outcome) -> None:
    """Measure a model of all but the held-out part, of which nothing but the figures is kept."""
    if outcome.stopped.startswith("SIG"):
        return
    valid = work.task.final_figures(work.settings, work.model, work.corpus, folder, work.report)
    data = work.task.describe_corpus(work.corpus)
    figures = {"valid": valid, "data": data, "order": work.model.config.order, "seconds": outcome.seconds}
    folder.write_figures(figures, folder.path / COUNTING)


def _measure_and_write(work: Fit, outcome: Outcome) -> None:
    """Measure the model and write the weights, the model card and config.json, which makes the run complete."""
    model, settings, folder = work.model, work.settings, work.folder
    write_weights(model, folder)
    figures: dict[str, Any] = {
        "stopped": outcome.stopped,
        "steps": outcome.step,
        "seconds": round(outcome.seconds, 1),
        "unit": "passes" if trained_by_counting(settings.run.system, settings.run.task) else "steps",
        "tokens": outcome.tokens,
        "parameters": sum(p.numel() for p in model.parameters()),
        **({"ngrams": sum(model.counts)} if isinstance(model, NGram) else {}),
        "bytes": folder.weights.stat().st_size,
        **({"budget": outcome.pace.figures()} if outcome.pace else {}),
    }
    report_all(outcome.pace.remarks(outcome.step) if outcome.pace else (), work.report)
    data = work.task.describe_corpus(work.corpus)
    if work.rest is not None:
        figures |= rest_figures(work.rest, model.config.order, outcome.seconds)
        data |= {name: work.rest["data"][name] for name in ("valid_tokens", "valid_bytes")}
    elif not outcome.stopped.startswith("SIG"):
        valid = work.task.final_figures(settings, model, work.corpus, folder, work.report)
        figures |= {"valid": valid} if valid is not None else {}
    facts: dict[str, Any] = {"task": settings.run.task, "data": data, "figures": figures}
    if hasattr(settings.data, "direction"):
        facts["direction"] = settings.data.direction
    if settings.head is not None:
        facts["head"] = asdict(settings.head)
    if settings.features is not None:
        facts["features"] = describe_features(model)
    write_text(folder.card, model_card(settings, facts))
    folder.write_config(settings.run.system, system_config(model), ensue.__version__, **facts)
