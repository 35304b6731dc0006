"""Memory that is freed and asked for again a thousand times a second should not go back to the system in between.

glibc gives large blocks back as soon as they are freed, and the system hands out pages filled with zeros, one fault a
page. A training step frees and asks for the same blocks each time; a small Transformer had ten thousand faults a step.
"""

from __future__ import annotations

import ctypes
import platform

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
