"""Whether torchrun started this process as one of several, its ranks; read from the environment, without torch."""

from __future__ import annotations

import os

from ensue.core.errors import InputError

NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What torchrun sets; a program that sets only some of these means something else by them."""


def rank() -> int:
    """The number of this process among those that train together, from 0."""
    return int(os.environ["RANK"]) if _launched() else 0


def count() -> int:
    """How many processes train together.

    >>> count()
    1
    """
    return int(os.environ["WORLD_SIZE"]) if _launched() else 1


def local_rank() -> int:
    """The number of this process among those on this machine."""
    return int(os.environ.get("LOCAL_RANK", "0")) if _launched() else 0


def available_cores() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads() -> int:
    """How many threads a rank has where nobody says: its share of this machine's cores, or OMP_NUM_THREADS.

    torchrun sets that to 1 where it is not set, so 1 says nothing.
    """
    said = os.environ.get("OMP_NUM_THREADS", "1")
    if said.isdigit() and int(said) > 1:
        return int(said)
    return max(1, available_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def check() -> None:
    """Refuse what torchrun cannot have set: whoever sets it by hand means several processes, and would get one."""
    if all(name in os.environ for name in NEEDED) and not _launched():
        said = ", ".join(f"{name}={os.environ[name]}" for name in NEEDED)
        raise InputError(f"no ranks can meet by {said}", hint="start them with torchrun, or unset these")


def _launched() -> bool:
    if not all(name in os.environ for name in NEEDED):
        return False
    rank, count, port = (os.environ[name] for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
    numbers = all(value.isascii() and value.isdigit() for value in (rank, count, port))
    return numbers and int(rank) < int(count) and int(port) < 65536
