"""``ensue fit``: train a system on a text, in a folder that says all about it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

import ensue
from ensue.core.durations import seconds
from ensue.core.errors import InputError, Interrupted
from ensue.core.events import Report, silent
from ensue.core.files import whole_file, write_text
from ensue.core.memory import keep_freed_memory
from ensue.core.run_folder import RunFolder
from ensue.core.settings import describe
from ensue.models.model import Model
from ensue.models.table import SYSTEMS
from ensue.tasks.machine import check_bf16, check_device, data_files
from ensue.tasks.resolving import read_settings, resolve
from ensue.tasks.settings import VOCABULARIES, Settings
from ensue.tasks.task import Task, build_model, task_of
from ensue.train.checkpoints import Checkpoints
from ensue.train.choosing import choose_weights
from ensue.train.counting import fit_by_counting
from ensue.train.interrupts import stoppable
from ensue.train.loop import Outcome, Training, train
from ensue.train.metrics import Metrics
from ensue.train.plan import plan
from ensue.verbs.beginning import begun_model, begun_settings, first_folder
from ensue.verbs.cards import model_card
from ensue.verbs.run import Run, load


def fit(
    system: str,
    data: str | Path | Sequence[str | Path] = (),
    *,
    valid: str | Path | Sequence[str | Path] = (),
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
    """Train ``system`` on ``data`` and return the run.

    ``settings`` are flat names as in run.toml (``{"train.lr": 3e-4}``); keywords name settings without a dot
    (``layers=2, tokenizer="word", seed=1``). Without ``out`` the run goes to ``runs/SYSTEM``. ``command`` is what the
    model card says was typed.

    >>> import tempfile
    >>> run = fit("ngram", "hello", out=tempfile.mkdtemp() + "/run", order=2)
    >>> run.score(text="hello").tokens
    6
    """
    folder = RunFolder(Path(out) if out is not None else Path("runs") / system)
    typed = _typed(_list(data), _list(valid), settings, flat)
    if resume:
        if config is not None:
            raise InputError("--resume goes on with the run's own run.toml", mend="leave out --config")
        return _resume(folder, system, typed, seconds(str(budget)) if budget else 0.0, report)
    if budget is not None:
        typed["train.budget"] = seconds(str(budget))
    chosen = _resolved(system, typed, config, report)
    first = first_folder(chosen, folder)
    folder.check_free(force)
    _prepare_process(chosen)
    task = task_of(system)
    corpus = task.corpus_of(chosen, first, report)
    model = begun_model(chosen, corpus)
    chosen = replace(chosen, run=replace(chosen.run, command=command or f"ensue fit {system} --config run.toml"))
    chosen = task.resolved(chosen, model, corpus)
    _check_before(task, chosen, corpus, model)
    _check_samples(task, chosen, corpus, model)
    folder.make(force)  # nothing is touched before all is known to be good
    with folder.held(), stoppable():
        return _run(folder, chosen, corpus, model, report)


def _typed(
    data: list[str | Path], valid: list[str | Path], settings: Mapping[str, Any] | None, flat: Mapping[str, Any]
) -> dict[str, Any]:
    """What was typed, by the flat names of run.toml."""
    typed = {("tokenizer.kind" if name == "tokenizer" else name): value for name, value in flat.items()}
    typed |= settings or {}
    if typed.get("begin_with"):
        typed["begin_with"] = str(Path(typed["begin_with"]).absolute())
    if data:
        typed["data.files"] = data_files(data)
    if valid:
        typed["data.valid"] = data_files(valid)
    return typed


def _resolved(system: str, typed: dict[str, Any], config: str | Path | None, report: Report) -> Settings:
    """All layers of settings as one."""
    file = read_settings(Path(config), system, report) if config is not None else {}
    cls = SYSTEMS.load(system)
    known = {f.name for f in describe(cls.Config)}
    file = {name: value for name, value in file.items() if name not in VOCABULARIES or name not in known}
    preset = str(typed.pop("preset", "") or "")
    files = typed.get("data.files", ())
    if not preset and not file and len(files) == 1 and files[0] in cls.presets:
        preset = files[0]  # a built-in corpus has settings of its own
    begun = typed.get("begin_with", file.get("begin_with"))
    if begun:
        typed["begin_with"] = str(Path(begun).absolute())
        file = begun_settings(str(begun), system, file, typed) | file
    chosen = resolve(system, preset=preset, layers=[file, typed])
    if not chosen.data.files:
        mend = "name a file, a folder, - or a built-in corpus such as pydoc"
        raise InputError("there is no text to learn from", mend=mend)
    return chosen


def _check_before(task: Task, settings: Settings, corpus: Any, model: Model) -> None:
    """Whatever can go wrong before the first step should do so before anything is written."""
    if settings.train.precision == "bf16":
        check_bf16(settings.run.device)
    if not hasattr(model, "counter"):
        task.batches(settings, model, corpus)
        task.objective(settings, model, corpus)


def _check_samples(task: Task, settings: Settings, corpus: Any, model: Model) -> None:
    """Refuse to show what a model writes as it learns, where it writes nothing."""
    if not settings.train.sample_every:
        return
    if hasattr(model, "counter") or task.writer(settings, model, corpus, torch.device("cpu")) is None:
        what = f"{settings.run.system} has no samples to show as it learns"
        held_out = corpus.valid is not None
        raise InputError(what, mend="leave out --sample-every" + ("" if held_out else ", or hold something out"))


def _resume(folder: RunFolder, system: str, typed: dict[str, Any], budget: float, report: Report) -> Run:
    """Go on with the run in a folder, as its run.toml says."""
    folder.check_resumable()
    flat = read_settings(folder.settings, report=report)
    chosen = resolve(str(flat.get("system", "")), layers=[flat])
    _check_same(folder, chosen, system, flat, typed)
    if folder.config.exists() and folder.read_config()["figures"]["stopped"] in ("finished", "patience"):
        report("note", {"text": f"{folder.path} is finished: there is nothing left to do"})
        return load(folder.path)
    if "device" in typed:
        chosen = replace(chosen, run=replace(chosen.run, device=str(typed["device"])))
    check_device(chosen.run.device)
    planned = chosen.train.steps or hasattr(SYSTEMS.load(chosen.run.system), "counter")
    if planned:  # a budget has done its work once it has become a number of steps
        chosen = replace(chosen, train=replace(chosen.train, budget=budget))
    _prepare_process(chosen)
    task = task_of(chosen.run.system)
    corpus = task.corpus_of(chosen, folder, report)
    if chosen.data.hash != corpus.hash:
        mend = "put it back, or begin a new run"
        raise InputError("the text has changed since this run began", where=", ".join(chosen.data.files), mend=mend)
    # a checkpoint holds every weight, so the run it began with may be gone
    saved = Checkpoints(folder.checkpoints).latest() is not None
    model = build_model(chosen, corpus) if saved else begun_model(chosen, corpus)
    _check_before(task, chosen, corpus, model)
    with folder.held(), stoppable():
        return _run(folder, chosen, corpus, model, report)


def _check_same(folder: RunFolder, chosen: Settings, system: str, flat: dict[str, Any], typed: dict[str, Any]) -> None:
    """A run goes on as it began: what was typed beside --resume must be what it has."""
    where, mend = str(folder.path), "leave it out, or begin a new run"
    if system not in ("", chosen.run.system) and not Path(system).exists():
        raise InputError(f"is a {chosen.run.system}, not a {system}", where=where, mend=mend)
    extra = {name: value for name, value in typed.items() if name not in ("device", "compile")}
    asked = resolve(chosen.run.system, layers=[flat, extra])
    for table in ("run", "train", "data", "tokenizer"):
        for field in describe(type(getattr(chosen, table))):
            old, new = (getattr(getattr(s, table), field.name) for s in (chosen, asked))
            if old != new and field.name != "budget":
                raise InputError(f"has {field.name} = {old!r}, not {new!r}", where=where, mend=mend)
    for name, old in chosen.model.items():
        if asked.model[name] != old:
            raise InputError(f"has {name} = {old!r}, not {asked.model[name]!r}", where=where, mend=mend)


def _prepare_process(settings: Settings) -> None:
    """As many threads as asked for, and no memory that goes to and fro."""
    keep_freed_memory()
    if settings.train.threads:
        torch.set_num_threads(settings.train.threads)


def _run(folder: RunFolder, settings: Settings, corpus: Any, model: Model, report: Report) -> Run:
    """Train, and write what the run is; a stop at any moment says how to go on."""
    again = f"ensue fit {shlex.quote(str(folder.path))} --resume"
    try:
        stopped = _train_and_write(folder, settings, corpus, model, report)
    except KeyboardInterrupt:
        raise Interrupted(folder.path, again) from None
    except torch._dynamo.exc.TorchDynamoException as error:
        mend = "leave out --compile, or see what is missing with --debug"
        raise InputError("this machine's compiler cannot compile the model", mend=mend) from error
    if stopped.startswith("SIG"):
        raise Interrupted(folder.path, again)
    return load(folder.path)


def _train_and_write(folder: RunFolder, settings: Settings, corpus: Any, model: Model, report: Report) -> str:
    """Train, write the run, and answer why training stopped."""
    settings = replace(settings, data=replace(settings.data, hash=corpus.hash), model=asdict(model.config))
    write_text(folder.settings, settings.toml())
    task_of(settings.run.system).save_tokenizers(corpus, folder)
    fitter = _fit_by_counting if hasattr(model, "counter") else _fit_by_gradient
    model, settings, outcome = fitter(folder, settings, corpus, model, report)
    _finish(folder, settings, corpus, model, outcome, report)
    return outcome.stopped


def _fit_by_gradient(
    folder: RunFolder, settings: Settings, corpus: Any, model: Model, report: Report
) -> tuple[Model, Settings, Outcome]:
    """Train with the loop; the weights of the run are the best or the last."""
    task, device = task_of(settings.run.system), torch.device(settings.run.device)
    model.to(device)
    if settings.run.compile:
        model.compile()
    batches = task.batches(settings, model, corpus)
    checkpoints = Checkpoints(folder.checkpoints, keep=max(2, settings.train.average))
    latest = checkpoints.latest()
    checkpoints.notes.clear()  # the loop finds the same and says so
    work = Training(
        model=model,
        objective=task.objective(settings, model, corpus),
        batches=batches,
        settings=settings.train,
        checkpoints=checkpoints,
        evaluate=task.evaluation(settings, model, corpus),
        sample=task.writer(settings, model, corpus, device) if settings.train.sample_every else None,
        report=report,
        device=device,
        compile=settings.run.compile,
    )
    report("phase", {"name": f"training {settings.run.system}"})
    if latest is None:
        work.settings = plan(work, batches.steps_per_epoch)
    settings = replace(settings, train=replace(work.settings, budget=0.0))  # it has become a number of steps
    write_text(folder.settings, settings.toml())
    work.metrics = Metrics(folder.path, latest.step if latest else 0)
    try:
        outcome = train(work)
    finally:
        work.metrics.close()
    choose_weights(work, checkpoints, outcome)
    return model.cpu(), settings, outcome


def _fit_by_counting(
    folder: RunFolder, settings: Settings, corpus: Any, model: Model, report: Report
) -> tuple[Model, Settings, Outcome]:
    """Count as the model's counter does."""
    report("phase", {"name": f"counting for {settings.run.system}"})
    counter, checkpoints = model.counter(), Checkpoints(folder.checkpoints)  # type: ignore[operator]
    fitted, outcome = fit_by_counting(counter, corpus.train.tokens, checkpoints, settings.train.budget, report)
    assert isinstance(fitted, Model)
    for note in fitted.notes:  # type: ignore[union-attr]
        report("note", {"text": note})
    return fitted, settings, outcome


