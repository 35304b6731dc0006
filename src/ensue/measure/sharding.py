"""Memory per rank of a sharded model, from a real sharding with a fake process group.

Every block is a group, and the rest (embeddings, output layer) is another. FSDP2 shards each parameter of a group over
the ranks, here on the meta device, so shards are those of a real run, padding included. Equal groups are sharded once
and counted as often as they occur.

    held       a rank's shard of weights, gradients and optimiser state
    gathered   the full weights of a group while it computes, those of the next one being prefetched, and the full
               gradients of a group until they are reduced
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ensue.core.errors import InputError

MAX_RANKS = 65536


@dataclass(frozen=True, slots=True)
class ShardedSize:
    """The size of a sharded model."""

    ranks: int
    parameters: int
    """Of the rank with the most."""
    groups: int
    largest: int
    """Parameters of the largest group, unsharded."""

    def gathered(self, width: int) -> int:
        """Bytes gathered at a time, ``width`` bytes per element: weights of two groups, gradients of one."""
        return 3 * self.largest * width


def shard(build: Callable[[], nn.Module], ranks: int) -> ShardedSize:
    """Shard a model's parameters over ``ranks``."""
    if not 1 <= ranks <= MAX_RANKS:
        raise InputError(f"{ranks} ranks are not between 1 and {MAX_RANKS}")
    with torch.device("meta"):
        model = build()
    counts: dict[tuple[Any, ...], int] = {}
    units: dict[tuple[Any, ...], nn.Module] = {}
    for blocks in list(_outermost(model)):
        for index, unit in enumerate(blocks):
            shapes = tuple((name, tuple(p.shape)) for name, p in unit.named_parameters())
            if not shapes:
                continue
            counts[shapes] = counts.get(shapes, 0) + 1
            if units.setdefault(shapes, unit) is not unit:
                blocks[index] = nn.Identity()
    parts, sizes = 0, []
    with _ranks(ranks) as mesh:
        from torch.distributed.fsdp import fully_shard

        for shapes, unit in units.items():
            sizes.append(sum(p.numel() for p in unit.parameters()))
            fully_shard(unit, mesh=mesh)
            parts += counts[shapes] * _local(unit)
        inside = {id(p) for unit in units.values() for p in unit.parameters()}
        rest = sum(p.numel() for p in model.parameters() if id(p) not in inside)
        fully_shard(model, mesh=mesh)
        parts += _local(model) - sum(_local(unit) for unit in units.values())
    return ShardedSize(ranks, parts, sum(counts.values()) + (rest > 0), max([*sizes, rest]))


def _outermost(module: nn.Module) -> Iterator[nn.ModuleList]:
    """The outermost module lists."""
    for part in module.children():
        if isinstance(part, nn.ModuleList):
            yield part
        else:
            yield from _outermost(part)


def _local(module: nn.Module) -> int:
    """Parameters of this rank."""
    return sum(p.to_local().numel() for p in module.parameters())  # type: ignore[attr-defined]


@contextmanager
def _ranks(count: int) -> Iterator[Any]:
    """A fake process group of ``count`` ranks, of which this process is the first."""
    if dist.is_initialized():
        raise InputError("this process is one of several ranks already", hint="run `ensue cost` without torchrun")
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=count)
    try:
        yield init_device_mesh("cpu", (count,))
    finally:
        dist.destroy_process_group()
