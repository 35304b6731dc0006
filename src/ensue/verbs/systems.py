"""``ensue systems``: what there is, and all about one of them."""

from __future__ import annotations

import inspect
import sys
from typing import Any

from ensue.core.settings import describe
from ensue.models.table import FORECASTERS, SYSTEMS
from ensue.tasks.recipes import recipes_for
from ensue.tasks.settings import VOCABULARIES
from ensue.tasks.settings_resolution import tables


def systems(name: str = "") -> dict[str, Any]:
    """All systems with a line each, or everything about one: equation, paper, settings, presets, figures to expect."""
    if not name:
        return {"systems": [{"system": n, "summary": e.summary} for n, e in SYSTEMS.entries.items()]}
    cls = SYSTEMS.load(name)
    settings = [("", cls.Config), *((f"{table}.", kind) for table, kind in tables(name).items())]
    found: dict[str, Any] = {
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
    if name in FORECASTERS and FORECASTERS.load(name) is not cls:
        found["forecast"] = {
            "settings": [{"name": f.name, "meaning": f.meaning} for f in describe(FORECASTERS.load(name).Config)],
            "presets": FORECASTERS.load(name).presets,
        }
    return found


def equation(cls: type[Any]) -> str:
    """The equations and the citation: the docstring of the module, and of the cell where there is one."""
    text = inspect.getdoc(sys.modules[cls.__module__]) or ""
    own = inspect.getdoc(cls) or ""
    cell = getattr(cls, "cell_type", None)
    return "\n\n".join(part for part in (text, own, inspect.getdoc(cell) if cell else "") if part)
