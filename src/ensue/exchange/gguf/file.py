"""Read a GGUF file: its metadata and where its tensors are; the tensors themselves stay in the file, mapped.

    "GGUF"  version  number of tensors  number of values
    values:   key  type  value                                          strings have their length in front
    tensors:  name  number of dimensions  dimensions  type  offset      the fastest dimension comes first
    padding to ``general.alignment``, then the tensors' data

All numbers are little-endian. Nothing in the file is trusted: every count and length is compared with what is left of
the file before anything is made of it, and tensors must fill the rest of the file without gaps or overlaps.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ensue.core.errors import InputError, errors_in
from ensue.exchange.gguf.blocks import FORMATS, BlockFormat

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_DIMENSIONS = 4
MAX_NAME = 1 << 10
"""The longest name of a tensor or key, in bytes."""
ALIGNMENT = "general.alignment"
SCALARS: dict[int, str] = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Types of values and their codes in ``struct``."""
STRING, ARRAY = 8, 9


@dataclass(frozen=True)
class TensorEntry:
    """A tensor of a file."""

    format: BlockFormat
    shape: tuple[int, ...]
    """The slowest dimension first, as in torch."""
    offset: int
    """Where it begins in the file."""

    @property
    def bytes(self) -> int:
        """Its size in the file."""
        return prod(self.shape) // self.format.values * self.format.bytes


