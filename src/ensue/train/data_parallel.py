"""Data-parallel training: every rank has all weights, and gradients are summed over ranks."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ensue.core import torchrun
from ensue.core.errors import InputError
from ensue.core.seeds import derive, get_random_state, seed_everything, set_random_state
from ensue.nn.batch_norm import BatchNorm
from ensue.nn.experts import Experts
from ensue.nn.mixers.routing import Routing
from ensue.nn.state import State
from ensue.train.checkpoints import Checkpoint, Checkpoints, Tensors
from ensue.train.interrupts import Interrupts
from ensue.train.loss_reduction import LossReduction
from ensue.train.optimisers import gradients_of
from ensue.train.ranks import Evaluate, Ranks, RunWithWeights, Value, run_directly

BUCKET_SIZE = 1 << 22
"""Elements per all-reduce bucket."""


class DataParallel(Ranks):
    """One of several processes, each with all weights."""

    def __init__(self) -> None:
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.idle = False
        """Whether this rank has no rows of the current batch."""

    def device(self, name: str) -> torch.device:
        if name != "cuda":
            return torch.device(name)
        if torchrun.local_rank() >= torch.cuda.device_count():
            what = f"there are {torch.cuda.device_count()} GPUs here, too few for one per rank"
            raise InputError(what, hint="start fewer ranks, or use --device cpu")
        return torch.device("cuda", torchrun.local_rank())

    def rows(self, count: int) -> slice:
        begin, end = self._bounds(self.rank, count)
        return slice(begin, end) if end > begin else slice(0, 1)

    def _bounds(self, rank: int, count: int) -> tuple[int, int]:
        return rank * count // self.world_size, (rank + 1) * count // self.world_size

    def _is_idle(self, rank: int, count: int) -> bool:
        begin, end = self._bounds(rank, count)
        return begin == end

    def local_batch(self, batch: Any) -> tuple[Any, LossReduction]:
        rows = len(batch)
        self.idle = self._is_idle(self.rank, rows)
        return batch.select(self.rows(rows)), RankReduction(self)

    def total(self, value: float) -> float:
        tensor = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(tensor)
        return float(tensor)

    def broadcast(self, value: Value) -> Value:
        values = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]

    def stop_signal(self, name: str) -> str:
        number = torch.tensor([signal.Signals[name].value if name else 0])
        dist.all_reduce(number, dist.ReduceOp.MAX)
        return signal.Signals(int(number)).name if int(number) else ""

    def barrier(self) -> None:
        self.total(0.0)

    def distribute(self, model: nn.Module, device: torch.device) -> RunWithWeights:
        for module in model.modules():
            if isinstance(module, BatchNorm):
                module.moments = self.moments
            elif isinstance(module, Experts | Routing):
                module.added = self.sum_counts
        with torch.no_grad():
            for tensor in model.state_dict().values():
                dist.broadcast(tensor, src=0)
        return run_directly

    def reduced_gradients(self, model: nn.Module) -> list[Tensor]:
        """A gradient missing on some ranks counts as zero there; one missing on all ranks stays missing."""
        trained = [p for p in model.parameters() if p.requires_grad]
        present = torch.tensor([p.grad is not None for p in trained], dtype=torch.uint8)
        dist.all_reduce(present, dist.ReduceOp.MAX)
        for parameter, somewhere in zip(trained, present.tolist(), strict=True):
            if somewhere and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        gradients = gradients_of(model)
        all_reduce(gradients)
        return gradients

    def sum_counts(self, counts: Tensor) -> Tensor:
        """Sum over the rows of all ranks: the counts of experts, the sums of clusters."""
        total = counts.detach() * (0.0 if self.idle else 1.0)
        dist.all_reduce(total)
        return total

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor, int]:
        """Return the mean and variance over the rows of all ranks and their number, for batch normalisation."""
        weight = 0.0 if self.idle else 1.0
        rows = int(self.total(weight * len(x)))
        mean: Tensor = _AllReduceSum.apply(weight * x.sum(0)) / rows  # type: ignore[no-untyped-call]
        squares = weight * (x - mean).square().sum(0)
        variance: Tensor = _AllReduceSum.apply(squares) / rows  # type: ignore[no-untyped-call]
        return mean, variance, rows

    def evaluate(
        self, with_weights: RunWithWeights, evaluate: Evaluate, interrupts: Interrupts
    ) -> dict[str, float] | None:
        """All ranks evaluate, each its part if the data can be divided; the first rank's measures count."""
        return self.broadcast(super().evaluate(with_weights, partial(evaluate, ranks=self), interrupts))

    def sample(self, with_weights: RunWithWeights, sample: Callable[[], str]) -> str:
        return super().sample(with_weights, sample) if self.first else ""

    def gather_state(self, state: State | None, rows: int) -> State | None:
        if state is None:
            return None
        states = self._gather(state.map(lambda tensor: tensor.cpu()))
        if not states:
            return None
        return type(state).joined([part for rank, part in enumerate(states) if not self._is_idle(rank, rows)])

    def _gather(self, value: Any) -> list[Any]:
        """Gather a value of each rank on the first; the others get an empty list."""
        values: list[Any] | None = [None] * self.world_size if self.first else None
        dist.gather_object(value, values)
        return values or []

    def local_state(self, state: State, rows: int) -> State:
        local = self.rows(rows)
        return state.rows(torch.arange(local.start, local.stop))

    def random_states(self) -> Tensors:
        states = self._gather(get_random_state())
        return {
            f"{rank}.{name}": value for rank, tensors in enumerate(states) if rank for name, value in tensors.items()
        }

    def set_random_state(self, saved: Tensors, step: int) -> None:
        if self.first:
            return
        ranks = {int(name.partition(".")[0]) for name in saved}
        if len(ranks) == self.world_size - 1:
            prefix = f"{self.rank}."
            own = {name.removeprefix(prefix): value for name, value in saved.items() if name.startswith(prefix)}
            set_random_state(own)
        else:  # saved with another number of ranks
            seed_everything(derive(torch.initial_seed(), "rank", self.rank, step))

    def checkpoints(self, folder: Path, keep: int) -> Checkpoints:
        return SharedCheckpoints(self, folder, keep)


