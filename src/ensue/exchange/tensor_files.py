"""Tensors of safetensors files, read and written a piece at a time: a model may be larger than memory.

``StoredTensors`` is a file, or a folder with one or several (``model.safetensors.index.json``). Only headers are read
at first. ``rows`` maps one file for as long as it takes to copy some rows: a mapping that stayed would count as memory
with all that was read of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ensue.core.errors import InputError
from ensue.core.files import read_json
from ensue.core.schema import Fields, Table, Text, check_schema

WEIGHTS_FILE, INDEX_FILE = "model.safetensors", "model.safetensors.index.json"
DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""Types and their names in a file."""
TYPES = {name: dtype for dtype, name in DTYPES.items()}
BLOCK = 1 << 22
"""Bytes written at a time."""
MAX_NAMES = 3
"""Names listed in an error; the rest are counted."""


class TensorPlan(NamedTuple):
    """A tensor that will be written."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Its bytes."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize


class StoredTensor(NamedTuple):
    """Where a tensor is, and what it is."""

    file: Path
    dtype: str
    """Its type in the file, such as BF16."""
    shape: tuple[int, ...]


class StoredTensors:
    """The tensors of a folder, or of a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tensors: dict[str, StoredTensor] = {}
        for file in _files(path):
            self.tensors |= _header(file)
        if path.is_dir() and not (path / WEIGHTS_FILE).exists():
            missing = sorted(set(read_json(path / INDEX_FILE)["weight_map"]) - set(self.tensors))
            if missing:
                raise InputError(f"its files do not hold {listed(missing)}", where=str(path / INDEX_FILE))

    def read(self, name: str) -> Tensor:
        """Return a tensor, mapped from its file."""
        stored = self.tensors[name]
        with file_errors(stored.file), safe_open(stored.file, framework="pt") as file:
            tensor: Tensor = file.get_tensor(name)
        return tensor

    def rows(self, name: str, start: int, stop: int) -> Tensor:
        """Return some rows of a tensor, copied from its file."""
        stored = self.tensors[name]
        with file_errors(stored.file), safe_open(stored.file, framework="pt") as file:
            part: Tensor = file.get_slice(name)[start:stop].clone()
        return part


def _files(path: Path) -> list[Path]:
    """The files of a folder that hold its tensors."""
    if not path.is_dir():
        return [path]
    if (path / WEIGHTS_FILE).exists():
        return [path / WEIGHTS_FILE]
    if not (path / INDEX_FILE).exists():
        raise InputError(f"there is no {WEIGHTS_FILE}", where=str(path))
    index = read_json(path / INDEX_FILE)
    check_schema(index, Fields({"weight_map": Table(Text())}), str(path / INDEX_FILE))
    files = list(index["weight_map"].values())
    if not files or any(Path(name).name != name or "\0" in name for name in files):
        raise InputError("is damaged: it does not name the files of this folder", where=str(path / INDEX_FILE))
    return [path / name for name in sorted(set(files))]


def _header(path: Path) -> dict[str, StoredTensor]:
    """What a file holds."""
    found = {}
    with file_errors(path), safe_open(path, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118 (no iterator)
            part = file.get_slice(name)
            found[name] = StoredTensor(path, part.get_dtype(), tuple(part.get_shape()))
    return found


@contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Raise InputError where a file is missing or damaged."""
    try:
        yield
    except FileNotFoundError as error:
        raise InputError("is missing", where=str(path)) from error
    except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
        reason = ascii(str(error).splitlines()[0] if str(error) else type(error).__name__)[1:-1]
        raise InputError(f"is damaged: {reason}", where=str(path)) from error


def listed(names: Sequence[str]) -> str:
    """List the first few names and the total number.

    >>> listed(["a", "b", "c", "d", "e"])
    'a, b, c … (5 in all)'
    """
    return ", ".join(names[:MAX_NAMES]) + (f" … ({len(names)} in all)" if len(names) > MAX_NAMES else "")


def write_stream(plans: Sequence[TensorPlan], pieces: Iterable[Tensor], path: Path) -> None:
    """Write a safetensors file: its header from ``plans``, and then ``pieces``, which are the tensors in that order.

    A tensor may come in several pieces. The library would need all tensors in memory at once.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for plan in plans:
        offsets = [offset, offset + plan.size]
        header[plan.name] = {"dtype": DTYPES[plan.dtype], "shape": list(plan.shape), "data_offsets": offsets}
        offset += plan.size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for piece in pieces:
            tensor = piece.detach().cpu().contiguous()
            flat = tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)  # a scalar may have any stride
            for start in range(0, len(flat), BLOCK):
                file.write(flat[start : start + BLOCK].numpy().data)
        assert file.tell() == 8 + len(text) + offset, "the pieces are not what was planned"
