"""The process group of the ranks that torchrun started: an error on one rank ends all and is reported once."""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from ensue.core import torchrun
from ensue.core.errors import InputError, Interrupted, OtherRankFailed, RankError
from ensue.train.data_parallel import DataParallel
from ensue.train.interrupts import handle_signal
from ensue.train.ranks import Ranks

COLLECTIVE_TIMEOUT = timedelta(hours=12)
"""Long, because ranks wait while one evaluates; torchrun ends all ranks when one dies."""
REPORT_WAIT = 2.0
"""Seconds that a failing rank waits for another one to report the error."""
GROUP_NUMBERS = itertools.count()
"""Numbers for the names of process groups; all ranks open the same groups in the same order."""
LOST_PEER = ("onnection closed", "onnection reset", "onnection refused", "Broken pipe", "NCCL", "gloo")
"""Parts of torch's messages when another rank has ended."""


@cache
def rendezvous_store() -> Store:
    """Return torchrun's key–value store, which outlives the ranks."""
    store: Store = next(rendezvous("env://"))[0]
    return store


@contextmanager
def join_process_group() -> Iterator[Ranks]:
    """Join the ranks that torchrun started; without torchrun this is a single process.

    An error on one rank ends all ranks and is reported once.
    """
    torchrun.check()
    if torchrun.world_size() == 1:
        yield Ranks()
        return
    if dist.is_initialized():  # by the calling program
        yield DataParallel()
        return
    torch.set_num_threads(torchrun.threads_per_rank())
    has_gpu = torch.cuda.is_available() and torchrun.local_rank() < torch.cuda.device_count()
    if has_gpu:
        torch.cuda.set_device(torchrun.local_rank())
    backend, rank, world_size = "cpu:gloo,cuda:nccl" if has_gpu else "gloo", torchrun.rank(), torchrun.world_size()
    store = PrefixStore(f"ensue-{next(GROUP_NUMBERS)}", rendezvous_store())
    dist.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=COLLECTIVE_TIMEOUT)
    try:
        yield DataParallel()
    except Interrupted:  # raised by all ranks at the same time
        raise
    except Exception as error:
        # torchrun sends SIGTERM to all ranks when one has ended, which must not interrupt the report
        with handle_signal(signal.SIGTERM, signal.SIG_IGN):
            reported = error_to_report(error, PrefixStore("failed", store), rank, world_size)
        raise reported from error
    finally:
        dist.destroy_process_group()


def error_to_report(error: Exception, failed: Store, rank: int, world_size: int) -> Exception:
    """Return the error that this rank raises: the error itself, or ``OtherRankFailed`` if another rank reports it.

    The first rank reports what fails on all ranks. Where a single rank fails, the others only see that it has ended.
    """
    lost_peer = isinstance(error, RuntimeError) and any(sign in str(error) for sign in LOST_PEER)
    if not lost_peer:
        failed.set(str(rank), "")
    if rank == 0 and not lost_peer:
        return error
    others = [0] if not lost_peer else [other for other in range(world_size) if other != rank]
    deadline = time.monotonic() + REPORT_WAIT
    while time.monotonic() < deadline:
        if any(failed.check([str(other)]) for other in others):
            return OtherRankFailed()
        time.sleep(0.05)
    if lost_peer:
        hint = "see its error message, and continue with --resume"
        return RankError("another rank has ended", hint=hint) if rank == 0 else OtherRankFailed()
    return RankError(f"rank {rank}: {error}") if isinstance(error, InputError) else error
