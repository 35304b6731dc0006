"""Checkpoints: everything needed to go on to the bit, in safetensors and JSON, never pickle.

A checkpoint is a folder ``step-00000100`` with tensors, ``progress.json`` and ``manifest.json`` (the SHA-256 of every
other file). It is written under a temporary name, synced and renamed, so it is there whole or not at all. A damaged one
is passed over for the one before. Where weights are spread over ranks (ensue.train.sharding), a group of tensors is a
folder ``model.shards`` with a file of each rank in place of a file ``model.safetensors``.
"""

from __future__ import annotations

import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from ensue.core.errors import InputError
from ensue.core.files import read_json, sha256, whole_folder, write_json

Tensors = dict[str, Tensor]
BEST, STOP = "best", "stop"
"""Names of checkpoints beside those of the schedule."""
SHARDS = ".shards"
"""The end of a folder's name, in place of a file, where several ranks wrote a part of each tensor."""


@dataclass(frozen=True)
class Checkpoint:
    """What was saved at a step: groups of tensors by name (model, optimiser, …) and plain values."""

    step: int
    tensors: dict[str, Tensors]
    progress: dict[str, Any]
    path: Path | None = None
    """Where it was read."""


class Checkpoints:
    """The folder ``checkpoints`` of a run; it keeps the newest ``keep`` and one called best."""

    not_read: tuple[str, ...] = ()
    """Groups of tensors that are left to those who need only a part of them."""

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder, self.keep = folder, keep
        self.notes: list[str] = []

    def save(self, checkpoint: Checkpoint, name: str = "") -> None:
        """Write a checkpoint whole, then remove what is older than the newest few."""
        path = self.folder / (name or f"step-{checkpoint.step:08d}")
        with whole_folder(path) as temporary:
            self.fill(temporary, checkpoint)
        self.remove_old()

    @staticmethod
    def fill(folder: Path, checkpoint: Checkpoint) -> None:
        """Write a checkpoint's files into a folder, and at last the list of all that is there."""
        for group, tensors in checkpoint.tensors.items():
            own = {key: value.detach().contiguous().clone() for key, value in tensors.items()}
            save_file(own, folder / f"{group}.safetensors")
        write_json(folder / "progress.json", {"step": checkpoint.step, **checkpoint.progress})
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        write_json(folder / "manifest.json", {path.relative_to(folder).as_posix(): sha256(path) for path in files})

    def remove_old(self) -> None:
        """Keep the newest few."""
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
        found = self.find(paths)
        return None if found is None else self.read(found)

    def find(self, paths: list[Path]) -> Path | None:
        """The first checkpoint that is whole; a note for each that is not."""
        for path in paths:
            try:
                self.verify(path)
            except InputError as error:
                self.notes.append(f"{error}; it is passed over")
            else:
                return path
        return None

    def verify(self, path: Path) -> None:
        """Refuse a checkpoint whose files are not those that its manifest lists, or cannot be opened."""
        manifest = read_json(path / "manifest.json")
        if not isinstance(manifest, dict) or "progress.json" not in manifest:
            raise InputError("is damaged (manifest.json lists nothing)", where=str(path))
        for name, digest in manifest.items():
            file = path / name
            if not file.exists() or sha256(file) != digest:
                raise InputError(f"is damaged ({name} is not what was written)", where=str(path))
        try:
            for name in manifest:
                if name.endswith(".safetensors"):
                    with safe_open(path / name, framework="pt"):
                        pass
        except (SafetensorError, OSError) as error:
            raise InputError(f"is damaged ({error})", where=str(path)) from error
        read_json(path / "progress.json")

    def read(self, path: Path) -> Checkpoint:
        """A checkpoint that is known to be whole."""
        files = [file for file in sorted(path.iterdir()) if file.stem not in self.not_read]
        groups = {file.stem: load_file(file) for file in files if file.suffix == ".safetensors"}
        groups |= {file.stem: self.joined(file) for file in files if file.suffix == SHARDS}
        progress = read_json(path / "progress.json")
        return Checkpoint(int(progress.pop("step")), groups, progress, path)

    @staticmethod
    def joined(folder: Path) -> Tensors:
        """The tensors of which each of several ranks wrote a part."""
        from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
        from torch.distributed.checkpoint.state_dict_loader import load

        reader = HuggingFaceStorageReader(str(folder))
        held = reader.read_metadata().state_dict_metadata
        tensors = {name: torch.empty(one.size, dtype=one.properties.dtype) for name, one in held.items()}  # type: ignore[union-attr]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # as it should be
            load(tensors, storage_reader=reader, no_dist=True)
        return tensors

    def _steps(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("step-*") if path.is_dir())
