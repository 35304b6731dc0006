"""Rank and world size from torchrun's environment variables, without importing torch."""

from __future__ import annotations

import os

from ensue.core.errors import InputError

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Set by torchrun; if some are missing, the others have another meaning."""


def rank() -> int:
    """The rank of this process."""
    return int(os.environ["RANK"]) if _launched() else 0


def world_size() -> int:
    """The number of ranks.

    >>> world_size()
    1
    """
    return int(os.environ["WORLD_SIZE"]) if _launched() else 1


def local_rank() -> int:
    """The rank of this process on this machine."""
    return int(os.environ.get("LOCAL_RANK", "0")) if _launched() else 0


def available_cores() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_per_rank() -> int:
    """The number of threads of a rank: OMP_NUM_THREADS, or its share of this machine's cores.

    torchrun sets OMP_NUM_THREADS to 1 if it is not set, so 1 is ignored.
    """
    given = os.environ.get("OMP_NUM_THREADS", "1")
    if given.isdigit() and int(given) > 1:
        return int(given)
    return max(1, available_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def check() -> None:
    """Raise InputError for invalid values of the variables, which would otherwise be ignored."""
    if all(name in os.environ for name in VARIABLES) and not _launched():
        values = ", ".join(f"{name}={os.environ[name]}" for name in VARIABLES)
        raise InputError(f"invalid distributed settings: {values}", hint="start them with torchrun, or unset these")


def _launched() -> bool:
    if not all(name in os.environ for name in VARIABLES):
        return False
    rank, count, port = (os.environ[name] for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
    numbers = all(value.isascii() and value.isdigit() for value in (rank, count, port))
    return numbers and int(rank) < int(count) and int(port) < 65536
