"""Resolve the settings of a run: defaults, then the preset, then a file, then what was typed; later layers win."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError, unknown_name
from ensue.core.events import Report, silent
from ensue.core.settings import build, check_effect, describe, read_toml
from ensue.core.wording import listed
from ensue.models.table import SYSTEMS
from ensue.tasks.recipes import recipe_of, recipes_for
from ensue.tasks.settings import VOCABULARIES, RunSettings, Settings
from ensue.tasks.spec import DEFAULT_BUDGET, Task
from ensue.tasks.table import (
    all_tasks,
    check_task,
    model_class,
    systems_for,
    task_name,
    task_spec,
    trained_by_counting,
)

COUNTERPARTS = (
    ("train.batch", "train.batch_tokens"),
    ("data.field", "data.columns"),
    ("data.eval_tokens", "data.eval_pairs"),
)
"""Pairs of settings with the same purpose, of which a task has one."""
RENAMED = {"train.adapters": "train.lora", "train.adapters_alpha": "train.lora_alpha"}
"""Settings of older versions, and their names now."""
OPTIONAL_TABLES = {
    "distil": ("teacher", "a student with a teacher", "use `ensue distil`"),
    "features": ("features.run", "features of a run", "name one: --from runs/elmo"),
}
"""Tables of run.toml that only some runs have: the setting that adds each, whom it is for, and a hint."""


def tables(system: str, task: str = "") -> Mapping[str, type[Any]]:
    """The tables of run.toml for a system and a task; without a task for the system's own."""
    spec = task_spec(task or task_name(system))
    if not trained_by_counting(system, spec.name):
        return spec.settings
    return {**{name: kind for name, kind in spec.settings.items() if name != "distil"}, "train": spec.counting}


def defaults_of_tasks(name: str) -> dict[str, Any]:
    """The defaults of a setting by the data of the tasks that have it."""
    table, _, inner = name.partition(".")
    return {
        spec.data: field.default
        for spec in all_tasks()
        for kind in (spec.settings.get(table), spec.counting if table == "train" else None)
        if kind is not None
        for field in describe(kind)
        if field.name == inner
    }


def training_names(kind: type[Any]) -> list[str]:
    """The flat names of training settings."""
    return [f"train.{field.name}" for field in describe(kind)]


