"""Processes that train together, as torchrun starts them: each takes some rows of every batch.

    rank r of n holds rows ⌊rB/n⌋ … ⌊(r+1)B/n⌋ − 1 of a batch of B
    loss = Σ_r loss_r,   ∇ = Σ_r ∇loss_r          each loss_r the rank's share of the whole mean (ensue.train.pooling)

A batch is a pure function of its number, so every rank knows the whole batch and takes its rows: nothing is sent about,
and each token is seen once. What is decided (to stop, which weights are best) is decided by the first rank, or by all
of them together. ``Ranks`` is one process alone, for which all of this is nothing; ``Together`` is one of several, each
with all weights; ``ensue.train.sharding`` is one of several with a part of them.
"""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.nn.functional import all_reduce
from torch.distributed.rendezvous import rendezvous

from ensue.core import launch
from ensue.core.errors import InputError, Lost, OwnError
from ensue.core.events import Abandoned
from ensue.core.seeds import derive, random_state, restore_random_state, seed_everything
from ensue.nn.batch_norm import BatchNorm
from ensue.nn.state import State
from ensue.train.checkpoints import Checkpoint, Checkpoints, Tensors
from ensue.train.interrupts import Interrupts
from ensue.train.optimisers import gradients_of, norm_of, restore_optimiser
from ensue.train.pooling import ALONE, Pool

Value = TypeVar("Value")
Ask = Callable[[Callable[[], Any]], Any]
"""Answers a question about a model, once all its weights that are needed are here."""
Measure = Callable[[Callable[[], bool]], dict[str, float]]
"""An evaluation, which asks now and then whether somebody wants to stop."""

BUCKET = 1 << 22
"""So many numbers of gradients are added up at once."""
PATIENCE = timedelta(hours=12)
"""How long a rank waits for the others, of which one may be evaluating; torchrun ends all when one has died."""
MOMENT = 2.0
"""Seconds that a rank which fails waits to hear whether another says why."""
MEETINGS = itertools.count()
"""All ranks meet equally often, each time under a name of its own."""
LOST = ("onnection closed", "onnection reset", "onnection refused", "Broken pipe", "NCCL", "gloo")
"""What torch says when another rank has gone."""


def plainly(question: Callable[[], Any]) -> Any:
    """Ask where all weights are here anyway."""
    return question()


class Ranks:
    """One process that trains alone."""

    rank = 0
    count = 1

    @property
    def first(self) -> bool:
        """Whether this is the rank that writes and speaks."""
        return self.rank == 0

    def device(self, name: str) -> torch.device:
        """The device of this rank."""
        return torch.device(name)

    def rows(self, count: int) -> slice:
        """Which of so many rows are this rank's; one that has none reads the first, for nothing."""
        return slice(0, count)

    def part(self, batch: Any) -> tuple[Any, Pool]:
        """This rank's rows of a batch, and what says how much they count."""
        return batch, ALONE

    def total(self, value: float) -> float:
        """The sum over all ranks."""
        return value

    def agree(self, value: Value) -> Value:
        """What the first rank has."""
        return value

    def asked(self, wish: str) -> str:
        """The signal by which somebody asked any rank to stop."""
        return wish

    def wait(self) -> None:
        """Go on only when all ranks are here."""

    def spread(self, model: nn.Module, device: torch.device) -> Ask:
        """Give all ranks the weights of the first."""
        return plainly

    def gradients(self, model: nn.Module) -> list[Tensor]:
        """The gradients of all ranks together, of what is here."""
        return gradients_of(model)

    def norm(self, gradients: list[Tensor]) -> float:
        """‖g‖ of all gradients as one vector."""
        return norm_of(gradients)

    def measured(self, ask: Ask, evaluate: Measure, wish: Interrupts) -> dict[str, float] | None:
        """What an evaluation found; None where it was given up because somebody asked to stop."""
        try:
            found: dict[str, float] = ask(lambda: evaluate(lambda: bool(self.asked(wish.asked))))
        except Abandoned:
            return None
        return found

    def written(self, ask: Ask, sample: Callable[[], str]) -> str:
        """What the model writes as it learns."""
        return str(ask(sample))

    def gathered(self, state: State | None, rows: int) -> State | None:
        """The state of all ``rows`` rows, on the first rank."""
        return state

    def own(self, state: State, rows: int) -> State:
        """Of a state of all rows that of this rank's."""
        return state

    def chances(self) -> Tensors:
        """Where the random numbers of the other ranks stand."""
        return {}

    def set_chance(self, held: Tensors, step: int) -> None:
        """Random numbers of its own for each rank but the first: those it had, or new ones."""

    def checkpoints(self, folder: Path, keep: int) -> Checkpoints:
        """The checkpoints of a run, written once and read by all."""
        return Checkpoints(folder, keep)

    def take_up(self, model: nn.Module, optimiser: torch.optim.Optimizer, found: Checkpoint) -> None:
        """Give the model and the optimiser what a checkpoint holds."""
        model.load_state_dict(found.tensors["model"])
        restore_optimiser(optimiser, found.tensors["optimiser"])

    def kept_whole(self, model: nn.Module) -> nn.Module:
        """A model to take up all weights when training has ended: the one that is trained, or a copy."""
        return model

    def give_whole(self, model: nn.Module, whole: nn.Module) -> None:
        """Give what was kept, on the first rank, all weights of the model that was trained."""


