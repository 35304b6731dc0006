"""The tensors of a folder. A pickle is never opened."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from ensue.core.errors import InputError
from ensue.exchange.tensor_files import INDEX_FILE, WEIGHTS_FILE, StoredTensors

PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt")


def stored_tensors(path: Path) -> StoredTensors:
    """Return the tensors of a folder, from one file or several; those of a pickle are refused."""
    pickles = sorted(file.name for file in path.iterdir() if file.suffix in PICKLE_SUFFIXES)
    if pickles and not any((path / name).exists() for name in (WEIGHTS_FILE, INDEX_FILE)):
        raise pickle_error(path / pickles[0])
    return StoredTensors(path)


def all_tensors(path: Path) -> dict[str, Tensor]:
    """Load all tensors of a folder."""
    stored = stored_tensors(path)
    return {name: stored.read(name) for name in stored.tensors}


def is_pickle(path: Path) -> bool:
    """True if torch.save wrote a file: a pickle, or an archive with one."""
    with path.open("rb") as file:
        return path.suffix in PICKLE_SUFFIXES and file.read(4).startswith((b"\x80", b"PK\x03\x04"))


def pickle_error(path: Path) -> InputError:
    """Return the error for a pickle: why it is not opened, and what to do."""
    what = f"{path.name} is a pickle, which can run any code when it is opened, so it is not read"
    hint = "if you trust it, open it with transformers and save_pretrained(folder, safe_serialization=True)"
    return InputError(what, where=str(path.parent), hint=hint)


def in_float32(weights: dict[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """Convert tensors to float32, with a note if they were not."""
    kinds = {str(t.dtype).removeprefix("torch.") for t in weights.values() if t.is_floating_point()} - {"float32"}
    converted = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in weights.items()}
    return converted, [f"its weights were {', '.join(sorted(kinds))} and are float32 here"] if kinds else []
