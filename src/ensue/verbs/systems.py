"""``ensue systems``: the list of systems, or the description of one."""

from __future__ import annotations

import inspect
import sys
from typing import Any

from ensue.core.settings import describe
from ensue.models.table import SYSTEMS
from ensue.runs.settings_resolution import tables
from ensue.tasks.recipes import recipes_for
from ensue.tasks.settings import VOCABULARIES
from ensue.tasks.table import all_tasks


def systems(name: str = "") -> dict[str, Any]:
    """The summaries of all systems, or one system's equations, citation, settings, presets and expected figures."""
    if not name:
        return {"systems": [{"system": n, "summary": e.summary} for n, e in SYSTEMS.entries.items()]}
    cls = SYSTEMS.load(name)
    settings = [("", cls.Config), *((f"{table}.", kind) for table, kind in tables(name).items())]
    result: dict[str, Any] = {
        "system": name,
        "summary": SYSTEMS.entries[name].summary,
        "equation": equation(cls),
        "settings": [
            {
                "name": prefix + f.name,
                "default": f.default if isinstance(f.default, (int, float, str, bool)) else None,
                "meaning": f.meaning,
            }
            for prefix, kind in settings
            for f in describe(kind)
            if f.name not in (*VOCABULARIES, "hash") or prefix == "tokenizer."
        ],
        "presets": (cls.presets or {"default": {}}) | recipes_for(name),
        "figures": [f"--preset {preset}: {figure}" for preset, figure in getattr(cls, "expect", {}).items()],
    }
    return result | _for_other_tasks(name, cls)


def _for_other_tasks(name: str, cls: type[Any]) -> dict[str, Any]:
    """The settings and presets of the system for tasks that have another class of this name."""
    others = {spec.name: spec.systems.load(name) for spec in all_tasks() if name in spec.systems}
    return {
        task: {
            "settings": [{"name": f.name, "meaning": f.meaning} for f in describe(other.Config)],
            "presets": other.presets,
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
