"""How settings come together: defaults, then the preset, then a file, then what was typed; and what concerns whom."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError, unknown_name
from ensue.core.events import Report, silent
from ensue.core.settings import build, describe, read_toml
from ensue.core.wording import listed
from ensue.models.table import FORECASTERS, SYSTEMS, model_class
from ensue.tasks.data_settings import DataSettings, LabelSettings
from ensue.tasks.recipes import recipe_of, recipes_for
from ensue.tasks.settings import LABELS, MATERIAL, TABLES, VOCABULARIES, RunSettings, Settings

DEFAULT_BUDGET = 300.0
"""Seconds, where nothing says how long to train."""
MOST_EVAL_TOKENS = 200_000
"""How many tokens an evaluation during training reads at the most."""
MOST_EVAL_EXAMPLES = 2000
"""How many labelled examples an evaluation during training looks at, where nothing is said."""
COUNTERPARTS = (
    ("train.batch", "train.batch_tokens"),
    ("data.field", "data.columns"),
    ("data.eval_tokens", "data.eval_pairs"),
)
"""Settings that do for text and for pairs what the other does there, where there is only one of them."""
READERS = ("bert", "roberta", "gpt", "lstm", "gru", "gru-cho", "rnn", "ulmfit", "cove")
"""Systems that can be a labelling model's body: those whose hidden states have read the token they stand at."""
TUNING: dict[str, Any] = {
    "train.epochs": 3.0,
    "train.lr": 1e-4,
    "train.schedule": "one-cycle",
    "train.warmup": 0.1,
    "train.floor": 0.0,
    "train.beta2": 0.999,
}
"""How a pre-trained model is fine-tuned for a task, unless its preset says otherwise."""
TUNED_WIDTH = 384
"""The width of a Transformer that this learning rate is for; a narrower one learns faster (``tuning_rate``)."""
LEARNING: dict[str, Any] = {**TUNING, "train.epochs": 5.0, "train.lr": 1e-3, "train.floor": 0.05}
"""How a model learns a task from nothing."""


def task_name(system: str) -> str:
    """What a system is trained for by itself: language, unless it says otherwise."""
    return str(getattr(SYSTEMS.load(system), "task", "language"))


def systems_for(task: str) -> list[str]:
    """The systems that can be trained for a task."""
    if task == "forecast":
        return list(FORECASTERS)
    return list(READERS) if task in LABELS else [name for name in SYSTEMS if task_name(name) == task]


def tables(system: str, task: str = "") -> dict[str, type[Any]]:
    """The tables of run.toml for a system, and a task where it is not the system's own."""
    return TABLES[task or task_name(system)]


def check_task(system: str, task: str) -> None:
    """Refuse a task that a system cannot be trained for."""
    known = systems_for(task)
    if system not in known and task != task_name(system):
        raise InputError(f"{system} cannot be trained to {task}", hint=f"use {', '.join(known)}")


def foreign(system: str, task: str = "") -> dict[str, dict[str, Any]]:
    """Settings that only other tasks have, by flat name: what those learn from, and the default there."""
    found: dict[str, dict[str, Any]] = {}
    for other, kinds in TABLES.items():
        for table, kind in kinds.items():
            for field in describe(kind):
                found.setdefault(f"{table}.{field.name}", {})[MATERIAL[other]] = field.default
    own = set(all_names(system, task))
    return {name: defaults for name, defaults in found.items() if name not in own}


def check_foreign(system: str, task: str, names: Iterable[str]) -> None:
    """Refuse settings that would do nothing for a system because they are another task's."""
    others = foreign(system, task)
    for name in names:
        if name in others:
            instead = dict((*COUNTERPARTS, *(pair[::-1] for pair in COUNTERPARTS))).get(name)
            instead = instead if instead in all_names(system, task) else None
            who = task if task in (*LABELS, "forecast") else system
            learns = f"{who} learns from {MATERIAL[task or task_name(system)]}"
            hint = f"{learns}: use {instead}" if instead else f"{learns}, so leave it out"
            raise InputError(f"setting {name!r} is for {listed(list(others[name]))}", hint=hint)


def read_settings(path: Path, system: str = "", task: str = "", report: Report = silent) -> dict[str, Any]:
    """A run.toml as flat names, for a system and task or those it names.

    Older versions wrote down every task's settings. Those of another task never did anything and are left out; where
    they are not at their default, somebody meant something by them, so it is said.
    """
    flat = read_toml(path)
    others = foreign(system or str(flat.get("system", "")), task or str(flat.get("task", "")))
    for name in sorted(name for name in flat if name in others and flat[name] not in others[name].values()):
        what = f"{path}: {name} = {flat[name]!r} is left out: it is for {listed(list(others[name]))}"
        report("note", {"text": what})
    return {name: value for name, value in flat.items() if name not in others}


