"""``ensue fit``: train a system, or a system for a task, and write a run folder.

The order of things: settings → data → model → what trains it → folder → training → measuring → writing. Nothing is
written before the settings, the data and the model are known to be good.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

import ensue
from ensue.core.durations import seconds
from ensue.core.errors import InputError, Interrupted
from ensue.core.events import Report, silent
from ensue.core.files import write_text
from ensue.core.memory import keep_freed_memory, release_freed_memory
from ensue.core.run_folder import RunFolder
from ensue.models.ngram import NGram
from ensue.nn.recompute import recompute
from ensue.runs.fit_settings import flat_settings, new_settings, resumed_settings
from ensue.runs.init_from import begun_model, check_apart, first_folder
from ensue.runs.load import Run, load
from ensue.runs.memory_check import check_room
from ensue.runs.model_card import model_card
from ensue.runs.save_weights import write_weights
from ensue.runs.shared_reading import check_learns, check_ranks, in_turn, read_corpus, trainers
from ensue.tasks.backbones import system_config
from ensue.tasks.build_model import build_model
from ensue.tasks.disk_counting import check_on_disk, fit_on_disk
from ensue.tasks.features import described
from ensue.tasks.machine import check_bf16
from ensue.tasks.settings import Settings
from ensue.tasks.spec import TaskSpec, TrainingOptions
from ensue.tasks.table import model_class, task_of
from ensue.train.budget import plan_steps
from ensue.train.checkpoints import Checkpoints
from ensue.train.counting import fit_by_counting
from ensue.train.interrupts import sigterm_as_interrupt
from ensue.train.loop import train
from ensue.train.metrics import Metrics
from ensue.train.model_selection import select_weights
from ensue.train.objectives import Objective
from ensue.train.process_group import join_process_group
from ensue.train.ranks import Evaluate, Ranks
from ensue.train.training import Outcome, Training

COUNTING = "counting"
"""The folder in a run where n-grams are sorted that do not fit into memory; deleted when the run is complete."""


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
    typed = flat_settings(_list(data), _list(valid), settings, flat)
    with join_process_group() as ranks:
        report = report if ranks.first else silent
        if resume:
            if config is not None:
                raise InputError("--resume goes on with the run's own run.toml", hint="leave out --config")
            return _resume(folder, what, typed, seconds(str(budget)) if budget else 0.0, report, ranks)
        if budget is not None:
            typed["train.budget"] = seconds(str(budget))
        resolved, initial = new_settings(what, model, typed, config, report)
        command = command or f"ensue fit {what} --config run.toml"
        resolved = replace(resolved, run=replace(resolved.run, command=command))
        return _begin(folder, resolved, initial, force, report, ranks)


@dataclass(frozen=True)
class Fit:
    """A training: its settings, its data and its model."""

    folder: RunFolder
    settings: Settings
    task: TaskSpec
    corpus: Any
    model: Any
    report: Report
    ranks: Ranks

    @property
    def counts(self) -> bool:
        """True if the model is fitted by counting, not by gradient."""
        return hasattr(self.model, "counter")


@dataclass(frozen=True)
class Parts:
    """What trains a model by gradient."""

    batches: Any
    objective: Objective
    evaluate: Evaluate | None
    options: TrainingOptions
    sample: Callable[[], str] | None


def _begin(
    folder: RunFolder, settings: Settings, initial: Run | None, force: bool, report: Report, ranks: Ranks
) -> Run:
    """Train a new run."""
    task = task_of(settings)
    tokenizers = first_folder(settings, folder)
    check_apart(settings, folder)
    if ranks.first:  # the others may come when it is there already
        folder.check_free(force)
    check_learns(settings, ranks)
    if getattr(settings.train, "shard", False) and ranks.world_size == 1:
        report("note", {"text": "one process has nobody to share with: --shard is for torchrun"})
    _prepare_process(settings, ranks)
    check_room(settings, ranks)
    corpus = read_corpus(settings, tokenizers, report, ranks)
    check_room(settings, ranks, corpus)
    model = begun_model(settings, corpus, report, initial)
    settings = task.complete_settings(settings, model, corpus)
    work = Fit(folder, settings, task, corpus, model, report, ranks)
    parts = _parts(work)
    ranks.barrier()
    if ranks.first:
        folder.make(force)
    return _run(work, parts)


def _resume(folder: RunFolder, what: str, typed: dict[str, Any], budget: float, report: Report, ranks: Ranks) -> Run:
    """Go on with the run in a folder, as its run.toml says."""
    folder.check_resumable()
    settings = resumed_settings(folder, what, typed, budget, report)
    if folder.config.exists() and folder.read_config()["figures"]["stopped"] in ("finished", "patience"):
        report("note", {"text": f"{folder.path} is finished: there is nothing left to do"})
        return load(folder.path)
    check_learns(settings, ranks)
    _prepare_process(settings, ranks)
    corpus = read_corpus(settings, folder, report, ranks)
    if settings.data.hash != corpus.hash:
        hint, files = "put it back, or begin a new run", (*settings.data.files, *getattr(settings.distil, "files", ()))
        raise InputError("the text has changed since this run began", where=", ".join(files), hint=hint)
    # a checkpoint holds every weight, so the run it began with may be gone
    saved = ranks.broadcast(ranks.first and Checkpoints(folder.checkpoints).latest() is not None)
    model = build_model(settings, corpus) if saved else begun_model(settings, corpus, report)
    work = Fit(folder, settings, task_of(settings), corpus, model, report, ranks)
    return _run(work, _parts(work))


def _parts(work: Fit) -> Parts | None:
    """Build what trains the model, so that errors come before anything is written; None for a model that counts."""
    settings, task, corpus, model = work.settings, work.task, work.corpus, work.model
    check_ranks(settings, model, work.ranks)
    if getattr(settings.train, "memory", 0):
        check_on_disk(model, settings.train.budget)
    if getattr(settings.train, "precision", "") == "bf16":
        check_bf16(settings.run.device)
    samples, sample = getattr(settings.train, "sample_every", 0), None
    if samples and not work.counts:
        sample = task.sampler(settings, model, corpus, work.ranks.device(settings.run.device))
    if samples and sample is None:
        what = f"{settings.run.system} has no samples to show as it learns"
        hint = "leave out --sample-every" + ("" if corpus.valid is not None else ", or hold something out")
        raise InputError(what, hint=hint)
    if work.counts:
        return None
    return Parts(
        batches=task.batches(settings, model, corpus),
        objective=task.objective(settings, model, corpus),
        evaluate=task.evaluator(settings, model, corpus),
        options=task.options(settings, model, corpus),
        sample=sample,
    )


def _prepare_process(settings: Settings, ranks: Ranks) -> None:
    """Set the number of threads, of several ranks no more than each one's share, and the use of freed memory."""
    _prepare_memory(settings)
    if settings.train.threads:
        most = torch.get_num_threads() if ranks.world_size > 1 else settings.train.threads
        torch.set_num_threads(min(settings.train.threads, most))