class Together(Ranks):
    """One of several processes, each with all weights."""

    def __init__(self) -> None:
        self.rank, self.count = dist.get_rank(), dist.get_world_size()
        self.idle = False
        """Whether none of the rows of the batch at hand is this rank's."""

    def device(self, name: str) -> torch.device:
        if name != "cuda":
            return torch.device(name)
        if launch.local_rank() >= torch.cuda.device_count():
            what = f"there are {torch.cuda.device_count()} GPUs here, too few for a rank each"
            raise InputError(what, mend="start fewer ranks, or use --device cpu")
        return torch.device("cuda", launch.local_rank())

    def rows(self, count: int) -> slice:
        begin, end = self._bounds(self.rank, count)
        return slice(begin, end) if end > begin else slice(0, 1)

    def _bounds(self, rank: int, count: int) -> tuple[int, int]:
        return rank * count // self.count, (rank + 1) * count // self.count

    def _idle(self, rank: int, count: int) -> bool:
        begin, end = self._bounds(rank, count)
        return begin == end

    def part(self, batch: Any) -> tuple[Any, Pool]:
        rows = len(batch)
        self.idle = self._idle(self.rank, rows)
        return batch.some(self.rows(rows)), Pooled(self)

    def total(self, value: float) -> float:
        held = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(held)
        return float(held)

    def agree(self, value: Value) -> Value:
        held = [value]
        dist.broadcast_object_list(held, src=0)
        return held[0]

    def asked(self, wish: str) -> str:
        number = torch.tensor([signal.Signals[wish].value if wish else 0])
        dist.all_reduce(number, dist.ReduceOp.MAX)
        return signal.Signals(int(number)).name if int(number) else ""

    def wait(self) -> None:
        self.total(0.0)

    def spread(self, model: nn.Module, device: torch.device) -> Ask:
        for part in model.modules():
            if isinstance(part, BatchNorm):
                part.moments = self.moments
        with torch.no_grad():
            for tensor in model.state_dict().values():
                dist.broadcast(tensor, src=0)
        return plainly

    def gradients(self, model: nn.Module) -> list[Tensor]:
        """A rank whose rows did not touch a parameter counts as zero; where none did, there is no gradient."""
        learns = [p for p in model.parameters() if p.requires_grad]
        there = torch.tensor([p.grad is not None for p in learns], dtype=torch.uint8)
        dist.all_reduce(there, dist.ReduceOp.MAX)
        for parameter, somewhere in zip(learns, there.tolist(), strict=True):
            if somewhere and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        found = gradients_of(model)
        add_up(found)
        return found

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor, int]:
        """The mean and variance over the rows of all ranks, for batch normalisation; gradients go to all of them."""
        counts = 0.0 if self.idle else 1.0
        rows = int(self.total(counts * len(x)))
        mean = all_reduce(counts * x.sum(0)) / rows  # type: ignore[no-untyped-call]
        variance = all_reduce(counts * (x - mean).square().sum(0)) / rows  # type: ignore[no-untyped-call]
        return mean, variance, rows

    def measured(self, ask: Ask, evaluate: Measure, wish: Interrupts) -> dict[str, float] | None:
        """The first rank measures while the others wait: its answer is everyone's."""
        found: dict[str, float] | None = None
        if self.first:
            found = Ranks().measured(ask, evaluate, wish)
        return self.agree(found)

    def written(self, ask: Ask, sample: Callable[[], str]) -> str:
        return super().written(ask, sample) if self.first else ""

    def gathered(self, state: State | None, rows: int) -> State | None:
        if state is None:
            return None
        held: list[Any] | None = [None] * self.count if self.first else None
        dist.gather_object(state.map(lambda tensor: tensor.cpu()), held)
        if held is None:
            return None
        return type(state).joined([one for rank, one in enumerate(held) if not self._idle(rank, rows)])

    def own(self, state: State, rows: int) -> State:
        mine = self.rows(rows)
        return state.rows(torch.arange(mine.start, mine.stop))

    def chances(self) -> Tensors:
        held: list[Any] | None = [None] * self.count if self.first else None
        dist.gather_object(random_state(), held)
        return {f"{rank}.{name}": one for rank, own in enumerate(held or ()) if rank for name, one in own.items()}

    def set_chance(self, held: Tensors, step: int) -> None:
        if self.first:
            return
        ranks = {int(name.partition(".")[0]) for name in held}
        if len(ranks) == self.count - 1:
            mine = f"{self.rank}."
            restore_random_state({name.removeprefix(mine): one for name, one in held.items() if name.startswith(mine)})
        else:  # there were more ranks, or fewer
            seed_everything(derive(torch.initial_seed(), "rank", self.rank, step))

    def checkpoints(self, folder: Path, keep: int) -> Checkpoints:
        return SharedCheckpoints(self, folder, keep)