def resolve(system: str, *, task: str = "", preset: str = "", layers: list[Mapping[str, Any]]) -> Settings:
    """The settings of a run from several layers of flat names; later layers win."""
    task = task or next((str(layer["task"]) for layer in layers if layer.get("task")), task_name(system))
    check_task(system, task)
    cls = model_class(system, task)
    chosen = preset or next((str(layer["preset"]) for layer in reversed(layers) if layer.get("preset")), "default")
    begun = any(layer.get("begin_with") for layer in layers)
    flat = preset_settings(system, task, chosen, begun)
    if any(layer.get(name) for layer in layers for name in ("train.steps", "train.epochs")):
        flat.pop("train.budget", None)  # who says how far does not want the preset's time
    if any(layer.get(name) for layer in layers for name in ("train.steps", "train.budget")):
        flat.pop("train.epochs", None)
    for layer in layers:
        flat.update(layer)
    if begun and task in LABELS and not any("train.lr" in layer for layer in layers):
        flat["train.lr"] = tuning_rate(system, flat)
    flat |= {"system": system, "task": task, "preset": chosen}
    check_foreign(system, task, flat)
    kinds = dict(tables(system, task))
    if not flat.get("teacher"):
        _check_untaught(flat)
        kinds.pop("distil", None)
    elif "distil" not in kinds:
        raise InputError(f"{system} does not label, so it has no teacher", hint="leave out teacher")
    if not flat.get("features.run"):
        _check_featureless(flat)
        kinds.pop("features", None)
    groups: dict[str, dict[str, Any]] = {"": {}, **{name: {} for name in kinds}}
    for name, value in flat.items():
        table, dot, inner = name.partition(".")
        if dot and table not in kinds:
            raise unknown_name("setting", name, all_names(system, task))
        groups[table if dot else ""][inner if dot else name] = value
    top, own = {f.name for f in describe(RunSettings)}, {f.name for f in describe(cls.Config)}
    for name in groups[""]:
        if name not in top | own:
            raise unknown_name("setting", name, all_names(system, task))
    settings = Settings(
        run=build(RunSettings, {k: v for k, v in groups[""].items() if k in top}),
        model=_model_values(cls.Config, {k: v for k, v in groups[""].items() if k in own}),
        **{name: build(kind, groups[name], f"{name}.") for name, kind in kinds.items()},
    )
    return _with_defaults(settings)


def _check_untaught(flat: Iterable[str]) -> None:
    """Refuse settings of distilling where there is no teacher."""
    for name in flat:
        if name.startswith("distil."):
            raise InputError(f"setting {name!r} is for a student with a teacher", hint="use `ensue distil`")


def _check_featureless(flat: Iterable[str]) -> None:
    """Refuse settings of features where there are none."""
    for name in flat:
        if name.startswith("features.") and name != "features.run":
            raise InputError(f"setting {name!r} is for features of a run", hint="name one: --from runs/elmo")


def preset_settings(system: str, task: str, chosen: str, begun: bool) -> dict[str, Any]:
    """What a preset says. For a task that is not the system's own it says the model's shape and, where nothing is begun
    with, the tokenizer; training is the task's."""
    cls = model_class(system, task)
    presets, recipe = cls.presets or {"default": {}}, recipe_of(system, chosen)
    if chosen not in {*presets, *recipes_for(system), "default"}:
        raise unknown_name("preset", chosen, {"default", *presets, *recipes_for(system)})
    flat: dict[str, Any] = dict(presets.get(chosen if chosen in presets else "default", {}))
    if task == "forecast":
        return flat
    if task == task_name(system) and task not in LABELS:
        return {**flat, **(recipe.language if recipe and begun else {})}
    shape = {name: value for name, value in flat.items() if "." not in name}
    if not begun and "tokenizer.kind" in flat:
        shape["tokenizer.kind"] = flat["tokenizer.kind"]
    return shape | (TUNING if begun else LEARNING) | (recipe.labels(task, begun) if recipe else {})


def tuning_rate(system: str, flat: Mapping[str, Any]) -> float:
    """The learning rate for a pre-trained model; a Transformer's is in inverse proportion to its width.

    Adam moves every weight by about the rate, so that what a sum over D inputs moves by grows with D. It gives 5e-5 for
    the 768 of BERT-base, which is what its paper found.
    """
    rate = float(flat["train.lr"])
    defaults = {field.name: field.default for field in describe(SYSTEMS.load(system).Config)}
    width = flat.get("hidden", defaults.get("hidden"))
    if "heads" not in defaults or not isinstance(width, int) or width < 1:  # what is no width is refused later
        return rate
    return float(f"{rate * TUNED_WIDTH / width:.2g}")


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
    """A budget where nothing says how long, and evaluations that are short where the budget is."""
    train, data = settings.train, settings.data
    counts = hasattr(model_class(settings.run.system, settings.run.task), "counter")
    counts = counts or settings.run.task == "forecast"  # there epochs follow from the number of windows
    if not (train.steps or train.epochs or train.budget or counts):
        train = replace(train, budget=DEFAULT_BUDGET)
    share = min(1.0, train.budget / DEFAULT_BUDGET) if train.budget else 1.0
    if isinstance(data, DataSettings) and not data.eval_tokens:
        data = replace(data, eval_tokens=max(2_000, int(MOST_EVAL_TOKENS * share)))
    if isinstance(data, LabelSettings) and not data.eval_examples and share < 1:
        data = replace(data, eval_examples=max(100, int(MOST_EVAL_EXAMPLES * share)))
    return replace(settings, train=train, data=data)


def all_names(system: str, task: str = "") -> list[str]:
    """Every setting's flat name."""
    flat = [f.name for f in (*describe(RunSettings), *describe(model_class(system, task).Config))]
    return flat + [f"{table}.{f.name}" for table, kind in tables(system, task).items() for f in describe(kind)]
