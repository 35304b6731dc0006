"""``ensue fit``: train a system, or a system for a task, in a folder that says all about it."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

import ensue
from ensue.core.durations import seconds
from ensue.core.errors import InputError, Interrupted
from ensue.core.events import Report, silent
from ensue.core.files import write_text
from ensue.core.memory import give_back_memory, keep_freed_memory
from ensue.core.run_folder import RunFolder
from ensue.core.settings import describe, read_toml
from ensue.models.ngram import NGram
from ensue.models.table import model_class
from ensue.nn.recompute import recompute
from ensue.runs.load import Run, load
from ensue.tasks.backbones import system_config
from ensue.tasks.disk_counting import check_on_disk, fit_on_disk
from ensue.tasks.features import described
from ensue.tasks.machine import check_bf16, check_device, data_files
from ensue.tasks.settings import LABELS, VOCABULARIES, Settings
from ensue.tasks.settings_resolution import check_task, read_settings, resolve
from ensue.tasks.task import Task, build_model, task_of
from ensue.train.budget import plan
from ensue.train.checkpoints import Checkpoints
from ensue.train.counting import fit_by_counting
from ensue.train.interrupts import stoppable
from ensue.train.loop import Outcome, Training, train
from ensue.train.metrics import Metrics
from ensue.train.model_selection import choose_weights
from ensue.train.process_group import ranks_here
from ensue.train.ranks import Ranks
from ensue.verbs.cards import model_card
from ensue.verbs.init_from import (
    begun_model,
    begun_settings,
    check_apart,
    first_folder,
    lends_features,
    system_and_task,
)
from ensue.verbs.memory_check import check_room
from ensue.verbs.ranks import check_learns, check_ranks, in_turn, read_corpus, trainers
from ensue.verbs.save_weights import write_weights

COUNTING = "counting"
"""The folder in a run where n-grams are sorted that do not fit into memory; it goes when the run is complete."""


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
    """Train ``what`` on ``data`` and return the run: a system, or a task that labels (classify, tag …), whose system is
    that of the run it begins with, or ``model``.

    ``settings`` are flat names as in run.toml (``{"train.lr": 3e-4}``); keywords name settings without a dot
    (``layers=2, tokenizer="word", seed=1``). Without ``out`` the run goes to ``runs/WHAT``. ``command`` is what the
    model card says was typed.

    >>> import tempfile
    >>> run = fit("ngram", "hello", out=tempfile.mkdtemp() + "/run", order=2)
    >>> run.score(text="hello").tokens
    6
    """
    folder = RunFolder(Path(out) if out is not None else Path("runs") / what)
    typed = _typed(_list(data), _list(valid), settings, flat)
    with ranks_here() as ranks:
        report = report if ranks.first else silent
        if resume:
            if config is not None:
                raise InputError("--resume goes on with the run's own run.toml", hint="leave out --config")
            return _resume(folder, what, typed, seconds(str(budget)) if budget else 0.0, report, ranks)
        if budget is not None:
            typed["train.budget"] = seconds(str(budget))
        chosen = _resolved(what, model, typed, config, report)
        command = command or f"ensue fit {what} --config run.toml"
        chosen = replace(chosen, run=replace(chosen.run, command=command))
        return _begin(folder, chosen, force, report, ranks)


def _begin(folder: RunFolder, chosen: Settings, force: bool, report: Report, ranks: Ranks) -> Run:
    """Begin a run in a folder; nothing is touched before all is known to be good."""
    first = first_folder(chosen, folder)
    check_apart(chosen, folder)
    if ranks.first:  # the others may come when it is there already
        folder.check_free(force)
    check_learns(chosen, ranks)
    if getattr(chosen.train, "shard", False) and ranks.count == 1:
        report("note", {"text": "one process has nobody to share with: --shard is for torchrun"})
    _prepare_process(chosen, ranks)
    task = task_of(chosen)
    check_room(chosen, ranks)
    corpus = read_corpus(chosen, first, report, ranks)
    check_room(chosen, ranks, corpus)
    made = begun_model(chosen, corpus, report)
    chosen = task.resolved(chosen, made, corpus)
    _check_before(task, chosen, corpus, made, ranks)
    _check_samples(task, chosen, corpus, made)
    ranks.wait()
    if ranks.first:
        folder.make(force)
    return _run(folder, chosen, corpus, made, report, ranks)


def _typed(
    data: list[str | Path], valid: list[str | Path], settings: Mapping[str, Any] | None, flat: Mapping[str, Any]
) -> dict[str, Any]:
    """What was typed, by the flat names of run.toml."""
    typed = {("tokenizer.kind" if name == "tokenizer" else name): value for name, value in flat.items()}
    typed |= settings or {}
    for name in ("begin_with", "embeddings", "teacher", "features.run"):
        if typed.get(name):
            typed[name] = str(Path(typed[name]).absolute())
    if data:
        typed["data.files"] = data_files(data)
    if valid:
        typed["data.valid"] = data_files(valid)
    return typed


def _resolved(what: str, model: str, typed: dict[str, Any], config: str | Path | None, report: Report) -> Settings:
    """All layers of settings as one."""
    said = read_toml(Path(config)) if config is not None else {}
    begun = str(typed.get("begin_with", said.get("begin_with", "")) or "")
    system, task = system_and_task(what, model, begun, said)
    if lends_features(task, begun):
        typed |= {"features.run": str(Path(begun).absolute()), "begin_with": ""}
        begun = ""
    file = read_settings(Path(config), system, task, report) if config is not None else {}
    check_task(system, task)
    cls = model_class(system, task)
    known = {f.name for f in describe(cls.Config)}
    file = {name: value for name, value in file.items() if name not in VOCABULARIES or name not in known}
    preset = str(typed.pop("preset", "") or "")
    files = typed.get("data.files", ())
    if not preset and not file and len(files) == 1 and files[0] in cls.presets:
        preset = files[0]  # a built-in corpus has settings of its own
    if begun:
        typed["begin_with"] = str(Path(begun).absolute())
        file = begun_settings(begun, system, task, file, typed) | file
    chosen = resolve(system, task=task, preset=preset, layers=[file, typed])
    if chosen.distil is not None:
        if not chosen.distil.files:
            raise InputError("there is no text for the teacher to label", hint="name some: --unlabelled text.txt")
    elif not chosen.data.files:
        if task in LABELS or task == "forecast":
            hint = f"name a file: ensue fit {task} {'train.tsv' if task in LABELS else 'my.csv'}"
            raise InputError("there is nothing to learn from", hint=hint)
        hint = "name a file, a folder, - or a built-in corpus such as pydoc"
        raise InputError("there is no text to learn from", hint=hint)
    return chosen


def _check_before(task: Task, settings: Settings, corpus: Any, model: Any, ranks: Ranks) -> None:
    """Whatever can go wrong before the first step should do so before anything is written."""
    check_ranks(settings, model, ranks)
    if getattr(settings.train, "memory", 0):
        check_on_disk(model, settings.train.budget)
    if getattr(settings.train, "precision", "") == "bf16":
        check_bf16(settings.run.device)
    if not hasattr(model, "counter"):
        task.batches(settings, model, corpus)
        task.objective(settings, model, corpus)
        task.evaluation(settings, model, corpus)


def _check_samples(task: Task, settings: Settings, corpus: Any, model: Any) -> None:
    """Refuse to show what a model writes as it learns, where it writes nothing."""
    if not getattr(settings.train, "sample_every", 0):
        return
    if hasattr(model, "counter") or task.writer(settings, model, corpus, torch.device("cpu")) is None:
        what = f"{settings.run.system} has no samples to show as it learns"
        held_out = corpus.valid is not None
        raise InputError(what, hint="leave out --sample-every" + ("" if held_out else ", or hold something out"))


def _resume(folder: RunFolder, what: str, typed: dict[str, Any], budget: float, report: Report, ranks: Ranks) -> Run:
    """Go on with the run in a folder, as its run.toml says."""
    folder.check_resumable()
    flat = read_settings(folder.settings, report=report)
    chosen = resolve(str(flat.get("system", "")), layers=[flat])
    _check_same(folder, chosen, what, flat, typed)
    if folder.config.exists() and folder.read_config()["figures"]["stopped"] in ("finished", "patience"):
        report("note", {"text": f"{folder.path} is finished: there is nothing left to do"})
        return load(folder.path)
    if "train.shard" in typed:  # a word, where somebody typed it
        asked = resolve(chosen.run.system, layers=[flat, {"train.shard": typed["train.shard"]}])
        chosen = replace(chosen, train=replace(chosen.train, shard=asked.train.shard))
    if "device" in typed:
        chosen = replace(chosen, run=replace(chosen.run, device=str(typed["device"])))
    check_device(chosen.run.device)
    planned = chosen.train.steps or hasattr(model_class(chosen.run.system, chosen.run.task), "counter")
    if planned:  # a budget has done its work once it has become a number of steps
        chosen = replace(chosen, train=replace(chosen.train, budget=budget))
    check_learns(chosen, ranks)
    _prepare_process(chosen, ranks)
    task = task_of(chosen)
    corpus = read_corpus(chosen, folder, report, ranks)
    if chosen.data.hash != corpus.hash:
        hint, files = "put it back, or begin a new run", (*chosen.data.files, *getattr(chosen.distil, "files", ()))
        raise InputError("the text has changed since this run began", where=", ".join(files), hint=hint)
    # a checkpoint holds every weight, so the run it began with may be gone
    saved = ranks.agree(ranks.first and Checkpoints(folder.checkpoints).latest() is not None)
    model = build_model(chosen, corpus) if saved else begun_model(chosen, corpus, report)
    _check_before(task, chosen, corpus, model, ranks)
    return _run(folder, chosen, corpus, model, report, ranks)


def _check_same(folder: RunFolder, chosen: Settings, what: str, flat: dict[str, Any], typed: dict[str, Any]) -> None:
    """A run goes on as it began: what was typed beside --resume must be what it has."""
    where, hint = str(folder.path), "leave it out, or begin a new run"
    own = ("", chosen.run.system, chosen.run.task)
    if what not in own and not Path(what).exists():
        raise InputError(f"is a {chosen.run.system}, not a {what}", where=where, hint=hint)
    extra = {name: value for name, value in typed.items() if name not in ("device", "compile")}
    asked = resolve(chosen.run.system, layers=[flat, extra])
    for table in ("run", *chosen.tables):
        for field in describe(type(getattr(chosen, table))):
            old, new = (getattr(getattr(s, table), field.name) for s in (chosen, asked))
            if old != new and field.name not in ("budget", "shard"):
                raise InputError(f"has {field.name} = {old!r}, not {new!r}", where=where, hint=hint)
    for name, old in chosen.model.items():
        if asked.model[name] != old:
            raise InputError(f"has {name} = {old!r}, not {asked.model[name]!r}", where=where, hint=hint)


def _prepare_process(settings: Settings, ranks: Ranks) -> None:
    """As many threads as asked for, of several ranks each no more than its share; and what becomes of freed memory."""
    _prepare_memory(settings)
    if settings.train.threads:
        most = torch.get_num_threads() if ranks.count > 1 else settings.train.threads
        torch.set_num_threads(min(settings.train.threads, most))


def _prepare_memory(settings: Settings) -> None:
    """No memory that goes to and fro, but where little of it matters more: what counts, and blocks that run again."""
    counts = hasattr(model_class(settings.run.system, settings.run.task), "counter")
    if counts or getattr(settings.train, "recompute", "none") != "none":
        give_back_memory()
    else:
        keep_freed_memory()


def _run(folder: RunFolder, settings: Settings, corpus: Any, model: Any, report: Report, ranks: Ranks) -> Run:
    """Train, and write what the run is; a stop at any moment says how to go on."""
    _prepare_memory(settings)  # another run that was opened for its weights may have asked for something else
    with folder.held() if ranks.first else nullcontext(), stoppable():
        return _trained(folder, settings, corpus, model, report, ranks)


def _trained(folder: RunFolder, settings: Settings, corpus: Any, model: Any, report: Report, ranks: Ranks) -> Run:
    """Train and write, while nobody else is in the folder."""
    again = f"ensue fit {shlex.quote(str(folder.path))} --resume"
    try:
        stopped = _train_and_write(folder, settings, corpus, model, report, ranks)
    except KeyboardInterrupt:
        raise Interrupted(folder.path, again) from None
    except torch._dynamo.exc.TorchDynamoException as error:
        hint = "leave out --compile, or see what is missing with --debug"
        raise InputError("this machine's compiler cannot compile the model", hint=hint) from error
    if stopped.startswith("SIG"):
        raise Interrupted(folder.path, again)
    return load(folder.path)


def _train_and_write(
    folder: RunFolder, settings: Settings, corpus: Any, model: Any, report: Report, ranks: Ranks
) -> str:
    """Train, write the run, and answer why training stopped."""
    task = task_of(settings)
    settings = replace(settings, data=replace(settings.data, hash=corpus.hash), model=asdict(system_config(model)))
    if ranks.first:
        write_text(folder.settings, settings.toml())
        task.save_tokenizers(corpus, folder)
    corpus = in_turn(ranks, lambda: task.prepared(settings, corpus, folder, report))
    if hasattr(model, "counter"):
        model, settings, outcome = _fit_by_counting(folder, settings, corpus, model, report)
    elif hasattr(task, "fit"):  # a task may have a way of its own
        model, settings, outcome = task.fit(folder, settings, corpus, model, report)
    else:
        model, settings, outcome = _fit_by_gradient(folder, settings, corpus, model, report, ranks)
    if ranks.first:
        _finish(folder, settings, corpus, model, outcome, report)
        shutil.rmtree(folder.path / COUNTING, ignore_errors=True)  # what was counted on disk is in the weights
    ranks.wait()
    return outcome.stopped


def _fit_by_gradient(
    folder: RunFolder, settings: Settings, corpus: Any, model: Any, report: Report, ranks: Ranks
) -> tuple[torch.nn.Module, Settings, Outcome]:
    """Train with the loop; the weights of the run are the best or the last."""
    task, device, ranks = task_of(settings), ranks.device(settings.run.device), trainers(settings, ranks)
    means = task.means(settings, model, corpus)
    whole = ranks.kept_whole(model)
    model.to(device)
    if settings.train.recompute == "blocks":
        recompute(model, settings.run.system)
    if settings.run.compile:
        model.compile()
    batches = task.batches(settings, model, corpus)
    keep = max(2, settings.train.average)
    checkpoints = ranks.checkpoints(folder.checkpoints, keep)
    latest = checkpoints.latest()
    checkpoints.notes.clear()  # the loop finds the same and says so
    work = Training(
        model=model,
        objective=task.objective(settings, model, corpus),
        batches=batches,
        settings=settings.train,
        checkpoints=checkpoints,
        evaluate=task.evaluation(settings, model, corpus),
        chosen_by=means.chosen_by,
        counts=means.counts,
        unit=means.unit,
        thawing=means.thawing,
        sample=task.writer(settings, model, corpus, device) if settings.train.sample_every else None,
        report=report,
        device=device,
        compile=settings.run.compile,
        ranks=ranks,
    )
    purpose = f" to {settings.run.task}" if settings.run.task in LABELS else ""
    report("phase", {"name": f"training {settings.run.system}{purpose}"})
    if latest is None:
        work.settings = plan(work, batches.steps_per_epoch)
    settings = replace(settings, train=replace(work.settings, budget=0.0))  # it has become a number of steps
    if ranks.first:
        write_text(folder.settings, settings.toml())
        work.metrics = Metrics(folder.path, latest.step if latest else 0)
    work.ask = ranks.spread(model, device)
    try:
        outcome = train(work)
    finally:
        if work.metrics is not None:
            work.metrics.close()
    ranks.give_whole(model, whole)
    if not ranks.first:
        return model, settings, outcome
    if whole is not model:
        work = replace(work, model=whole.to(device), evaluate=task.evaluation(settings, whole, corpus))
    choose_weights(work, Checkpoints(folder.checkpoints, keep), outcome)
    return task.finished(whole.cpu()), settings, outcome


def _fit_by_counting(
    folder: RunFolder, settings: Settings, corpus: Any, model: Any, report: Report
) -> tuple[torch.nn.Module, Settings, Outcome]:
    """Count as the model's counter does, or on disk where there is a limit of memory."""
    fitted: Any
    if getattr(settings.train, "memory", 0):
        work, most = folder.path / COUNTING, settings.train.memory
        fitted, outcome = fit_on_disk(model.config, corpus.train.tokens, work, most, report)
    else:
        report("phase", {"name": f"counting for {settings.run.system}"})
        counter, checkpoints = model.counter(), Checkpoints(folder.checkpoints)
        fitted, outcome = fit_by_counting(counter, corpus.train.tokens, checkpoints, settings.train.budget, report)
    for note in fitted.notes:
        report("note", {"text": note})
    return fitted, settings, outcome


def _finish(
    folder: RunFolder,
    settings: Settings,
    corpus: Any,
    model: torch.nn.Module,
    outcome: Outcome,
    report: Report,
) -> None:
    """Write the weights, the model card and config.json, which makes the run complete."""
    write_weights(model, folder)
    figures: dict[str, Any] = {
        "stopped": outcome.stopped,
        "steps": outcome.step,
        "seconds": round(outcome.seconds, 1),
    }
    figures["unit"] = "passes" if hasattr(model, "counter") else "steps"
    figures["tokens"] = outcome.tokens
    figures["parameters"] = sum(p.numel() for p in model.parameters())
    if isinstance(model, NGram):
        figures["ngrams"] = sum(model.counts)
    figures["bytes"] = folder.weights.stat().st_size
    task = task_of(settings)
    if not outcome.stopped.startswith("SIG"):
        valid = task.final_figures(settings, model, corpus, folder, report)
        figures |= {"valid": valid} if valid is not None else {}
    facts: dict[str, Any] = {"task": settings.run.task, "data": task.describe_corpus(corpus), "figures": figures}
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
