"""Locks that survive a fork: workers of a data loader, ``multiprocessing``.

A forked process has one thread, a copy of the one that forked. A lock that another thread held stays taken in it for
ever, and what that thread was doing stays half done. So a fork waits until nothing is being compiled, and locks that
guard what is right at any moment are free in the new process.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

compiling = threading.RLock()
"""Held while loops are compiled or loaded, and during a fork: modules are imported and files are written meanwhile."""
_held: list[Any] = []
_free: WeakSet[Any] = WeakSet()


def free_lock() -> threading.Lock:
    """Return a lock that no thread holds in a forked process; what it guards must be right at any moment."""
    lock = threading.Lock()
    _free.add(lock)
    return lock


def in_forked_process(call: Callable[[], object]) -> None:
    """Have forked processes call this before anything else, where the system has forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=call)


def _hold() -> None:
    """Wait until nothing is compiled, by numba's own functions neither; its lock is always taken after ours."""
    compiling.acquire()
    numba = getattr(sys.modules.get("numba.core.compiler_lock"), "global_compiler_lock", None)
    if numba is not None:
        numba.acquire()
    _held.append(numba)


def _release() -> None:
    if (numba := _held.pop()) is not None:
        numba.release()
    compiling.release()


def _free_locks() -> None:
    for lock in list(_free):
        lock._at_fork_reinit()  # as the standard library does with its own


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold, after_in_parent=_release, after_in_child=_release)
in_forked_process(_free_locks)
