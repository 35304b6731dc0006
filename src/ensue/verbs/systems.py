"""``ensue systems``: the list of systems, or the description of one."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ensue.core.settings import describe
from ensue.models.table import SYSTEMS
from ensue.runs.settings_resolution import OPTIONAL_TABLES, resolve, tables
from ensue.tasks.recipes import recipes_for
from ensue.tasks.settings import VOCABULARIES
from ensue.tasks.table import all_tasks


def systems(name: str = "") -> dict[str, Any]:
    """The summaries of all systems, or one system's equations, citation, settings, presets and expected figures.

    Defaults are those of a run without a preset; a preset is what it changes of them. Recipes are presets for
    fine-tuning (``--from``), with their settings for labels of whole texts.
    """
    if not name:
        return {"systems": [{"system": n, "summary": e.summary} for n, e in SYSTEMS.entries.items()]}
    cls = SYSTEMS.load(name)
    own = {table: kind for table, kind in tables(name).items() if table not in OPTIONAL_TABLES}
    settings = [("", cls.Config), *((f"{table}.", kind) for table, kind in own.items())]
    result: dict[str, Any] = {
        "system": name,
        "summary": SYSTEMS.entries[name].summary,
        "equation": equation(cls),
        "settings": _described(settings, run_defaults(name)),
        "presets": _presets(name, cls) | recipes_for(name),
        "recipes": list(recipes_for(name)),
        "figures": [f"--preset {preset}: {figure}" for preset, figure in getattr(cls, "expect", {}).items()],
    }
    return result | _for_other_tasks(name, cls)


def run_defaults(system: str, task: str = "", preset: str = "") -> dict[str, Any]:
    """The settings of a run with nothing but a preset chosen, by their flat names."""
    settings = resolve(system, task=task, preset=preset, layers=[])
    values = dict(settings.model)
    for table in settings.tables:
        values |= {f"{table}.{name}": value for name, value in asdict(getattr(settings, table)).items()}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _described(settings: Sequence[tuple[str, type[Any]]], defaults: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The name, default and meaning of each setting; vocabularies follow from the data."""
    return [
        {"name": prefix + f.name, "default": defaults.get(prefix + f.name, _plain(f.default)), "meaning": f.meaning}
        for prefix, kind in settings
        for f in describe(kind)
        if f.name not in (*VOCABULARIES, "hash") or prefix == "tokenizer."
    ]


def _plain(default: Any) -> Any:
    return default if isinstance(default, (int, float, str, bool)) else None


def _presets(system: str, cls: type[Any], task: str = "") -> dict[str, dict[str, Any]]:
    """What each preset changes of the defaults of a run."""
    usual = run_defaults(system, task)
    return {
        preset: {key: value for key, value in run_defaults(system, task, preset).items() if value != usual.get(key)}
        for preset in cls.presets or {"default": {}}
    }


def _for_other_tasks(name: str, cls: type[Any]) -> dict[str, Any]:
    """The settings and presets of the system for tasks that have another class of this name."""
    others = {spec.name: spec.systems.load(name) for spec in all_tasks() if name in spec.systems}
    return {
        task: {
            "settings": _described([("", other.Config)], run_defaults(name, task)),
            "presets": _presets(name, other, task),
        }
        for task, other in others.items()
        if other is not cls
    }


def equation(cls: type[Any]) -> str:
    """The equations and the citation: the docstrings of the module, the class and its cell, if it has one."""
    text = inspect.getdoc(sys.modules[cls.__module__]) or ""
    own = inspect.getdoc(cls) or ""
    cell = getattr(cls, "cell_type", None)
    return "\n\n".join(part for part in (text, own, inspect.getdoc(cell) if cell else "") if part)