def _prepare_memory(settings: Settings) -> None:
    """Keep freed memory, except when peak memory matters: for counting, and with recomputed blocks."""
    counts = hasattr(model_class(settings.run.system, settings.run.task), "counter")
    if counts or getattr(settings.train, "recompute", "none") != "none":
        release_freed_memory()
    else:
        keep_freed_memory()


def _run(work: Fit, parts: Parts | None) -> Run:
    """Train and write; an interrupt at any moment says how to resume."""
    _prepare_memory(work.settings)  # loading another run for its weights may have changed it
    path, again = work.folder.path, f"ensue fit {shlex.quote(str(work.folder.path))} --resume"
    with work.folder.lock() if work.ranks.first else nullcontext(), sigterm_as_interrupt():
        try:
            stopped = _train_and_write(work, parts)
        except KeyboardInterrupt:
            raise Interrupted(path, again) from None
        except torch._dynamo.exc.TorchDynamoException as error:
            hint = "leave out --compile, or see what is missing with --debug"
            raise InputError("this machine's compiler cannot compile the model", hint=hint) from error
        if stopped.startswith("SIG"):
            raise Interrupted(path, again)
        return load(path)


def _train_and_write(work: Fit, parts: Parts | None) -> str:
    """Train, write the run, and return why training stopped."""
    task, folder, ranks = work.task, work.folder, work.ranks
    data = replace(work.settings.data, hash=work.corpus.hash)
    work = replace(work, settings=replace(work.settings, data=data, model=asdict(system_config(work.model))))
    if ranks.first:
        write_text(folder.settings, work.settings.toml())
        task.save_tokenizers(work.corpus, folder)
    in_turn(ranks, lambda: task.prepare_corpus(work.settings, work.corpus, folder, work.report))
    if parts is None:
        model, settings, outcome = _fit_by_counting(work)
    elif task.train is not None:
        model, settings, outcome = task.train(folder, work.settings, work.corpus, parts.batches, work.report)
    else:
        model, settings, outcome = _fit_by_gradient(work, parts)
    if ranks.first:
        _finish(replace(work, model=model, settings=settings), outcome)
        shutil.rmtree(folder.path / COUNTING, ignore_errors=True)  # the weights hold what was counted on disk
    ranks.barrier()
    return outcome.stopped


