"""How the processes that torchrun started find each other, and part: an error of one ends all, and is said once."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from ensue.core import torchrun as launch
from ensue.core.errors import InputError, Interrupted, Lost, OwnError
from ensue.train.data_parallel import Together
from ensue.train.ranks import Ranks

PATIENCE = timedelta(hours=12)
"""How long a rank waits for the others, of which one may be evaluating; torchrun ends all when one has died."""
MOMENT = 2.0
"""Seconds that a rank which fails waits to hear whether another says why."""
MEETINGS = itertools.count()
"""All ranks meet equally often, each time under a name of its own."""
LOST = ("onnection closed", "onnection reset", "onnection refused", "Broken pipe", "NCCL", "gloo")
"""What torch says when another rank has gone."""


@cache
def meeting_place() -> Store:
    """Where ranks leave each other notes: torchrun keeps it, so it outlives them."""
    store: Store = next(rendezvous("env://"))[0]
    return store


@contextmanager
def ranks_here() -> Iterator[Ranks]:
    """The ranks that torchrun started, or this process alone; an error of one ends all, and is said once."""
    launch.check()
    if launch.count() == 1:
        yield Ranks()
        return
    if dist.is_initialized():  # by a program that calls us
        yield Together()
        return
    torch.set_num_threads(launch.threads())
    able = torch.cuda.is_available() and launch.local_rank() < torch.cuda.device_count()
    if able:
        torch.cuda.set_device(launch.local_rank())
    backend, rank, count = "cpu:gloo,cuda:nccl" if able else "gloo", launch.rank(), launch.count()
    store = PrefixStore(f"ensue-{next(MEETINGS)}", meeting_place())
    dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=PATIENCE)
    try:
        yield Together()
    except Interrupted:  # as all ranks are at the same time
        raise
    except Exception as error:
        with undisturbed():
            said = said_once(error, PrefixStore("failed", store), rank, count)
        raise said from error
    finally:
        dist.destroy_process_group()


@contextmanager
def undisturbed() -> Iterator[None]:
    """A moment in which SIGTERM means nothing: torchrun sends it to all ranks when one has ended, said or not."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def said_once(error: Exception, failed: Store, rank: int, count: int) -> Exception:
    """What a rank raises in place of an error: itself, where it is to say so; ``Lost`` where another one does.

    What all ranks find wrong the first one says. Where one rank alone fails, the others only hear that it is gone.
    """
    gone = isinstance(error, RuntimeError) and any(sign in str(error) for sign in LOST)
    if not gone:
        failed.set(str(rank), "")
    if rank == 0 and not gone:
        return error
    others = [0] if not gone else [other for other in range(count) if other != rank]
    until = time.monotonic() + MOMENT
    while time.monotonic() < until:
        if any(failed.check([str(other)]) for other in others):
            return Lost()
        time.sleep(0.05)
    if gone:
        hint = "see what it says, and go on with --resume"
        return OwnError("another rank has ended", hint=hint) if rank == 0 else Lost()
    return OwnError(f"rank {rank}: {error}") if isinstance(error, InputError) else error
