"""Memory that is freed and asked for again a thousand times a second should not go back to the system in between.

glibc gives large blocks back as soon as they are freed, and the system hands out pages filled with zeros, one fault a
page. A training step frees and asks for the same blocks each time: on two cores that was a tenth of its time.
"""

from __future__ import annotations

import ctypes
import platform

TRIM, MMAP = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
LARGE = 1 << 30
"""Bytes. Blocks up to this size are kept for the next who asks; so is the end of the heap."""


def keep_freed_memory() -> bool:
    """Let the C library keep freed blocks for this process; whether it could be told. It matters on the CPU only."""
    if platform.libc_ver()[0] != "glibc":
        return False  # others have no such call, or no such habit
    library = ctypes.CDLL(None)
    return all([library.mallopt(MMAP, LARGE), library.mallopt(TRIM, LARGE)])
