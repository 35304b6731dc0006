"""Memory that is freed and asked for again a thousand times a second should not go back to the system in between.

glibc gives large blocks back as soon as they are freed, and the system hands out pages filled with zeros, one fault a
page. A training step frees and asks for the same blocks each time; a small Transformer had ten thousand faults a step.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterator
from pathlib import Path

from ensue.core.sizes import size_in_bytes

TRIM, MMAP = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
SIZES = (1 << 30, 1 << 25)
"""Bytes. Blocks up to this size are kept for the next who asks, and the end of the heap; older versions take 32 MB."""


def keep_freed_memory() -> bool:
    """Let the C library keep freed blocks for this process; whether it could be told. It matters on the CPU only."""
    if platform.libc_ver()[0] != "glibc":
        return False  # others have no such call, or no such habit
    mallopt = ctypes.CDLL(None).mallopt
    taken = any(mallopt(MMAP, size) for size in SIZES)
    return taken and bool(mallopt(TRIM, SIZES[0]))  # alone it would have every block above 128 KB given back


def give_back_memory() -> bool:
    """Let the C library give large blocks back as soon as they are freed, whatever was asked for before; it learns from
    the first that is freed to keep others of its size. Whether it could be told."""
    if platform.libc_ver()[0] != "glibc":
        return False
    return bool(ctypes.CDLL(None).mallopt(MMAP, 1 << 17))


def give_back_now() -> None:
    """Give back what has been freed so far, small blocks as well: before work that needs much at once."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


ROOM = "ENSUE_MEMORY"
"""The name under which a person says how much memory there is, 64G, where this machine says otherwise."""


def memory_here() -> int:
    """Bytes of memory that this process may have: the machine's, or less where its group is given less (a container),
    and what can be swapped out; or what ENSUE_MEMORY says."""
    said = os.environ.get(ROOM, "")
    if said:
        return size_in_bytes(said)
    memory, swap = _machine()
    return min(memory, *_limits(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))) + swap


def _machine() -> tuple[int, int]:
    """Bytes of this machine's memory, and of what it swaps to."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        known = {name: int(amount.split()[0]) << 10 for name, amount in (line.split(":") for line in lines)}
        return known["MemTotal"], known.get("SwapTotal", 0)
    except (OSError, ValueError, IndexError, KeyError):  # no Linux
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), 0


NONE = 1 << 62
"""More than any machine has: no limit."""


def _limits(mine: Path, root: Path) -> Iterator[int]:
    """What the groups that this process is in may have, in both versions of control groups; NONE where nothing is
    said. ``mine`` names them, ``root`` is where they are."""
    yield NONE
    try:
        lines = mine.read_text(encoding="utf-8").splitlines()
    except OSError:  # no Linux
        return
    for line in lines:
        _, kinds, path = line.split(":", 2)
        if kinds and "memory" not in kinds.split(","):
            continue
        top, name = (root / "memory", "memory.limit_in_bytes") if kinds else (root, "memory.max")
        own = top / path.lstrip("/")
        for folder in (own, *own.parents):  # a group has no more than the one it is in
            yield _limit(folder / name)
            if folder == top:
                break


def _limit(file: Path) -> int:
    """What a group's file says; NONE where it says max, or is not there."""
    try:
        return int(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return NONE
