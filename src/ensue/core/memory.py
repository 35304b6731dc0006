"""Settings of the C library's allocator, and the available memory.

glibc returns large freed blocks to the system at once, and each new page costs a page fault. A training step allocates
and frees the same blocks every time; a small Transformer had ten thousand page faults per step.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterator
from pathlib import Path

from ensue.core.sizes import size_in_bytes

TRIM, MMAP, ARENAS = -1, -3, -8  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD and M_ARENA_MAX of malloc.h
SIZES = (1 << 30, 1 << 25)
"""Bytes. Freed blocks up to this size are kept for reuse; older versions of glibc allow at most 32 MB."""


def keep_freed_memory() -> bool:
    """Let the C library keep freed blocks for reuse; True if it is supported. It matters on the CPU only."""
    if platform.libc_ver()[0] != "glibc":
        return False  # others have no mallopt, or do not return memory
    mallopt = ctypes.CDLL(None).mallopt
    taken = any(mallopt(MMAP, size) for size in SIZES)
    return taken and bool(mallopt(TRIM, SIZES[0]))  # alone it would return every block above 128 KB


def release_freed_memory() -> bool:
    """Let the C library return large freed blocks to the system at once, as before ``keep_freed_memory``.

    Setting the threshold also disables its automatic growth. True if it is supported.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    return bool(ctypes.CDLL(None).mallopt(MMAP, 1 << 17))


def share_arenas(count: int = 1) -> bool:
    """Let all threads share one arena, or ``count``; True if it is supported.

    glibc gives new threads arenas of their own, each of which keeps what any thread ever had at once in it. A server
    whose requests run on changing threads would grow for hours. Call it before other threads start.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    return bool(ctypes.CDLL(None).mallopt(ARENAS, count))


def trim_memory() -> None:
    """Return all freed memory to the system, small blocks too; for use before work that needs much memory."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


MEMORY_VARIABLE = "ENSUE_MEMORY"
"""Environment variable that overrides the available memory, e.g. 64G."""


def available_memory() -> int:
    """Bytes available to this process: memory of the machine or its control group, and swap; or ENSUE_MEMORY."""
    given = os.environ.get(MEMORY_VARIABLE, "")
    if given:
        return size_in_bytes(given)
    memory, swap = _machine()
    return min(memory, *_limits(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))) + swap


def _machine() -> tuple[int, int]:
    """Bytes of memory and of swap of this machine."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        known = {name: int(amount.split()[0]) << 10 for name, amount in (line.split(":") for line in lines)}
        return known["MemTotal"], known.get("SwapTotal", 0)
    except (OSError, ValueError, IndexError, KeyError):  # not Linux
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), 0


UNLIMITED = 1 << 62


def _limits(mine: Path, root: Path) -> Iterator[int]:
    """Memory limits of this process's control groups, of version 1 and 2; ``mine`` lists them, ``root`` holds them."""
    yield UNLIMITED
    try:
        lines = mine.read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, kinds, path = line.split(":", 2)
        if kinds and "memory" not in kinds.split(","):
            continue
        top, name = (root / "memory", "memory.limit_in_bytes") if kinds else (root, "memory.max")
        own = top / path.lstrip("/")
        for folder in (own, *own.parents):  # limits of parent groups apply too
            yield _limit(folder / name)
            if folder == top:
                break


def _limit(file: Path) -> int:
    """The limit in a file; UNLIMITED for "max" or a missing file."""
    try:
        return int(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return UNLIMITED
