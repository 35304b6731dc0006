"""Checkpoints: everything needed to go on to the bit, in safetensors and JSON, never pickle.

A checkpoint is a folder ``step-00000100`` with tensors, ``progress.json`` and ``manifest.json`` (the SHA-256 of every
other file). It is written under a temporary name, synced and renamed, so it is there whole or not at all. A damaged one
is passed over for the one before.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ensue.core.errors import InputError
from ensue.core.files import read_json, sha256, whole_folder, write_json

Tensors = dict[str, Tensor]
BEST, STOP = "best", "stop"
"""Names of checkpoints beside those of the schedule."""


@dataclass(frozen=True)
class Checkpoint:
    """What was saved at a step: groups of tensors by name (model, optimiser, …) and plain values."""

    step: int
    tensors: dict[str, Tensors]
    progress: dict[str, Any]


class Checkpoints:
    """The folder ``checkpoints`` of a run; it keeps the newest ``keep`` and one called best."""

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder, self.keep = folder, keep
        self.notes: list[str] = []

    def save(self, checkpoint: Checkpoint, name: str = "") -> None:
        """Write a checkpoint whole, then remove what is older than the newest few."""
        path = self.folder / (name or f"step-{checkpoint.step:08d}")
        with whole_folder(path) as temporary:
            for group, tensors in checkpoint.tensors.items():
                own = {key: value.detach().contiguous().clone() for key, value in tensors.items()}
                save_file(own, temporary / f"{group}.safetensors")
            write_json(temporary / "progress.json", {"step": checkpoint.step, **checkpoint.progress})
            manifest = {file.name: sha256(file) for file in sorted(temporary.iterdir())}
            write_json(temporary / "manifest.json", manifest)
        for old in self._steps()[: -self.keep]:
            shutil.rmtree(old)

    def latest(self) -> Checkpoint | None:
        """The furthest checkpoint that is whole: a scheduled one, or the one written when somebody asked to stop."""
        stop = [self.folder / STOP] if (self.folder / STOP).is_dir() else []
        found = [c for c in (self._whole(stop), self.scheduled()) if c is not None]
        return max(found, key=lambda checkpoint: checkpoint.step, default=None)

    def scheduled(self) -> Checkpoint | None:
        """The newest whole checkpoint among those that every run of these settings writes: what to roll back to."""
        return self._whole(list(reversed(self._steps())))

    def forget_stop(self) -> None:
        """Remove the checkpoint of a stop: training has gone back behind it."""
        shutil.rmtree(self.folder / STOP, ignore_errors=True)

    def best(self) -> Checkpoint | None:
        """The checkpoint with the best validation so far; None, and a note, where it is damaged."""
        path = self.folder / BEST
        return self._whole([path]) if path.exists() else None

    def mean(self, count: int) -> Tensors:
        """The mean of the model's weights at the last ``count`` whole checkpoints of the schedule.

        Fewer where there are, none where there is none; the one of step 0, where training began, does not count.
        """
        trained = [path for path in reversed(self._steps()) if int(path.name.removeprefix("step-"))]
        found = (self._whole([path]) for path in trained)
        weights = [one.tensors["model"] for one in found if one is not None][:count]
        if not weights:
            return {}
        return {
            name: torch.stack([one[name].double() for one in weights]).mean(0).to(first.dtype)
            for name, first in weights[0].items()
        }

    def _whole(self, paths: list[Path]) -> Checkpoint | None:
        for path in paths:
            try:
                return self.read(path)
            except InputError as error:
                self.notes.append(f"{error}; it is passed over")
        return None

    def read(self, path: Path) -> Checkpoint:
        """A checkpoint, its files verified by the manifest."""
        manifest = read_json(path / "manifest.json")
        if not isinstance(manifest, dict) or "progress.json" not in manifest:
            raise InputError("is damaged (manifest.json lists nothing)", where=str(path))
        for name, digest in manifest.items():
            file = path / name
            if not file.exists() or sha256(file) != digest:
                raise InputError(f"is damaged ({name} is not what was written)", where=str(path))
        try:
            groups = {file.stem: load_file(file) for file in sorted(path.glob("*.safetensors"))}
        except (SafetensorError, OSError) as error:
            raise InputError(f"is damaged ({error})", where=str(path)) from error
        progress = read_json(path / "progress.json")
        return Checkpoint(int(progress.pop("step")), groups, progress)

    def _steps(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("step-*") if path.is_dir())
