"""Starter runs for ``ensue serve``: a small language model and a small translation model, trained in a minute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ensue.core.events import Report, silent
from ensue.core.run_folder import RunFolder
from ensue.verbs.fit import fit

FOLDER = Path("runs/first")
STARTERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "pydoc": ("gru", "pydoc", {"hidden": 192, "train.budget": 20.0, "train.budget_covers": "training"}),
    "dates": (
        "transformer",
        "dates",
        {"hidden": 64, "layers": 1, "heads": 4, "dropout": 0.0}
        | {"train.steps": 700, "train.lr": 6e-3, "train.label_smoothing": 0.0},
    ),
}
"""The system, the data and the settings of each run, by its name."""


def starter_runs(folder: str | Path = FOLDER, report: Report = silent) -> list[Path]:
    """The folders of the starter runs, which are trained if they do not exist."""
    paths = []
    for name, (system, data, settings) in STARTERS.items():
        path = Path(folder) / name
        if not RunFolder(path).weights.exists():
            report("race", {"text": f"— {system} on {data}"})
            fit(system, data, settings=settings, out=path, force=path.exists(), report=report)
        paths.append(path)
    return paths
