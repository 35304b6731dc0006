"""Load a run: a trained model with its tokenizer."""

from __future__ import annotations

from os import PathLike

from ensue.core.table import load_target
from ensue.runs.run import Run

__all__ = ["Run", "load"]


def load(path: str | PathLike[str], *, verify: bool = True) -> Run:
    """The run in a folder; a run is returned as it is.

    Its files must have the digests in manifest.json, unless ``verify`` is False or ``ENSUE_VERIFY`` is 0.
    """
    if isinstance(path, Run):
        return path
    found = Run(path)
    if verify:
        found.folder.verify()
    run: Run = load_target(found.spec.run)(path)
    return run
