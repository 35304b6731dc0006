"""Folders for caches: of the user's home, or private ones in the temporary folder.

The temporary folder belongs to all users, so a folder in it is used only if it is a real folder (no link) that this
user owns and nobody else can enter.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

PRIVATE = 0o700
"""Permissions of a folder that only its owner can enter."""
WRITABLE_BY_OTHERS = 0o022


def user_cache(kind: str) -> Path | None:
    """Return a folder for a kind of cache: in ``$ENSUE_CACHE``, in the home, or a temporary one; or None."""
    if chosen := os.environ.get("ENSUE_CACHE"):
        parents: tuple[Path | None, ...] = (Path(chosen),)
    else:
        parents = (home_cache(), temporary_cache())
    folders = (parent / kind for parent in parents if parent is not None)
    return next((folder for folder in folders if writable(folder)), None)


def home_cache() -> Path | None:
    """Return ``~/.cache/ensue``; None if this user has no home."""
    try:
        return Path.home() / ".cache" / "ensue"
    except RuntimeError:  # HOME is not set, and the user is not in the list of users
        return None


def temporary_cache() -> Path | None:
    """Return a private folder in the temporary folder, with the same name in each process; None if there cannot be one.

    Another user may have made a folder or a link of this name: it is not used then.
    """
    try:
        path = Path(tempfile.gettempdir()) / f"ensue-{os.getuid()}"
        path.mkdir(mode=PRIVATE, exist_ok=True)
        return path if _make_private(path) else None
    except OSError:
        return None


def _make_private(path: Path) -> bool:
    """Make a folder of ours private; False if it is a link, or if others own it or could have written to it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.getuid() or status.st_mode & WRITABLE_BY_OTHERS:
            return False
        if stat.S_IMODE(status.st_mode) != PRIVATE:
            os.fchmod(descriptor, PRIVATE)
        return True
    finally:
        os.close(descriptor)


def writable(folder: Path) -> bool:
    """Return whether files can be written to a folder, which is created if needed; others cannot read a new one."""
    try:
        folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)
