"""Which files belong to a run folder: which it needs, and which may be deleted with it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from ensue.core.manifest import MANIFEST

CONFIG, WEIGHTS, SETTINGS, METRICS, CARD = "config.json", "model.safetensors", "run.toml", "metrics.jsonl", "README.md"
TOKENIZER = "tokenizer.json"
SOURCE_TOKENIZER = "tokenizer.source.json"
"""The source tokenizer of a translation model, if it is not the target's."""
CHAT = "chat.jinja"
"""The chat template of a model that can chat."""
TEACHER_OUTPUTS, LOCK = "teacher.safetensors", ".lock"
CHECKPOINTS, EVENTS = "checkpoints", "events"
COUNTING = "counting"
"""The folder where n-grams are sorted that do not fit into memory; deleted when the run is complete."""
HELD_OUT, HELD_OUT_FIGURES = "held-out", "figures.json"
"""The folder of the model that is measured on the held-out part, and its figures; deleted when the run is complete."""

BASE = "base"
"""The folder of the run whose weights adapters are beside: its files without those of its training."""

NEEDED = (CONFIG, WEIGHTS, TOKENIZER, SOURCE_TOKENIZER, SETTINGS, CHAT)
"""Files that the manifest lists, if the run has them. People may edit the model card, and metrics grow."""
FILES = (*NEEDED, MANIFEST, METRICS, CARD, TEACHER_OUTPUTS, LOCK)
"""All files of a run."""
Names = Mapping[str, "Names | None"]
"""What may be in a folder: patterns of names, each with what may be in such a folder, or None for a file."""
_CHECKPOINT: Names = {r"[\w-]+\.(safetensors|json)": None, r"[\w-]+\.shards": {".+": None}}
_FOLDERS: Names = {
    CHECKPOINTS: {r"step-\d{8,}|best|stop": _CHECKPOINT},
    EVENTS: {r"events\.out\.tfevents\..*": None},
    COUNTING: {r"progress\.json|[\w-]+\.bin": None},
}
_FILES: Names = {re.escape(name): None for name in FILES}
RUN_NAMES: Names = {
    **_FILES,
    **_FOLDERS,
    BASE: _FILES,
    HELD_OUT: {**_FILES, **_FOLDERS, re.escape(HELD_OUT_FIGURES): None},
}
"""What may be in a run folder."""
PARTIAL = re.compile(r"\..+\.(\d+|old)\.part")
"""Files and folders that were being written when a process was killed; see ``ensue.core.files``."""


def strangers(folder: Path) -> list[Path]:
    """Return what is in a run folder, or in a folder of it, but is not of the run.

    >>> from tempfile import mkdtemp
    >>> folder = Path(mkdtemp())
    >>> for name in ("run.toml", "thesis.tex"):
    ...     (folder / name).touch()
    >>> [path.name for path in strangers(folder)]
    ['thesis.tex']
    """
    return _strangers(folder, RUN_NAMES)


def _strangers(folder: Path, names: Names) -> list[Path]:
    found: list[Path] = []
    for path in sorted(path for path in folder.iterdir() if not PARTIAL.fullmatch(path.name)):
        kinds = [inner for pattern, inner in names.items() if re.fullmatch(pattern, path.name)]
        if not kinds or (kinds[0] is None) == path.is_dir():
            found.append(path)
        elif kinds[0] is not None:
            found += _strangers(path, kinds[0])
    return found


def is_empty(folder: Path) -> bool:
    """Return whether a folder holds nothing but what a process leaves if it is killed before it writes a file."""
    return all(path.name == LOCK or PARTIAL.fullmatch(path.name) for path in folder.iterdir())


def delete_files(folder: Path, keep: str = "") -> None:
    """Delete a run's files but ``keep``; the folder stays.

    If this is interrupted, an unfinished run is left, which has run.toml.
    """
    order = {CONFIG: 0, SETTINGS: 2}
    for path in sorted(folder.iterdir(), key=lambda path: order.get(path.name, 1)):
        if path.name != keep:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
