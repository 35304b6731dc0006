"""What each of many ranks would hold of a model, from a real sharding of it among ranks that are not there.

Every block is a group, and so is all that is in none (embeddings, the output layer). FSDP2 cuts each parameter of a
group into as many parts as there are ranks, here with torch's fake process group, on the meta device: the parts are
those that a run would have, padding included. Groups that are alike are cut once and counted as often as they occur.

    held       a rank's part of weights, of their gradients and of what the optimiser remembers
    gathered   a group's weights, whole, while it computes; those of the next one, which is being fetched; and a group's
               gradients, whole, until they are summed over the ranks and cut again
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

MOST = 65536
"""Ranks, at the most."""


@dataclass(frozen=True, slots=True)
class Sharded:
    """A model among ranks."""

    ranks: int
    parameters: int
    """Of the rank that holds most."""
    groups: int
    largest: int
    """Parameters of the largest group, whole."""

    def gathered(self, width: int) -> int:
        """Bytes of what is whole at a time, each number so many bytes wide: weights of two groups, gradients of one."""
        return 3 * self.largest * width


def shard(build: Callable[[], nn.Module], ranks: int) -> Sharded:
    """Cut a model's parameters among so many ranks."""
    if not 1 <= ranks <= MOST:
        raise InputError(f"{ranks} ranks are not between 1 and {MOST}")
    with torch.device("meta"):
        model = build()
    counts: dict[tuple[Any, ...], int] = {}
    units: dict[tuple[Any, ...], nn.Module] = {}
    for many in list(_outermost(model)):
        for place, unit in enumerate(many):
            shapes = tuple((name, tuple(p.shape)) for name, p in unit.named_parameters())
            if not shapes:
                continue
            counts[shapes] = counts.get(shapes, 0) + 1
            if units.setdefault(shapes, unit) is not unit:
                many[place] = nn.Identity()
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
    return Sharded(ranks, parts, sum(counts.values()) + (rest > 0), max([*sizes, rest]))


def _outermost(module: nn.Module) -> Iterator[nn.ModuleList]:
    """The lists of layers that are in no other."""
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
    """So many ranks, of which this process is the first and the others are not there."""
    if dist.is_initialized():
        raise InputError("this process is one of several ranks already", hint="run `ensue cost` without torchrun")
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=count)
    try:
        yield init_device_mesh("cpu", (count,))
    finally:
        dist.destroy_process_group()
