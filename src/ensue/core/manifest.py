"""Digests of files: manifest.json in a folder has the SHA-256 of each file that the folder needs.

Runs and checkpoints have one. Whoever reads such a folder verifies it first, for runs unless the user turned that off:
``--no-verify``, ``ensue.load(…, verify=False)``, or ``ENSUE_VERIFY=0`` in the environment.

A large file is hashed again only when it has changed: a marker in the user's cache remembers its size, times and inode.
``ensue check RUN --files`` hashes everything, so it also finds damage that the file system did not notice.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path, PurePosixPath

from ensue.core.errors import InputError
from ensue.core.files import json_text, read_json, sha256, write_json
from ensue.core.user_cache import user_cache

MANIFEST = "manifest.json"
LARGE = 64 << 20
"""Bytes from which a verified file is remembered; smaller files are hashed in some milliseconds."""
SETTLED_SECONDS = 2.0
"""A file that changed less than this ago may change again without another time stamp, so it is not remembered."""
_DIGEST = re.compile("[0-9a-f]{64}")


def write_manifest(folder: Path, digests: Mapping[str, str]) -> None:
    """Write the digests of a folder's files, by name."""
    write_json(folder / MANIFEST, dict(sorted(digests.items())))


def digests_of(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the digests of some files."""
    return {name: sha256(folder / name) for name in names}


def read_manifest(folder: Path, required: Collection[str]) -> dict[str, str]:
    """Read a manifest; raise InputError if it is missing or damaged, or lacks one of the ``required`` files."""
    path = folder / MANIFEST
    manifest = read_json(path)
    entries = manifest.items() if isinstance(manifest, dict) else [("", None)]
    if not all(_is_inside(name) and isinstance(value, str) and _DIGEST.fullmatch(value) for name, value in entries):
        raise InputError("is damaged: not a list of files and digests", where=str(path))
    if path.read_bytes() != json_text(manifest).encode("utf-8", "surrogatepass"):
        raise InputError("is damaged: not as it was written", where=str(path))
    if missing := [name for name in required if name not in manifest]:
        raise InputError(f"is damaged: {missing[0]} is not in it", where=str(path))
    return dict(entries)


def _is_inside(name: str) -> bool:
    """Return whether a name is that of a file inside a folder."""
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts


def damaged_files(folder: Path, manifest: Mapping[str, str], *, remember: bool = False) -> Iterator[tuple[str, str]]:
    """Yield each file that does not match the manifest, with what is wrong.

    ``remember``: large files that were verified before and have not changed since are not read.
    """
    for name, digest in manifest.items():
        path = folder / name
        if not path.is_file():
            yield name, "is missing"
        elif not _matches(path, digest, remember):
            yield name, f"is damaged: its SHA-256 is not the one in {MANIFEST}"


def _matches(path: Path, digest: str, remember: bool) -> bool:
    """Return whether a file has a digest."""
    marker = _marker(path, digest) if remember and path.stat().st_size >= LARGE else None
    if marker is not None and marker.exists():
        return True
    same = sha256(path) == digest
    if same and marker is not None and time.time() - path.stat().st_ctime > SETTLED_SECONDS:
        with suppress(OSError):  # a full disk: the file is hashed again next time
            marker.touch()
    return same


def _marker(path: Path, digest: str) -> Path | None:
    """Return the file that exists if ``path``, as it is now, was found to have a digest; None without a cache."""
    folder = _marker_folder()
    status = path.stat()
    facts = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    name = hashlib.sha256(f"{path.resolve()} {digest} {facts}".encode()).hexdigest()
    return None if folder is None else folder / name


@cache
def _marker_folder() -> Path | None:
    return user_cache("verified")


def forget(folder: Path, name: str) -> None:
    """Remove a file from the manifest before the file is written again; a damaged manifest is deleted."""
    try:
        manifest = read_manifest(folder, ())
    except InputError:
        (folder / MANIFEST).unlink(missing_ok=True)
        return
    if manifest.pop(name, None) is not None:
        write_manifest(folder, manifest)
