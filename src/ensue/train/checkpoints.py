"""Checkpoints: everything needed for a bit-exact resume, in safetensors and JSON, never pickle.

A checkpoint is a folder ``step-00000100`` with tensors, ``progress.json``, ``versions.json`` (of ensue and torch) and
``manifest.json`` (the SHA-256 of every other file, see ensue.core.manifest). It is written under a temporary name,
synced and renamed, so it is complete or absent. A damaged checkpoint is skipped in favour of the one before. With
sharded weights (ensue.train.sharding) a group of tensors is a folder ``model.shards`` with a file from each rank
instead of a file ``model.safetensors``.
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
from ensue.core.files import atomic_folder, read_json, write_json
from ensue.core.manifest import damaged_files, digests_of, read_manifest, write_manifest
from ensue.core.schema import Fields, Whole, check_schema
from ensue.core.version import __version__

Tensors = dict[str, Tensor]
BEST, STOP = "best", "stop"
"""Names of checkpoints that are not scheduled."""
PROGRESS, VERSIONS = "progress.json", "versions.json"
SHARDS = ".shards"
"""Suffix of a folder with the parts that several ranks wrote."""


@dataclass(frozen=True)
class Checkpoint:
    """Groups of tensors by name (model, optimiser, …) and plain values saved at a step."""

    step: int
    tensors: dict[str, Tensors]
    progress: dict[str, Any]
    path: Path | None = None
    """The folder it was read from."""


def versions() -> dict[str, str]:
    """Return the versions that a checkpoint records."""
    return {"ensue": __version__, "torch": torch.__version__}


def version_notes(path: Path) -> list[str]:
    """Return a note if a checkpoint is from another version of torch; older checkpoints do not say."""
    file = path / VERSIONS
    written = read_json(file).get("torch") if file.exists() else None
    if written in (None, torch.__version__):
        return []
    promise = "so the result may differ in the last bits from an uninterrupted run"
    return [f"{path} was written with torch {written}, this is {torch.__version__}, {promise}"]


class Checkpoints:
    """The folder ``checkpoints`` of a run; it keeps the newest ``keep``, the initial one and the best one."""

    skipped_groups: tuple[str, ...] = ()
    """Groups of tensors that ``read`` skips because ranks read their parts themselves."""

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder, self.keep = folder, keep
        self.notes: list[str] = []

    def save(self, checkpoint: Checkpoint, name: str = "") -> None:
        """Write a checkpoint atomically, then remove old ones."""
        path = self.folder / (name or f"step-{checkpoint.step:08d}")
        with atomic_folder(path) as temporary:
            self.write_files(temporary, checkpoint)
        self.remove_old()

    @staticmethod
    def write_files(folder: Path, checkpoint: Checkpoint) -> None:
        """Write a checkpoint's files into a folder, the manifest last."""
        for group, tensors in checkpoint.tensors.items():
            copies = {key: value.detach().contiguous().clone() for key, value in tensors.items()}
            save_file(copies, folder / f"{group}.safetensors")
        write_json(folder / PROGRESS, {"step": checkpoint.step, **checkpoint.progress})
        write_json(folder / VERSIONS, versions())
        files = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
        write_manifest(folder, digests_of(folder, files))

    def remove_old(self) -> None:
        """Remove all scheduled checkpoints but the newest ``keep`` and that of step 0, a rollback's last resort."""
        for old in self._steps()[: -self.keep]:
            if _step(old):
                shutil.rmtree(old)

    def remove_newest(self) -> None:
        """Remove the newest scheduled checkpoint, unless there is no other."""
        *others, newest = self._steps()
        if others:
            shutil.rmtree(newest)

    def latest(self) -> Checkpoint | None:
        """Return the valid checkpoint with the highest step: a scheduled one, or the one written at an early stop."""
        stop = [self.folder / STOP] if (self.folder / STOP).is_dir() else []
        candidates = [c for c in (self._first_valid(stop), self.latest_scheduled()) if c is not None]
        latest = max(candidates, key=lambda checkpoint: checkpoint.step, default=None)
        if latest is not None and latest.path is not None:
            self.notes += version_notes(latest.path)
        return latest

    def latest_scheduled(self) -> Checkpoint | None:
        """Return the newest valid scheduled checkpoint, which a rollback returns to."""
        return self._first_valid(list(reversed(self._steps())))

    def remove_stop(self) -> None:
        """Remove the checkpoint of an early stop, because training was rolled back to before it."""
        shutil.rmtree(self.folder / STOP, ignore_errors=True)

    def best(self) -> Checkpoint | None:
        """Return the checkpoint with the best validation so far; None, with a note, if it is damaged."""
        path = self.folder / BEST
        return self._first_valid([path]) if path.exists() else None

    def mean_weights(self, count: int) -> Tensors:
        """Return the mean of the model's weights over the last ``count`` valid scheduled checkpoints.

        The mean is over fewer if there are fewer, and empty if there is none; step 0, before training, does not count.
        """
        trained = [path for path in reversed(self._steps()) if _step(path)]
        checkpoints = (self._first_valid([path]) for path in trained)
        weights = [checkpoint.tensors["model"] for checkpoint in checkpoints if checkpoint is not None][:count]
        if not weights:
            return {}
        return {
            name: torch.stack([tensors[name].double() for tensors in weights]).mean(0).to(first.dtype)
            for name, first in weights[0].items()
        }

    def _first_valid(self, paths: list[Path]) -> Checkpoint | None:
        path = self.find_valid(paths)
        return None if path is None else self.read(path)

    def find_valid(self, paths: list[Path]) -> Path | None:
        """Return the first valid checkpoint, and note each damaged one."""
        for path in paths:
            try:
                self.verify(path)
            except InputError as error:
                self.notes.append(f"{error}; skipped")
            else:
                return path
        return None

    def verify(self, path: Path) -> None:
        """Raise InputError if a file does not match the manifest or cannot be opened."""
        manifest = read_manifest(path, (PROGRESS,))
        for name, _ in damaged_files(path, manifest):
            raise InputError(f"is damaged ({name} is missing or has changed)", where=str(path))
        try:
            for name in manifest:
                if name.endswith(".safetensors"):
                    with safe_open(path / name, framework="pt"):
                        pass
        except (SafetensorError, OSError) as error:
            raise InputError(f"is damaged ({error})", where=str(path)) from error
        progress = read_json(path / PROGRESS)
        check_schema(progress, Fields({"step": Whole(0)}), str(path / PROGRESS))

    def read(self, path: Path) -> Checkpoint:
        """Read a valid checkpoint."""
        files = [file for file in sorted(path.iterdir()) if file.stem not in self.skipped_groups]
        groups = {file.stem: load_file(file) for file in files if file.suffix == ".safetensors"}
        groups |= {file.stem: self.read_shards(file) for file in files if file.suffix == SHARDS}
        progress = read_json(path / PROGRESS)
        return Checkpoint(int(progress.pop("step")), groups, progress, path)

    @staticmethod
    def read_shards(folder: Path) -> Tensors:
        """Read tensors that several ranks wrote in parts."""
        from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
        from torch.distributed.checkpoint.state_dict_loader import load

        reader = HuggingFaceStorageReader(str(folder))
        specs: dict[str, Any] = reader.read_metadata().state_dict_metadata
        tensors = {name: torch.empty(spec.size, dtype=spec.properties.dtype) for name, spec in specs.items()}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # intended here
            load(tensors, storage_reader=reader, no_dist=True)
        return tensors

    def _steps(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("step-*") if path.is_dir())


def _step(path: Path) -> int:
    """The step of a scheduled checkpoint, from its name."""
    return int(path.name.removeprefix("step-"))
