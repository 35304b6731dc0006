"""Atomic files and folders: written to a temporary name, synced, then renamed."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from ensue.core.errors import InputError, read_errors

DISK_FULL_HINT = "free some space and try again (--resume continues a run)"
DISK_ERRORS = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), ("the disk is full", DISK_FULL_HINT)),
    errno.EFBIG: ("this file would be larger than the limit here", "see `ulimit -f`, or choose another path"),
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM, errno.EROFS), ("is not writable", "change its permissions, or choose another path")
    ),
    errno.EISDIR: ("is a folder, and should be a file", "remove it, or choose another path"),
    **dict.fromkeys(
        (errno.ENOTDIR, errno.EEXIST), ("a part of this path is a file, not a folder", "choose another path")
    ),
}
"""Message and hint for errors of the file system."""


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn errors of the file system into InputError."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        number = error.errno if isinstance(error, OSError) else _wrapped_number(error)
        if isinstance(error, FileNotFoundError) and error.filename and Path(error.filename).parent == path.parent:
            raise InputError("cannot be created", where=str(path), hint="choose another path") from error
        if number not in DISK_ERRORS:
            raise
        what, hint = DISK_ERRORS[number]
        raise InputError(what, where=str(path), hint=hint) from error


def _wrapped_number(error: SafetensorError) -> int | None:
    """The number of the OSError that safetensors wraps."""
    if "No space left" in str(error):
        return errno.ENOSPC
    found = re.search(r"os error (\d+)", str(error))
    return int(found[1]) if found else None


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; it is renamed to ``path`` if the block succeeds."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            sync(temporary)
            temporary.replace(path)
            sync(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder to fill; it is renamed to ``path`` if the block succeeds."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    with disk_errors(path):
        try:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            yield temporary
            for file in temporary.rglob("*"):
                sync(file)
            sync(temporary)
            old = path.with_name(f".{path.name}.old.part")
            if path.exists():
                shutil.rmtree(old, ignore_errors=True)
                path.replace(old)
            temporary.replace(path)
            shutil.rmtree(old, ignore_errors=True)
            sync(path.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, value: Any) -> None:
    """Write an indented JSON file atomically."""
    write_text(path, json_text(value))


def json_text(value: Any) -> str:
    """A value as the text of an indented JSON file."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def finite(value: Any) -> Any:
    """A value for strict JSON: non-finite numbers become null, tuples lists, names of fields text.

    >>> finite({1: (float("nan"), 0.5)})
    {'1': [None, 0.5]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): finite(item) for name, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, list | tuple) else value


def read_json(path: Path) -> Any:
    """Read a JSON file; raise InputError if it is missing or damaged."""
    with read_errors(path, "is damaged: not JSON"):
        return json.loads(path.read_text(encoding="utf-8"))


def sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
