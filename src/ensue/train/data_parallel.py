"""One of several processes that train together, each with all weights; gradients are added up when all are there."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ensue.core import torchrun as launch
from ensue.core.errors import InputError
from ensue.core.seeds import derive, random_state, restore_random_state, seed_everything
from ensue.nn.batch_norm import BatchNorm
from ensue.nn.experts import Experts
from ensue.nn.state import State
from ensue.train.checkpoints import Checkpoint, Checkpoints, Tensors
from ensue.train.interrupts import Interrupts
from ensue.train.loss_reduction import Pool
from ensue.train.optimisers import gradients_of
from ensue.train.ranks import Ask, Measure, Ranks, Value, plainly

BUCKET = 1 << 22
"""So many numbers of gradients are added up at once."""


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
            raise InputError(what, hint="start fewer ranks, or use --device cpu")
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
        return batch.select(self.rows(rows)), Pooled(self)

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
            elif isinstance(part, Experts):
                part.added = self.added
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

    def added(self, counts: Tensor) -> Tensor:
        """What the rows of all ranks count, for the balance of experts."""
        held = counts.detach() * (0.0 if self.idle else 1.0)
        dist.all_reduce(held)
        return held

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor, int]:
        """The mean and variance over the rows of all ranks, for batch normalisation; gradients go to all of them."""
        counts = 0.0 if self.idle else 1.0
        rows = int(self.total(counts * len(x)))
        mean: Tensor = _Sum.apply(counts * x.sum(0)) / rows  # type: ignore[no-untyped-call]
        variance: Tensor = _Sum.apply(counts * (x - mean).square().sum(0)) / rows  # type: ignore[no-untyped-call]
        return mean, variance, rows

    def measured(self, ask: Ask, evaluate: Measure, wish: Interrupts) -> dict[str, float] | None:
        """All measure, each its part where the evaluation can be divided; what the first then has is everyone's."""
        return self.agree(super().measured(ask, partial(evaluate, ranks=self), wish))

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


class _Sum(torch.autograd.Function):
    """y = Σ_r x_r on every rank; each x_r is in the losses of all, so ∂x_r = Σ_r ∂y_r."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """The sum."""
        y = x.clone()
        dist.all_reduce(y)
        return y

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> Tensor:
        """The sum of what comes back."""
        return _Sum.forward(ctx, above[0])


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