@dataclass(frozen=True)
class GGUFFile:
    """The contents of a file."""

    path: Path
    values: Mapping[str, Any]
    """Metadata by key."""
    tensors: Mapping[str, TensorEntry]
    _data: np.ndarray

    def text(self, key: str, default: str = "") -> str:
        """Return a value of the metadata that is a text; ``default`` if there is none."""
        value = self.values.get(key, default)
        if not isinstance(value, str):
            raise InputError(f"{key} is not a text", where=str(self.path), hint="the file may be damaged")
        return value

    def token(self, key: str) -> int | None:
        """Return a value of the metadata that is the number of a token; None if there is none."""
        value = self.values.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def flag(self, key: str, default: bool) -> bool:
        """Return a value of the metadata that is true or false; ``default`` if there is none."""
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise InputError(f"{key} is not true or false", where=str(self.path), hint="the file may be damaged")
        return value

    def blocks(self, name: str) -> np.ndarray:
        """Return the blocks of a tensor as they are in the file, (rows, blocks in a row, bytes of a block), uint8."""
        entry = self.tensors[name]
        rows = prod(entry.shape[:-1])
        piece = self._data[entry.offset : entry.offset + entry.bytes]
        return piece.reshape(rows, entry.shape[-1] // entry.format.values, entry.format.bytes)

    def tensor(self, name: str) -> np.ndarray:
        """Return a tensor in float32."""
        entry = self.tensors[name]
        return entry.format.decode(self.blocks(name)).reshape(entry.shape)


def is_gguf(path: Path) -> bool:
    """Return whether a file begins as a GGUF file does, or is called one."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC or path.suffix == ".gguf"


def read_gguf(path: str | Path) -> GGUFFile:
    """Read the header of a file, and map its data."""
    path = Path(path)
    try:
        data = np.memmap(path, dtype=np.uint8, mode="r")
    except FileNotFoundError as error:
        raise InputError("there is no such file", where=str(path)) from error
    except (OSError, ValueError) as error:
        if path.is_file() and not path.stat().st_size:
            raise InputError("the file is empty", where=str(path), hint="download it again") from error
        raise InputError(f"cannot be read ({error})", where=str(path)) from error
    try:
        with errors_in(path):
            return _read(path, data)
    except _Damage as damage:
        raise InputError(f"is damaged: {damage}", where=str(path), hint="download it again") from damage


class _Damage(Exception):
    """What is wrong with a file."""


class _Cursor:
    """Reads numbers and strings one after the other; never beyond the end of the file."""

    def __init__(self, data: np.ndarray) -> None:
        self.view, self.at = memoryview(data), 0  # type: ignore[arg-type]

    def take(self, count: int, what: str) -> bytes:
        if count > len(self.view) - self.at:
            raise _Damage(f"it ends within {what}")
        self.at += count
        return bytes(self.view[self.at - count : self.at])

    def number(self, code: str, what: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code), what))[0]

    def count(self, least: int, what: str) -> int:
        """A number of things of at least ``least`` bytes each, for which there must be room."""
        found = int.from_bytes(self.take(8, what), "little")
        if found * least > len(self.view) - self.at:
            raise _Damage(f"a length in {what} is {found:,}, for which the file is too short")
        return found

    def text(self, what: str, most: int | None = None) -> str:
        length = self.count(1, what)
        if most is not None and length > most:
            raise _Damage(f"{what} has {length:,} bytes")
        try:
            return self.take(length, what).decode("utf-8")
        except UnicodeDecodeError as error:
            raise _Damage(f"{what} is not UTF-8") from error


def _read(path: Path, data: np.ndarray) -> GGUFFile:
    cursor = _Cursor(data)
    if bytes(data[:4]) != MAGIC:
        raise InputError("is not a GGUF file", hint="it does not begin with GGUF")
    cursor.at = len(MAGIC)
    version = cursor.number("I", "the version")
    if version not in VERSIONS:
        other = "; it is big-endian" if version in (v << 24 for v in VERSIONS) else ""
        raise InputError(f"GGUF version {version} is not supported{other}", hint="2 and 3 are")
    tensor_count = cursor.count(24, "the number of tensors")
    value_count = cursor.count(12, "the number of values")
    values: dict[str, Any] = {}
    for number in range(value_count):
        key = cursor.text(f"key {number + 1}", MAX_NAME)
        if key in values:
            raise _Damage(f"it has the key {key!r} twice")
        values[key] = _value(cursor, cursor.number("I", key), key)
    entries = [_entry(cursor, number + 1) for number in range(tensor_count)]
    alignment = values.get(ALIGNMENT, 32)
    if not isinstance(alignment, int) or not 0 < alignment <= 1 << 16 or alignment & (alignment - 1):
        raise _Damage(f"{ALIGNMENT} is {alignment!r}")
    return GGUFFile(path, values, _placed(entries, -(-cursor.at // alignment) * alignment, alignment, len(data)), data)


def _value(cursor: _Cursor, kind: int, key: str) -> Any:
    if kind in SCALARS:
        return cursor.number(SCALARS[kind], key)
    if kind == STRING:
        return cursor.text(key)
    if kind == ARRAY:
        return _array(cursor, key)
    raise _Damage(f"{key} has the unknown type {kind}")


def _array(cursor: _Cursor, key: str) -> list[Any] | np.ndarray:
    """Numbers as an array, strings as a list."""
    kind = cursor.number("I", key)
    if kind == STRING:
        return [cursor.text(key) for _ in range(cursor.count(8, key))]
    if kind not in SCALARS:
        raise _Damage(f"{key} is a list of the unsupported type {kind}")
    dtype = np.dtype(SCALARS[kind] if SCALARS[kind] != "?" else "u1").newbyteorder("<")
    count = cursor.count(dtype.itemsize, key)
    return np.frombuffer(cursor.take(count * dtype.itemsize, key), dtype)


def _entry(cursor: _Cursor, number: int) -> tuple[str, BlockFormat, tuple[int, ...], int]:
    """Name, format, shape and offset of a tensor."""
    name = cursor.text(f"the name of tensor {number}", MAX_NAME)
    dimensions = cursor.number("I", name)
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise _Damage(f"{name} has {dimensions} dimensions")
    shape = tuple(reversed([int(cursor.number("Q", name)) for _ in range(dimensions)]))
    kind = cursor.number("I", name)
    if kind not in FORMATS:
        hint = f"supported: {', '.join(one.name for one in FORMATS.values())}"
        raise InputError(f"the tensor {name} has the unsupported type {kind}", hint=hint)
    if 0 in shape or shape[-1] % FORMATS[kind].values:
        raise _Damage(f"{name} has the shape {shape}, whose rows are no blocks of {FORMATS[kind].values}")
    return name, FORMATS[kind], shape, int(cursor.number("Q", name))


def _placed(
    entries: list[tuple[str, BlockFormat, tuple[int, ...], int]], start: int, alignment: int, size: int
) -> dict[str, TensorEntry]:
    """The tensors with their places in the file, which must not overlap."""
    placed: dict[str, TensorEntry] = {}
    for name, form, shape, offset in entries:
        if name in placed:
            raise _Damage(f"it has the tensor {name} twice")
        if offset % alignment:
            raise _Damage(f"{name} does not begin at a multiple of {alignment} bytes")
        placed[name] = TensorEntry(form, shape, start + offset)
    end = start
    key: Callable[[str], int] = lambda name: placed[name].offset  # noqa: E731
    for name in sorted(placed, key=key):
        entry = placed[name]
        if entry.offset < end:
            raise _Damage(f"{name} overlaps the tensor before it")
        if entry.offset - end >= alignment:
            raise _Damage(f"there is a gap before {name}")
        end = entry.offset + entry.bytes
        if end > size:
            raise _Damage(f"it ends within {name}")
    if placed and size - end >= alignment:
        raise _Damage(f"it has {size - end:,} bytes after its last tensor")
    return placed