def _fit_by_gradient(work: Fit, parts: Parts) -> tuple[torch.nn.Module, Settings, Outcome]:
    """Train with the loop; the run keeps the best weights or the last."""
    task, model, settings, folder = work.task, work.model, work.settings, work.folder
    device, ranks = work.ranks.device(settings.run.device), trainers(settings, work.ranks)
    task.prepare_model(settings, model, work.corpus)
    whole = ranks.full_copy(model)
    model.to(device)
    if settings.train.recompute == "blocks":
        recompute(model, settings.run.system)
    if settings.run.compile:
        model.compile()
    keep = max(2, settings.train.average)
    checkpoints = ranks.checkpoints(folder.checkpoints, keep)
    latest = checkpoints.latest()
    checkpoints.notes.clear()  # the loop finds the same and reports it
    training = Training(
        model=model,
        objective=parts.objective,
        batches=parts.batches,
        settings=settings.train,
        checkpoints=checkpoints,
        evaluate=parts.evaluate,
        selection_metric=parts.options.chosen_by,
        item_name=parts.options.counts,
        loss_unit=parts.options.unit,
        unfreezing=parts.options.unfreezing,
        sample=parts.sample,
        report=work.report,
        device=device,
        compile=settings.run.compile,
        ranks=ranks,
    )
    purpose = f" to {task.name}" if task.by_name else ""
    work.report("phase", {"name": f"training {settings.run.system}{purpose}"})
    if latest is None:
        training.settings = plan_steps(training, parts.batches.steps_per_epoch)
    settings = replace(settings, train=replace(training.settings, budget=0.0))  # it has become a number of steps
    if ranks.first:
        write_text(folder.settings, settings.toml())
        training.metrics = Metrics(folder.path, latest.step if latest else 0)
    training.with_weights = ranks.distribute(model, device)
    try:
        outcome = train(training)
    finally:
        if training.metrics is not None:
            training.metrics.close()
    ranks.copy_full_weights(model, whole)
    if not ranks.first:
        return model, settings, outcome
    if whole is not model:
        evaluate = task.evaluator(settings, whole, work.corpus)
        training = replace(training, model=whole.to(device), evaluate=evaluate)
    select_weights(training, Checkpoints(folder.checkpoints, keep), outcome)
    return task.finish_model(whole.cpu()), settings, outcome


def _fit_by_counting(work: Fit) -> tuple[torch.nn.Module, Settings, Outcome]:
    """Count with the model's counter, or on disk if memory is limited."""
    fitted: Any
    train, tokens, report = work.settings.train, work.corpus.train.tokens, work.report
    if getattr(train, "memory", 0):
        fitted, outcome = fit_on_disk(work.model.config, tokens, work.folder.path / COUNTING, train.memory, report)
    else:
        report("phase", {"name": f"counting for {work.settings.run.system}"})
        checkpoints = Checkpoints(work.folder.checkpoints)
        fitted, outcome = fit_by_counting(work.model.counter(), tokens, checkpoints, train.budget, report)
    for note in fitted.notes:
        report("note", {"text": note})
    return fitted, work.settings, outcome


def _finish(work: Fit, outcome: Outcome) -> None:
    """Measure the model and write the weights, the model card and config.json, which makes the run complete."""
    model, settings, folder = work.model, work.settings, work.folder
    write_weights(model, folder)
    figures: dict[str, Any] = {
        "stopped": outcome.stopped,
        "steps": outcome.step,
        "seconds": round(outcome.seconds, 1),
        "unit": "passes" if work.counts else "steps",
        "tokens": outcome.tokens,
        "parameters": sum(p.numel() for p in model.parameters()),
        **({"ngrams": sum(model.counts)} if isinstance(model, NGram) else {}),
        "bytes": folder.weights.stat().st_size,
    }
    if not outcome.stopped.startswith("SIG"):
        valid = work.task.final_figures(settings, model, work.corpus, folder, work.report)
        figures |= {"valid": valid} if valid is not None else {}
    data = work.task.describe_corpus(work.corpus)
    facts: dict[str, Any] = {"task": settings.run.task, "data": data, "figures": figures}
    if hasattr(settings.data, "direction"):
        facts["direction"] = settings.data.direction
    if settings.head is not None:
        facts["head"] = asdict(settings.head)
    if settings.features is not None:
        facts["features"] = described(model)
    write_text(folder.card, model_card(settings, facts))
    folder.write_config(settings.run.system, system_config(model), ensue.__version__, **facts)


def _list(value: str | Path | Sequence[str | Path]) -> list[str | Path]:
    return [value] if isinstance(value, str | Path) else list(value)
