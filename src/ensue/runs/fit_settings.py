"""The settings of ``ensue fit``: from its arguments for a new run, from run.toml for one that is resumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError
from ensue.core.events import Report
from ensue.core.run_folder import RunFolder
from ensue.core.settings import describe, read_toml
from ensue.runs.init_from import begun_settings, lends_features, system_and_task
from ensue.runs.load import Run, load
from ensue.runs.settings_resolution import read_settings, resolve
from ensue.tasks.machine import check_device, data_files
from ensue.tasks.settings import VOCABULARIES, Settings
from ensue.tasks.table import check_task, model_class, task_spec

RUNS = ("begin_with", "embeddings", "teacher", "features.run")
"""Settings that name a run; run.toml holds absolute paths."""


def flat_settings(
    data: Sequence[str | Path], valid: Sequence[str | Path], settings: Mapping[str, Any] | None, flat: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of ``fit`` by the flat names of run.toml."""
    typed = {("tokenizer.kind" if name == "tokenizer" else name): value for name, value in flat.items()}
    typed |= settings or {}
    typed |= {name: str(Path(typed[name]).absolute()) for name in RUNS if typed.get(name)}
    if data:
        typed["data.files"] = data_files(data)
    if valid:
        typed["data.valid"] = data_files(valid)
    return typed


def new_settings(
    what: str, model: str, typed: dict[str, Any], config: str | Path | None, report: Report
) -> tuple[Settings, Run | None]:
    """The settings of a new run, and the run that its weights come from.

    Later layers win: the preset, the run that weights come from, ``config``, ``typed``.
    """
    said = read_toml(Path(config)) if config is not None else {}
    path = str(typed.get("begin_with", said.get("begin_with", "")) or "")
    initial = load(path) if path else None
    system, task = system_and_task(what, model, initial, said)
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
        file = begun_settings(initial, system, task, file, typed) | file
    settings = resolve(system, task=task, preset=preset, layers=[file, typed])
    check_files(settings)
    return settings, initial


def check_files(settings: Settings) -> None:
    """Refuse settings without any data."""
    spec = task_spec(settings.run.task)
    if settings.distil is not None:
        if not settings.distil.files:
            raise InputError("there is no text for the teacher to label", hint="name some: --unlabelled text.txt")
    elif not settings.data.files and spec.by_name:
        hint = f"name a file: ensue fit {spec.name} {spec.example_file}".rstrip()
        raise InputError("there is nothing to learn from", hint=hint)
    elif not settings.data.files:
        hint = "name a file, a folder, - or a built-in corpus such as pydoc"
        raise InputError("there is no text to learn from", hint=hint)


def resumed_settings(folder: RunFolder, what: str, typed: dict[str, Any], budget: float, report: Report) -> Settings:
    """The settings of a run that is resumed; ``typed`` may only change the device and how weights are sharded."""
    flat = read_settings(folder.settings, report=report)
    settings = resolve(str(flat.get("system", "")), layers=[flat])
    check_same(folder, settings, what, flat, typed)
    if "train.shard" in typed:
        asked = resolve(settings.run.system, layers=[flat, {"train.shard": typed["train.shard"]}])
        settings = replace(settings, train=replace(settings.train, shard=asked.train.shard))
    if "device" in typed:
        settings = replace(settings, run=replace(settings.run, device=str(typed["device"])))
    check_device(settings.run.device)
    if settings.train.steps or hasattr(model_class(settings.run.system, settings.run.task), "counter"):
        settings = replace(settings, train=replace(settings.train, budget=budget))  # the old one set the steps
    return settings


def check_same(folder: RunFolder, settings: Settings, what: str, flat: dict[str, Any], typed: dict[str, Any]) -> None:
    """Refuse arguments beside ``--resume`` that differ from the run's settings."""
    where, hint = str(folder.path), "leave it out, or begin a new run"
    if what not in ("", settings.run.system, settings.run.task) and not Path(what).exists():
        raise InputError(f"is a {settings.run.system}, not a {what}", where=where, hint=hint)
    extra = {name: value for name, value in typed.items() if name not in ("device", "compile")}
    asked = resolve(settings.run.system, layers=[flat, extra])
    for table in ("run", *settings.tables):
        for field in describe(type(getattr(settings, table))):
            old, new = (getattr(getattr(s, table), field.name) for s in (settings, asked))
            if old != new and field.name not in ("budget", "shard"):
                raise InputError(f"has {field.name} = {old!r}, not {new!r}", where=where, hint=hint)
    for name, old in settings.model.items():
        if asked.model[name] != old:
            raise InputError(f"has {name} = {old!r}, not {asked.model[name]!r}", where=where, hint=hint)
