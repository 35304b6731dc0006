"""What ``fit`` minds where torchrun started several processes: who reads first, and what cannot be done together."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from ensue.core.errors import InputError
from ensue.core.events import Report
from ensue.core.run_folder import RunFolder
from ensue.tasks.settings import Settings
from ensue.tasks.table import model_class, task_of
from ensue.train.data_parallel import DataParallel
from ensue.train.ranks import Ranks

Value = TypeVar("Value")
WITHOUT = "run it without torchrun"


def in_turn(ranks: Ranks, work: Callable[[], Value]) -> Value:
    """Do something first on the first rank, and then, when what it leaves behind is there, on the others."""
    if ranks.first:
        found = work()
        ranks.barrier()
        return found
    ranks.barrier()
    return work()


def read_corpus(settings: Settings, folder: RunFolder | None, report: Report, ranks: Ranks) -> Any:
    """The run's data; of several ranks the first fits the tokenizers, and all must read the same."""
    task = task_of(settings)
    if ranks.world_size == 1:
        return task.read_corpus(settings, folder, report)
    if "-" in (*settings.data.files, *settings.data.valid):
        raise InputError("several ranks cannot share standard input", hint="give a file")
    with tempfile.TemporaryDirectory(prefix="ensue-tokenizers-") as name:
        there = RunFolder(Path(name))
        if ranks.first:
            corpus = task.read_corpus(settings, folder, report)
            task.save_tokenizers(corpus, there)
        for file, held in ranks.broadcast({path.name: path.read_bytes() for path in there.path.iterdir()}).items():
            (there.path / file).write_bytes(held)
        if not ranks.first:
            corpus = task.read_corpus(settings, there if any(there.path.iterdir()) else folder, report)
    if ranks.broadcast(corpus.hash) != corpus.hash:
        where = ", ".join(map(str, settings.data.files))
        raise InputError("is not what the first rank reads", where=where, hint="give all machines the same data")
    return corpus


def check_learns(settings: Settings, ranks: Ranks) -> None:
    """Refuse, before anything is read, a system that several ranks cannot train."""
    if ranks.world_size == 1:
        return
    system = settings.run.system
    if hasattr(model_class(system, settings.run.task), "counter"):
        raise InputError(f"{system} is not trained by gradient, so several ranks are no use to it", hint=WITHOUT)
    if task_of(settings).train:
        raise InputError(f"{system} has a way of its own to learn, which is for one process", hint=WITHOUT)


def check_ranks(settings: Settings, model: nn.Module, ranks: Ranks) -> None:
    """Refuse settings, and of sharded models those, that several ranks cannot do."""
    if ranks.world_size == 1:
        return
    ranks.device(settings.run.device)
    single = [name for name, parameter in model.named_parameters() if parameter.dim() == 0]
    if settings.train.shard and single:
        what = f"{settings.run.system} has a weight that is a single number ({single[0]}), which FSDP cannot cut"
        raise InputError(what, hint="leave out --shard")
    if settings.train.shard and getattr(settings.train, "unfreeze", 0):
        what = "train.unfreeze lets go of layers one by one, which FSDP cannot"
        raise InputError(what, hint="leave out --shard or train.unfreeze")
    if settings.train.shard and getattr(settings.train, "objective", "") == "reward":
        what = "train.objective=reward draws translations of its own on every rank, which FSDP cannot"
        raise InputError(what, hint="leave out --shard")


def trainers(settings: Settings, ranks: Ranks) -> Ranks:
    """The ranks as they train: each with all weights, or with a part."""
    if not (isinstance(ranks, DataParallel) and settings.train.shard):
        return ranks
    from ensue.train.sharding import ShardedDataParallel

    return ShardedDataParallel()
