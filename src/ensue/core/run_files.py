"""Which files belong to a run folder: which it needs, and which may be deleted with it."""

from __future__ import annotations

import re
import shutil
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

NEEDED = (CONFIG, WEIGHTS, TOKENIZER, SOURCE_TOKENIZER, SETTINGS, CHAT)
"""Files that the manifest lists, if the run has them. People may edit the model card, and metrics grow."""
FILES = (*NEEDED, MANIFEST, METRICS, CARD, TEACHER_OUTPUTS, LOCK)
"""All files of a run."""
FOLDERS = {
    CHECKPOINTS: re.compile(r"step-\d{8,}|best|stop"),
    EVENTS: re.compile(r"events\.out\.tfevents\..*"),
    COUNTING: re.compile(r"progress\.json|[\w-]+\.bin"),
}
"""The folders of a run, and the names in them."""
PARTIAL = re.compile(r"\..+\.part")
"""Files and folders that were being written when a process was killed."""


def strangers(folder: Path) -> list[Path]:
    """Return what is in a run folder, or in a folder of it, but is not of the run.

    >>> from tempfile import mkdtemp
    >>> folder = Path(mkdtemp())
    >>> for name in ("run.toml", "thesis.tex"):
    ...     (folder / name).touch()
    >>> [path.name for path in strangers(folder)]
    ['thesis.tex']
    """
    found: list[Path] = []
    for path in sorted(folder.iterdir()):
        if path.is_dir() and path.name in FOLDERS:
            known = FOLDERS[path.name]
            found += [inner for inner in sorted(path.iterdir()) if not _named(inner, known)]
        elif path.is_dir() or path.name not in FILES:
            found += [] if PARTIAL.fullmatch(path.name) else [path]
    return found


def _named(path: Path, known: re.Pattern[str]) -> bool:
    return bool(known.fullmatch(path.name) or PARTIAL.fullmatch(path.name))


def is_empty(folder: Path) -> bool:
    """Return whether a folder holds nothing but what a process leaves if it is killed before it writes a file."""
    return all(path.name == LOCK or PARTIAL.fullmatch(path.name) for path in folder.iterdir())


def delete_files(folder: Path) -> None:
    """Delete a run's files; the folder stays. If this is interrupted, an unfinished run is left, which has run.toml."""
    order = {CONFIG: 0, SETTINGS: 2}
    for path in sorted(folder.iterdir(), key=lambda path: order.get(path.name, 1)):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
