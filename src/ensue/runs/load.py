"""Load a run: a trained model with its tokenizer."""

from __future__ import annotations

from os import PathLike

from ensue.core.table import load_target
from ensue.runs.run import Run

__all__ = ["Run", "load"]


def load(path: str | PathLike[str]) -> Run:
    """The run in a folder; a run is returned as it is."""
    if isinstance(path, Run):
        return path
    run: Run = load_target(Run(path).spec.run)(path)
    return run
