"""Folders for caches: of the user's home, or private ones in the temporary folder; and who can write to a path.

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


def trusted(path: Path) -> bool:
    """Return whether nobody but this user and root can change what is at a path, or put something else there.

    So every folder above it belongs to one of them too, and only one from which nobody can take away what others own,
    as the temporary folder is, may be written by others.
    """
    if not hasattr(os, "getuid"):  # the system has no such permissions
        return True
    absolute = Path(os.path.abspath(path))  # noqa: PTH100 - links are looked at themselves, and then where they lead
    try:
        resolved = absolute.resolve(strict=True)
        above = {*absolute.parents, *resolved.parents}
        own = [step.lstat() for step in {absolute, resolved}]
        return all(map(only_ours, own)) and all(only_ours(step.lstat(), sticky=True) for step in above)
    except (OSError, RuntimeError):
        return False


def only_ours(status: os.stat_result, sticky: bool = False) -> bool:
    """Return whether a file or folder belongs to this user or root, and nobody else can write to it.

    With ``sticky`` others may, where they cannot take away what is not theirs.
    """
    if status.st_uid not in (os.getuid(), 0):
        return False
    if stat.S_ISLNK(status.st_mode) or (sticky and status.st_mode & stat.S_ISVTX):
        return True
    group = status.st_mode & stat.S_IWGRP and not _is_own_group(status.st_gid)
    return not group and not status.st_mode & stat.S_IWOTH


def _is_own_group(number: int) -> bool:
    """Return whether a group is the one that many systems make for each user, with nobody else in it."""
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.getuid()), grp.getgrgid(number)
    except KeyError:
        return False
    return (user.pw_gid, user.pw_name) == (number, group.gr_name) and set(group.gr_mem) <= {user.pw_name}


def writable(folder: Path) -> bool:
    """Return whether files can be written to a folder, which is created if needed; others cannot read a new one."""
    try:
        folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)
