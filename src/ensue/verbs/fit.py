"""``ensue fit``: train a system, or a system for a task, and write a run folder.

Resolve the settings, read the data, build the model, plan the training; then train, measure and write. Nothing is
written before the settings, the data and the model are known to be good.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ensue.core.cpu_load import CPULoad
from ensue.core.device import check_device
from ensue.core.durations import seconds
from ensue.core.errors import InputError, Interrupted, errors_in
from ensue.core.events import Report, report_all, silent
from ensue.core.memory import keep_freed_memory, release_freed_memory
from ensue.core.run_files import COUNTING, HELD_OUT
from ensue.core.run_folder import RunFolder
from ensue.models.backbones import system_config
from ensue.runs.adapted_weights import copy_base
from ensue.runs.adapter_training import build_on, weights_to_adapt
from ensue.runs.build_model import build_model
from ensue.runs.distributed import check_trainable, first_rank_first, read_corpus
from ensue.runs.fit_settings import check_new_folder, flat_settings, new_settings, resumed_settings
from ensue.runs.held_out import (
    RestFolder,
    counted_again,
    rest_folder,
    rest_settings,
    whole_settings,
)
from ensue.runs.init_from import init_weights
from ensue.runs.load import Run, load
from ensue.runs.memory_check import check_memory
from ensue.tasks.settings import Settings
from ensue.tasks.table import task_of, trained_by_counting
from ensue.train.checkpoints import Checkpoints
from ensue.train.interrupts import sigterm_as_interrupt
from ensue.train.process_group import join_process_group
from ensue.train.ranks import Ranks
from ensue.verbs.fitting.training import plan_training
from ensue.verbs.fitting.work import Fit, Trained
from ensue.verbs.fitting.writing import measure_and_forget, measure_and_write

DONE = ("finished", "patience")
"""Why training stopped, in runs that have nothing left to train."""


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
    with join_process_group() as ranks, _threads_restored():
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


@contextmanager
def _threads_restored() -> Iterator[None]:
    """Give the process back its number of threads: ``train.threads`` is a setting of one run."""
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)


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

    base = weights_to_adapt(settings, initial, folder, ranks)
    if resume:
        with errors_in(folder.settings):
            settings = replace(settings, run=replace(settings.run, device=check_device(settings.run.device)))
        corpus = read_corpus(settings, folder, report, ranks)
        _check_unchanged(settings, corpus)
    else:
        check_memory(settings, ranks, base=base)
        corpus = read_corpus(settings, initial.folder if initial else None, report, ranks)
        check_memory(settings, ranks, corpus, base)

    model = build_model(settings, corpus) if base is None else build_on(base, settings, corpus)
    if base is not None:
        pass  # its weights are there, and adapters start at zero
    # a checkpoint holds every weight, so the initial run may have been deleted
    elif not resume or not ranks.broadcast(ranks.first and Checkpoints(folder.checkpoints).latest() is not None):
        init_weights(model, settings, corpus, report, initial)
    if not resume:
        settings = task.complete_settings(settings, model, corpus)
    data = replace(settings.data, hash=corpus.hash)
    settings = replace(settings, data=data, model=asdict(system_config(model)))

    work = Fit(folder, settings, task, corpus, model, report, ranks, cpu_load, fixed_threads, rest)
    train_model = plan_training(work)
    if not resume:
        ranks.barrier()
        if ranks.first:
            make()
            if base is not None:
                copy_base(base, folder)

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

    It is, except when peak memory matters: for counting, and with recomputed or reversible blocks.
    """
    if settings.train.threads:
        most = torch.get_num_threads() if ranks.world_size > 1 else settings.train.threads
        torch.set_num_threads(min(settings.train.threads, most))
    counts = trained_by_counting(settings.run.system, settings.run.task)
    reversible = str(settings.model.get("norm", "")).startswith("reversible")
    if counts or reversible or getattr(settings.train, "recompute", "none") != "none":
        release_freed_memory()
    else:
        keep_freed_memory()


def _check_unchanged(settings: Settings, corpus: Any) -> None:
    """Refuse to resume with other data."""
    if settings.data.hash != corpus.hash:
        files = (*settings.data.files, *getattr(settings.distil, "files", ()))
        hint = "restore it, or start a new run"
        raise InputError("the text has changed since this run started", where=", ".join(files), hint=hint)


def _train_and_write(work: Fit, train_model: Callable[[], Trained]) -> str:
    """Train, write the run, and return why training stopped."""
    task, folder, ranks = work.task, work.folder, work.ranks
    if ranks.first:
        folder.write_settings(work.settings.toml())
        task.save_tokenizers(work.corpus, folder)
    first_rank_first(ranks, lambda: task.prepare_corpus(work.settings, work.corpus, folder, work.report))
    model, settings, outcome = train_model()
    if isinstance(folder, RestFolder):
        measure_and_forget(replace(work, model=model), folder, outcome)
    elif ranks.first:
        measure_and_write(replace(work, model=model, settings=settings), outcome)
        shutil.rmtree(folder.path / COUNTING, ignore_errors=True)  # the weights hold what was counted on disk
        if not outcome.stopped.startswith("SIG"):
            shutil.rmtree(folder.path / HELD_OUT, ignore_errors=True)
    ranks.barrier()
    return outcome.stopped