def _finish(
    folder: RunFolder,
    settings: Settings,
    corpus: Any,
    model: Model,
    outcome: Outcome,
    report: Report,
) -> None:
    """Write the weights, the model card and config.json, which makes the run complete."""
    with whole_file(folder.weights) as temporary:
        save_file(_own_tensors(model), temporary, metadata={"format": "pt"})
        temporary.chmod(0o644)
    figures: dict[str, Any] = {
        "stopped": outcome.stopped,
        "steps": outcome.step,
        "seconds": round(outcome.seconds, 1),
    }
    figures["unit"] = "passes" if hasattr(model, "counter") else "steps"
    figures["tokens"] = outcome.tokens
    figures["parameters"] = sum(p.numel() for p in model.parameters())
    figures["bytes"] = folder.weights.stat().st_size
    task = task_of(settings.run.system)
    if not outcome.stopped.startswith("SIG"):
        valid = task.final_figures(settings, model, corpus, folder, report)
        figures |= {"valid": valid} if valid is not None else {}
    facts = {"data": task.describe_corpus(corpus), "figures": figures}
    if hasattr(settings.data, "direction"):
        facts["direction"] = settings.data.direction
    write_text(folder.card, model_card(settings, facts))
    folder.write_config(settings.run.system, model.config, ensue.__version__, **facts)


def _own_tensors(model: Model) -> dict[str, torch.Tensor]:
    """The state dict with shared weights stored once."""
    seen: dict[int, str] = {}
    result = {}
    for name, tensor in model.state_dict().items():
        key = tensor.data_ptr() if tensor.numel() else id(tensor)
        if key not in seen:
            seen[key] = name
            result[name] = tensor.contiguous()
    return result


def _list(value: str | Path | Sequence[str | Path]) -> list[str | Path]:
    return [value] if isinstance(value, str | Path) else list(value)
