"""``ensue check RUN --files``: compare the files of a run and its checkpoints with their digests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ensue.core.errors import InputError
from ensue.core.events import Report, silent
from ensue.core.manifest import MANIFEST, damaged_files, read_manifest
from ensue.core.run_files import BASE, CONFIG, WEIGHTS
from ensue.core.run_folder import RunFolder
from ensue.train.checkpoints import PROGRESS


def check_files(path: Path, *, write: bool = False, report: Report = silent) -> list[dict[str, Any]]:
    """Return ``name``, ``kept`` and ``detail`` of each file of a run; all are read, whatever was verified before.

    ``write`` first writes manifest.json for the files as they are.
    """
    folder = RunFolder(path)
    if not folder.settings.exists() or folder.config.exists():  # an unfinished run has its checkpoints only
        folder.read_config()
    if write:
        if not (folder.config.exists() and folder.weights.exists()):
            raise InputError(
                "is not a finished run", where=str(path), hint=f"resume it: `ensue fit {folder.quoted} --resume`"
            )
        report("phase", {"name": "hashing files"})
        folder.write_manifest()
    findings = _findings(folder.path, "", (CONFIG, WEIGHTS), report) if folder.config.exists() else []
    if folder.base is not None:
        findings += _findings(folder.path, f"{BASE}/", (CONFIG, WEIGHTS), report)
    for checkpoint in sorted(folder.checkpoints.glob("[!.]*")):
        findings += _findings(folder.path, f"{checkpoint.relative_to(folder.path)}/", (PROGRESS,), report)
    return findings


def _findings(folder: Path, prefix: str, required: tuple[str, ...], report: Report) -> list[dict[str, Any]]:
    """Return the findings about the files that one manifest lists; names begin with ``prefix``."""
    report("phase", {"name": f"checking {prefix or 'files'}"})
    try:
        manifest = read_manifest(folder / prefix, required)
    except InputError as error:
        missing = not (folder / prefix / MANIFEST).exists()
        detail = "is missing: --write adds one" if missing and not prefix else str(error)
        return [{"name": f"{prefix}{MANIFEST}", "kept": False, "detail": detail}]
    damaged = dict(damaged_files(folder / prefix, manifest))
    return [
        {"name": prefix + name, "kept": name not in damaged, "detail": damaged.get(name, f"SHA-256 {digest}")}
        for name, digest in manifest.items()
    ]