class RankReduction(LossReduction):
    """Reduction over several ranks."""

    def __init__(self, ranks: DataParallel) -> None:
        self.ranks, self.idle = ranks, ranks.idle

    def scale_mean(self, mean: Tensor, count: Tensor | float) -> Tensor:
        """A rank without items adds 0, even though its mean is NaN."""
        local = 0.0 if self.idle else float(count)
        total = self.ranks.total(local)
        return mean * (local / total) if local else mean.nan_to_num(0.0, 0.0, 0.0) * 0.0

    def total(self, count: Tensor | float) -> float:
        return self.ranks.total(0.0 if self.idle else float(count))


class SharedCheckpoints(Checkpoints):
    """Checkpoints that the first rank writes and verifies, and that all ranks read."""

    def __init__(self, ranks: Ranks, folder: Path, keep: int = 2) -> None:
        super().__init__(folder, keep)
        self.ranks = ranks

    def save(self, checkpoint: Checkpoint, name: str = "") -> None:
        if self.ranks.first:
            super().save(checkpoint, name)
        self.ranks.barrier()

    def remove_stop(self) -> None:
        if self.ranks.first:
            super().remove_stop()
        self.ranks.barrier()

    def find_valid(self, paths: list[Path]) -> Path | None:
        return self.ranks.broadcast(super().find_valid(paths) if self.ranks.first else None)


class _AllReduceSum(torch.autograd.Function):
    """y = Σ_r x_r on every rank; each x_r is in the losses of all, so ∂x_r = Σ_r ∂y_r."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Sum over ranks."""
        y = x.clone()
        dist.all_reduce(y)
        return y

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Tensor:
        """Sum the gradients over ranks."""
        return _AllReduceSum.forward(ctx, grad_outputs[0])


def all_reduce(gradients: list[Tensor]) -> None:
    """Replace gradients by their sums over all ranks, in buckets."""
    buckets: list[list[Tensor]] = []
    for gradient in sorted(gradients, key=lambda tensor: str(tensor.dtype)):  # a stable sort: the same on all ranks
        last = buckets[-1] if buckets else []
        full = sum(tensor.numel() for tensor in last) + gradient.numel() > BUCKET_SIZE
        if not last or full or last[0].dtype != gradient.dtype:
            buckets.append([gradient])
        else:
            last.append(gradient)
    flat = [torch.cat([tensor.reshape(-1) for tensor in bucket]) for bucket in buckets]
    for work in [dist.all_reduce(tensor, async_op=True) for tensor in flat]:
        work.wait()
    for bucket, sums in zip(buckets, flat, strict=True):
        parts = torch.split(sums, [tensor.numel() for tensor in bucket])
        for gradient, part in zip(bucket, parts, strict=True):
            gradient.copy_(part.view_as(gradient))
