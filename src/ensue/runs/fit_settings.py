"""The settings of ``ensue fit``: from its arguments for a new run, from run.toml for one that is resumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ensue.core.device import check_device
from ensue.core.errors import InputError
from ensue.core.events import Report
from ensue.core.run_folder import RunFolder
from ensue.core.settings import describe, read_toml
from ensue.data.sources import absolute_sources
from ensue.models.table import SYSTEMS
from ensue.runs.init_from import inherited_settings, is_kind_of, lends_features, system_and_task
from ensue.runs.load import Run, load
from ensue.runs.settings_resolution import check_effects, read_settings, resolve, setting_names, with_new_names
from ensue.tasks.settings import VOCABULARIES, Settings
from ensue.tasks.table import check_task, model_class, task_spec, trained_by_counting
from ensue.train.ranks import Ranks

RUNS = ("begin_with", "embeddings", "teacher", "features.run")
"""Settings that name a run; run.toml holds absolute paths."""


def flat_settings(
    data: str | Path | Sequence[str | Path],
    valid: str | Path | Sequence[str | Path],
    settings: Mapping[str, Any] | None,
    flat: Mapping[str, Any],
) -> dict[str, Any]:
    """The arguments of ``fit`` by the flat names of run.toml."""
    typed = {("tokenizer.kind" if name == "tokenizer" else name): value for name, value in flat.items()}
    typed |= with_new_names(settings or {})
    typed |= {name: str(Path(typed[name]).absolute()) for name in RUNS if typed.get(name)}
    files = {"data.files": absolute_sources(data), "data.valid": absolute_sources(valid)}
    return typed | {name: paths for name, paths in files.items() if paths}


def new_settings(
    what: str, model: str, typed: dict[str, Any], config: str | Path | None, report: Report
) -> tuple[Settings, Run | None]:
    """The settings of a new run, and the run that its weights come from.

    Later layers win: the preset, the run that weights come from, ``config``, ``typed``.
    """
    file = read_toml(Path(config)) if config is not None else {}
    path = str(typed.get("begin_with", file.get("begin_with", "")) or "")
    initial = load(path) if path else None
    data = typed.get("data.files") or file.get("data.files") or ()
    system, task = system_and_task(what, model, initial, file, [data] if isinstance(data, str) else list(data))
    _check_fixed(typed, system, task)
    if initial is not None and lends_features(task, initial):
        typed |= {"features.run": str(Path(path).absolute()), "begin_with": ""}
        initial = None
    file = read_settings(Path(config), system, task, report) if config is not None else {}
    check_task(system, task)
    cls = model_class(system, task)
    sizes = {field.name for field in describe(cls.Config)} & set(VOCABULARIES)  # they follow from the data
    file = {name: value for name, value in file.items() if name not in sizes}
    preset = str(typed.pop("preset", "") or "")
    files = typed.get("data.files", ())
    if not preset and not file and len(files) == 1 and files[0] in cls.presets:
        preset = files[0]  # the preset of a built-in corpus
    if initial is not None:
        typed["begin_with"] = str(Path(path).absolute())
        file = inherited_settings(initial, system, task, file, typed) | file
    settings = resolve(system, task=task, preset=preset, layers=[file, typed])
    check_effects(settings, typed)
    check_files(settings)
    return settings, initial


def _check_fixed(typed: Mapping[str, Any], system: str, task: str) -> None:
    """Refuse settings that are not chosen by their name: they would have no effect."""
    for name, value in {"system": system, "task": task}.items():
        if typed.get(name, value) != value:
            hint = f"write `ensue fit {typed[name]}`"
            raise InputError(f"setting {name!r} is {value}, the first argument", hint=hint)
    if typed.get("data.hash"):
        raise InputError("setting 'data.hash' follows from the text", hint="leave it out")


def check_files(settings: Settings) -> None:
    """Refuse settings without any data."""
    spec = task_spec(settings.run.task)
    if settings.distil is not None and spec.labels:
        if not settings.distil.files:
            raise InputError("there is no text for the teacher to label", hint="name some: --unlabelled text.txt")
    elif not settings.data.files and spec.by_name:
        hint = f"name a file: ensue fit {spec.name} {spec.example_file}".rstrip()
        raise InputError("there is nothing to learn from", hint=hint)
    elif not settings.data.files:
        hint = "name a file, a folder, - or a built-in corpus such as pydoc"
        raise InputError("there is no text to learn from", hint=hint)


def check_new_folder(folder: RunFolder, settings: Settings, force: bool, ranks: Ranks) -> None:
    """Refuse a folder that is not empty, and one that ``--force`` would delete with the initial run or the teacher."""
    own, where, hint = folder.path.resolve(), str(folder.path), "give another --out"
    if settings.run.begin_with and Path(settings.run.begin_with).resolve() == own:
        raise InputError("a run cannot be initialised from itself", where=where, hint=hint)
    if settings.run.teacher:
        teacher = Path(settings.run.teacher).resolve()
        if own.is_relative_to(teacher) or teacher.is_relative_to(own):
            raise InputError("a student needs a folder apart from its teacher's", where=where, hint=hint)
    if ranks.first:  # which creates the folder, perhaps before the others get here
        folder.check_free(force, resumable=True)


def resumed_settings(folder: RunFolder, what: str, typed: dict[str, Any], budget: float, report: Report) -> Settings:
    """The settings of a run that is resumed; ``typed`` may only change the device and how weights are sharded."""
    folder.check_resumable()
    flat = read_settings(folder.settings, report=report)
    if "train.recount" in setting_names(str(flat.get("system", "")), str(flat.get("task", ""))):
        flat = {"train.recount": False, **flat}  # older versions counted the training part only
    settings = resolve(str(flat.get("system", "")), layers=[flat])
    check_same(folder, settings, what, flat, typed)
    train, run = settings.train, settings.run
    if "train.shard" in typed:
        asked = resolve(run.system, layers=[flat, {"train.shard": typed["train.shard"]}])
        train = replace(train, shard=asked.train.shard)
    if "device" in typed:
        run = replace(run, device=str(typed["device"]))
    check_device(run.device)
    if budget or trained_by_counting(run.system, run.task) or train.plan:  # the old one has become a plan
        train = replace(train, budget=budget)
    return replace(settings, run=run, train=train)


def check_same(folder: RunFolder, settings: Settings, what: str, flat: dict[str, Any], typed: dict[str, Any]) -> None:
    """Refuse arguments beside ``--resume`` that differ from the run's settings."""
    where, hint = str(folder.path), "leave it out, or start a new run"
    system, names = settings.run.system, {"", settings.run.system, settings.run.task}
    if what in SYSTEMS and settings.run.begin_with and is_kind_of(system, what):
        names.add(what)  # ``--from`` said which system it is
    if what not in names and not Path(what).exists():
        raise InputError(f"is a {system}, not a {what}", where=where, hint=hint)
    extra = {name: value for name, value in typed.items() if name not in ("device", "compile")}
    asked = resolve(settings.run.system, layers=[flat, extra])
    for table in ("run", *settings.tables, "model"):
        old, new = (getattr(one, table) for one in (settings, asked))
        old, new = (old, new) if table == "model" else (asdict(old), asdict(new))
        for name, value in old.items():
            if value != new[name] and name not in ("budget", "shard"):
                raise InputError(f"has {name} = {value!r}, not {new[name]!r}", where=where, hint=hint)