def without_unused(system: str, task: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings meant for several systems, without what this one does not use because it counts, or does not."""
    spec, own = task_spec(task), setting_names(system, task)
    other = {*training_names(spec.settings["train"]), *training_names(spec.counting)}.difference(own)
    return {name: value for name, value in settings.items() if name not in other}


def check_own(system: str, task: str, names: Iterable[str]) -> None:
    """Refuse settings of other tasks, which would have no effect."""
    own, spec = setting_names(system, task), task_spec(task or task_name(system))
    for name in names:
        others = defaults_of_tasks(name) if "." in name and name not in own else {}
        if name in training_names(spec.settings["train"]) and name not in own:
            hint = f"it uses {listed(training_names(spec.counting))}"
            raise InputError(f"setting {name!r} has no effect on {system}, which is not trained by gradient", hint=hint)
        if name in training_names(spec.counting) and name not in own:
            counting = listed([other for other in systems_for(spec.name) if trained_by_counting(other, spec.name)])
            raise InputError(f"setting {name!r} is for systems that count ({counting})", hint="leave it out")
        if others:
            instead = dict((*COUNTERPARTS, *(pair[::-1] for pair in COUNTERPARTS))).get(name)
            learns = f"{task if spec.by_name else system} learns from {spec.data}"
            hint = f"{learns}: use {instead}" if instead in own else f"{learns}, so leave it out"
            raise InputError(f"setting {name!r} is for {listed(list(others))}", hint=hint)


def check_effects(settings: Settings, typed: Iterable[str]) -> None:
    """Refuse settings that were typed and that others make useless; those of a preset or a file may stay."""
    names = list(typed)
    check_effect(settings.model_config, settings.model, [name for name in names if name in settings.model])
    for table in settings.tables:
        own, prefix = getattr(settings, table), f"{table}."
        inner = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
        check_effect(type(own), asdict(own), inner, prefix)
    if "data.holdout" in names and settings.data.valid:
        raise InputError("setting 'data.holdout' has no effect beside validation data", hint="leave out one of them")
    if "compile" in names and settings.run.compile and trained_by_counting(settings.run.system, settings.run.task):
        raise InputError(f"{settings.run.system} counts: there is nothing to compile", hint="leave out --compile")


def with_new_names(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of this version or an older one, under the names of this one."""
    return {RENAMED.get(name, name): value for name, value in flat.items()}


def read_settings(path: Path, system: str = "", task: str = "", report: Report = silent) -> dict[str, Any]:
    """A run.toml as flat names, for a system and task or those it names.

    Older versions wrote the settings of every task, and those of gradients for systems that count. They have no effect
    and are left out, those of other tasks with a note if they are not at their default.
    """
    flat = with_new_names(read_toml(path))
    system, task = system or str(flat.get("system", "")), task or str(flat.get("task", ""))
    flat = without_unused(system, task or task_name(system), flat)
    own = set(setting_names(system, task))
    others = {name: defaults_of_tasks(name) for name in flat if "." in name and name not in own}
    for name in sorted(name for name, tasks in others.items() if tasks and flat[name] not in tasks.values()):
        what = f"{path}: {name} = {flat[name]!r} is left out: it is for {listed(list(others[name]))}"
        report("note", {"text": what})
    return {name: value for name, value in flat.items() if not others.get(name)}


def resolve(system: str, *, task: str = "", preset: str = "", layers: list[Mapping[str, Any]]) -> Settings:
    """The settings of a run from several layers of flat names; later layers win."""
    task = task or next((str(layer["task"]) for layer in layers if layer.get("task")), "") or task_name(system)
    check_task(system, task)
    spec, cls = task_spec(task), model_class(system, task)
    chosen = preset or next((str(layer["preset"]) for layer in reversed(layers) if layer.get("preset")), "default")
    initialised = any(layer.get("begin_with") for layer in layers)
    flat = preset_settings(system, task, chosen, initialised)
    if any(layer.get(name) for layer in layers for name in ("train.steps", "train.epochs")):
        flat.pop("train.budget", None)  # replaces the preset's budget
    if any(layer.get(name) for layer in layers for name in ("train.steps", "train.budget")):
        flat.pop("train.epochs", None)
    for layer in layers:
        flat.update(layer)
    if initialised:
        tuning = spec.tuning_settings(system, flat)
        flat |= {name: value for name, value in tuning.items() if not any(name in layer for layer in layers)}
    flat |= {"system": system, "task": task, "preset": chosen}
    check_own(system, task, flat)
    kinds = _needed_tables(system, spec, flat)
    groups: dict[str, dict[str, Any]] = {"": {}, **{name: {} for name in kinds}}
    for name, value in flat.items():
        table, dot, inner = name.partition(".")
        if dot and table not in kinds:
            raise unknown_name("setting", name, setting_names(system, task))
        groups[table if dot else ""][inner if dot else name] = value
    top, own = {f.name for f in describe(RunSettings)}, {f.name for f in describe(cls.Config)}
    for name in groups[""]:
        if name not in top | own:
            raise unknown_name("setting", name, setting_names(system, task))
    settings = Settings(
        run=build(RunSettings, {k: v for k, v in groups[""].items() if k in top}),
        model_config=cls.Config,
        model=_model_values(cls.Config, {k: v for k, v in groups[""].items() if k in own}),
        **{name: build(kind, groups[name], f"{name}.") for name, kind in kinds.items()},
    )
    return _with_defaults(settings)


def _needed_tables(system: str, spec: Task, flat: Mapping[str, Any]) -> dict[str, type[Any]]:
    """The tables of a task without those that the run does not need; their settings are refused."""
    kinds = dict(tables(system, spec.name))
    if flat.get("teacher") and "distil" not in kinds:
        raise InputError(f"{system} does not label, so it has no teacher", hint="leave out teacher")
    for table, (setting, owner, hint) in OPTIONAL_TABLES.items():
        if not flat.get(setting):
            kinds.pop(table, None)
            for name in flat:
                if name.startswith(f"{table}.") and name != setting:
                    raise InputError(f"setting {name!r} is for {owner}", hint=hint)
    return kinds


def preset_settings(system: str, task: str, chosen: str, initialised: bool) -> dict[str, Any]:
    """The settings of a preset or of a recipe, as the task uses them."""
    cls = model_class(system, task)
    presets, recipes = cls.presets or {"default": {}}, recipes_for(system)
    if chosen not in {*presets, *recipes, "default"}:
        raise unknown_name("preset", chosen, {"default", *presets, *recipes})
    preset = presets.get(chosen if chosen in presets else "default", {})
    return task_spec(task).preset(preset, recipe_of(system, chosen), initialised)


def own_settings(system: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that concern a system: ``lstm.hidden=256`` is hidden=256 for lstm alone."""
    result = {}
    for name, value in settings.items():
        head, dot, rest = name.partition(".")
        if not (dot and head in SYSTEMS):
            result[name] = value
        elif head == system:
            result[rest] = value
    return result


def _model_values(config: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The model's settings, checked, before the vocabulary is known."""
    known = {f.name for f in describe(config)}
    trial = build(config, {**{name: 2 for name in VOCABULARIES if name in known}, **values})
    return {f.name: getattr(trial, f.name) for f in describe(config)}


def _with_defaults(settings: Settings) -> Settings:
    """A budget if nothing limits training, and evaluations that suit the budget."""
    train, spec = settings.train, task_spec(settings.run.task)
    counts = isinstance(train, spec.counting)
    if not counts and not (train.steps or train.epochs or train.budget):
        train = replace(train, budget=spec.budget)
    share = min(1.0, train.budget / DEFAULT_BUDGET) if train.budget else 1.0
    return replace(settings, train=train, data=spec.shorten(settings.data, share))


def setting_names(system: str, task: str = "") -> list[str]:
    """Every setting's flat name."""
    return list(setting_kinds(system, task))


def setting_kinds(system: str, task: str = "") -> dict[str, Any]:
    """The type of every setting, by its flat name."""
    flat = {f.name: f.kind for f in (*describe(RunSettings), *describe(model_class(system, task).Config))}
    return flat | {f"{table}.{f.name}": f.kind for table, kind in tables(system, task).items() for f in describe(kind)}