class Pooled(Pool):
    """A rank's part of means over what all ranks have."""

    def __init__(self, ranks: Together) -> None:
        self.ranks, self.idle = ranks, ranks.idle

    def share(self, mean: Tensor, count: Tensor | float) -> Tensor:
        """What a rank without anything adds is 0, whatever the mean of nothing is."""
        own = 0.0 if self.idle else float(count)
        whole = self.ranks.total(own)
        return mean * (own / whole) if own else mean.nan_to_num(0.0, 0.0, 0.0) * 0.0

    def total(self, count: Tensor | float) -> float:
        return self.ranks.total(0.0 if self.idle else float(count))


class SharedCheckpoints(Checkpoints):
    """Checkpoints that the first rank writes, finds and verifies; all read those it names."""

    def __init__(self, ranks: Ranks, folder: Path, keep: int = 2) -> None:
        super().__init__(folder, keep)
        self.ranks = ranks

    def save(self, checkpoint: Checkpoint, name: str = "") -> None:
        if self.ranks.first:
            super().save(checkpoint, name)
        self.ranks.wait()

    def forget_stop(self) -> None:
        if self.ranks.first:
            super().forget_stop()
        self.ranks.wait()

    def find(self, paths: list[Path]) -> Path | None:
        return self.ranks.agree(super().find(paths) if self.ranks.first else None)


def add_up(gradients: list[Tensor]) -> None:
    """Replace gradients by their sums over all ranks, many small ones at once."""
    buckets: list[list[Tensor]] = []
    for gradient in sorted(gradients, key=lambda one: str(one.dtype)):  # all ranks have them in the same order
        last = buckets[-1] if buckets else []
        full = sum(one.numel() for one in last) + gradient.numel() > BUCKET
        if not last or full or last[0].dtype != gradient.dtype:
            buckets.append([gradient])
        else:
            last.append(gradient)
    flat = [torch.cat([one.reshape(-1) for one in bucket]) for bucket in buckets]
    for work in [dist.all_reduce(one, async_op=True) for one in flat]:
        work.wait()
    for bucket, sums in zip(buckets, flat, strict=True):
        parts = torch.split(sums, [one.numel() for one in bucket])
        for gradient, part in zip(bucket, parts, strict=True):
            gradient.copy_(part.view_as(gradient))


@cache
def meeting_place() -> Store:
    """Where ranks leave each other notes: torchrun keeps it, so it outlives them."""
    store: Store = next(rendezvous("env://"))[0]
    return store


@contextmanager
def ranks_here() -> Iterator[Ranks]:
    """The ranks that torchrun started, or this process alone; an error of one ends all, and is said once."""
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
    except (InputError, RuntimeError) as error:
        raise said_once(error, PrefixStore("failed", store), rank, count) from error
    finally:
        dist.destroy_process_group()


def said_once(error: Exception, failed: Store, rank: int, count: int) -> Exception:
    """What a rank raises in place of an error: itself, where it is to say so; ``Lost`` where another one does.

    What all ranks find wrong the first one says. Where one rank alone fails, the others only hear that it is gone.
    """
    gone = not isinstance(error, InputError) and any(sign in str(error) for sign in LOST)
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
        mend = "see what it says, and go on with --resume"
        return OwnError("another rank has ended", mend=mend) if rank == 0 else Lost()
    return OwnError(f"rank {rank}: {error}") if isinstance(error, InputError) else error
