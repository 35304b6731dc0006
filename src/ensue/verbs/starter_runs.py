"""Runs for those who have none yet: two small models that are trained in a minute, one that goes on with text and one
that translates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ensue.core.events import Report, silent
from ensue.core.run_folder import RunFolder
from ensue.verbs.fit import fit

FOLDER = Path("runs/first")
FIRST: dict[str, tuple[str, str, dict[str, Any]]] = {
    "pydoc": ("gru", "pydoc", {"hidden": 192, "train.budget": 20.0, "train.budget_covers": "training"}),
    "dates": (
        "transformer",
        "dates",
        {"hidden": 64, "layers": 1, "heads": 4, "dropout": 0.0}
        | {"train.steps": 700, "train.lr": 6e-3, "train.label_smoothing": 0.0},
    ),
}
"""By name the system, what it learns from, and its settings: small, so that a minute is enough."""


def first_runs(folder: str | Path = FOLDER, report: Report = silent) -> list[Path]:
    """The folders of the two; trained where they are not there yet, so the next time there is nothing to wait for."""
    found = []
    for name, (system, data, settings) in FIRST.items():
        path = Path(folder) / name
        if not RunFolder(path).weights.exists():
            report("race", {"text": f"— {system} on {data}"})
            fit(system, data, settings=settings, out=path, force=path.exists(), report=report)
        found.append(path)
    return found
