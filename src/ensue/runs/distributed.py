"""Training with several ranks (torchrun): which rank reads first, and what several ranks cannot train."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from ensue.core.errors import InputError
from ensue.core.events import Report
from ensue.core.run_folder import RunFolder
from ensue.tasks.settings import Settings
from ensue.tasks.table import task_of, trained_by_counting
from ensue.train.data_parallel import DataParallel
from ensue.train.ranks import Ranks


def first_rank_first(ranks: Ranks, work: Callable[[], None]) -> None:
    """Run ``work`` on the first rank, then on the others, which find the files that it wrote."""
    if ranks.first:
        work()
    ranks.barrier()
    if not ranks.first:
        work()


def read_corpus(settings: Settings, folder: RunFolder | None, report: Report, ranks: Ranks) -> Any:
    """Read the data; with several ranks the first one fits the tokenizers, and all must read the same."""
    task = task_of(settings)
    if ranks.world_size == 1:
        return task.read_corpus(settings, folder, report)
    if "-" in (*settings.data.files, *settings.data.valid):
        raise InputError("several ranks cannot share standard input", hint="give a file")
    with tempfile.TemporaryDirectory(prefix="ensue-tokenizers-") as name:
        shared = RunFolder(Path(name))
        if ranks.first:
            corpus = task.read_corpus(settings, folder, report)
            task.save_tokenizers(corpus, shared)
        for file, content in ranks.broadcast({path.name: path.read_bytes() for path in shared.path.iterdir()}).items():
            (shared.path / file).write_bytes(content)
        if not ranks.first:
            corpus = task.read_corpus(settings, shared if any(shared.path.iterdir()) else folder, report)
    if ranks.broadcast(corpus.hash) != corpus.hash:
        where = ", ".join(map(str, settings.data.files))
        raise InputError("is not what the first rank reads", where=where, hint="give all machines the same data")
    return corpus


def check_trainable(settings: Settings, ranks: Ranks, report: Report) -> None:
    """Refuse, before anything is read, a system that several ranks cannot train."""
    system, hint = settings.run.system, "run it without torchrun"
    if ranks.world_size == 1:
        if getattr(settings.train, "shard", False):
            report("note", {"text": "--shard has no effect on a single process: it is for torchrun"})
    elif trained_by_counting(system, settings.run.task):
        raise InputError(f"{system} is not trained by gradient, so several ranks are no use to it", hint=hint)
    elif task_of(settings).train:
        raise InputError(f"{system} has a training loop of its own, for one process", hint=hint)


def check_ranks(settings: Settings, model: nn.Module, ranks: Ranks) -> None:
    """Refuse what several ranks, or sharded weights, do not support."""
    if ranks.world_size == 1:
        return
    ranks.device(settings.run.device)
    if not settings.train.shard:
        return
    scalars = [name for name, parameter in model.named_parameters() if parameter.dim() == 0]
    if scalars:
        what = f"{settings.run.system} has a scalar weight ({scalars[0]}), which FSDP cannot shard"
        raise InputError(what, hint="leave out --shard")
    if getattr(settings.train, "unfreeze", 0):
        what = "train.unfreeze unfreezes layers one by one, which FSDP cannot do"
        raise InputError(what, hint="leave out --shard or train.unfreeze")
    if getattr(settings.train, "objective", "") == "reward":
        what = "train.objective=reward samples translations on every rank, which FSDP cannot do"
        raise InputError(what, hint="leave out --shard")


def training_ranks(settings: Settings, ranks: Ranks) -> Ranks:
    """The ranks during training: each with all weights, or with a shard of them."""
    if not (isinstance(ranks, DataParallel) and settings.train.shard):
        return ranks
    from ensue.train.sharding import ShardedDataParallel

    return ShardedDataParallel()
