"""Ranks of which each keeps a part of all weights, of their gradients and of what the optimiser remembers.

FSDP2 (torch.distributed.fsdp) cuts every parameter along its first dimension into as many parts as there are ranks. A
unit, which is a block of a model or all that is in no block, gathers its weights before it is used, and gives back all
but its own part after; gradients are added up and cut on the way back. So a model takes 1/n of the memory on each rank,
and one block more.

Which blocks a model has is read off it: what stands in an ``nn.ModuleList``, but for a mixture's experts: a rank whose
tokens do not meet an expert does not use it, and a unit is gathered by all ranks or none. A unit gathers its weights
when its ``forward`` is called. What else is used of it from outside its class lists as ``entries``: methods, which then
gather its weights too, or parts, which are units of their own. The model as a whole is asked in many ways (``loss``,
``log_prob``, ``pair_loss``, whatever an objective or a measure needs), so what is asked passes through one ``forward``,
that of ``Whole``.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor

from ensue.core.errors import InputError
from ensue.core.files import ROOM, whole_folder
from ensue.nn.experts import Experts
from ensue.train.checkpoints import SHARDS, Checkpoint, Checkpoints, Tensors
from ensue.train.data_parallel import SharedCheckpoints, Together
from ensue.train.interrupts import Interrupts
from ensue.train.optimisers import gradients_of, restore_optimiser
from ensue.train.ranks import Ask, Measure, Ranks

KEPT = 1 << 28
"""The most bytes of a model that each rank gathers once for a whole evaluation, and not block by block: what is small
takes longer to ask for than to use."""
SPREAD = ("model", "optimiser")
"""The groups of tensors of a checkpoint that each rank writes its part of."""


class Whole(nn.Module):
    """All of a model as one unit: what is in no block is here while a question is answered."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, question: Callable[[], Any]) -> Any:
        """The answer."""
        return question()


class Sharded(Together):
    """One of several processes, each with a part of the weights."""

    def spread(self, model: nn.Module, device: torch.device) -> Ask:
        """Cut the model up where it is."""
        super().spread(model, device)
        # what a unit answers is often a view, which must not be changed in place; ours are not
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view", category=UserWarning)
        mesh = init_device_mesh(device.type, (self.count,))
        for block in units_of(model):
            fully_shard(block, mesh=mesh, reshard_after_forward=True)
            for name in getattr(block, "entries", ()):
                if not isinstance(getattr(block, name), nn.Module):
                    register_fsdp_forward_method(block, name)
        whole: Any = fully_shard(Whole(model), mesh=mesh, reshard_after_forward=False)
        units: list[FSDPModule] = [part for part in whole.modules() if isinstance(part, FSDPModule)]
        for unit in units:
            unit.set_gradient_divide_factor(1.0)  # losses are shares of the whole mean: they add up
            unit.set_force_sum_reduction_for_comms(True)
            unit.unshard()  # for once here, since what is made in inference mode cannot learn
            unit.reshard()
        small = sum(parameter.nbytes for parameter in model.parameters()) <= KEPT

        def ask(question: Callable[[], Any]) -> Any:
            if torch.is_grad_enabled():
                return whole(question)
            for unit in units[1:]:
                unit.set_reshard_after_forward(not small, recurse=False)
            found = whole(question)
            for unit in units:
                unit.reshard()
                unit.set_reshard_after_forward(unit is not whole, recurse=False)
            return found

        return ask

    def gradients(self, model: nn.Module) -> list[Tensor]:
        """This rank's parts; FSDP has added them up already."""
        return [local(gradient) for gradient in gradients_of(model)]

    def norm(self, gradients: list[Tensor]) -> float:
        own = super().norm(gradients) if gradients else 0.0
        return float(self.total(own**2) ** 0.5)

    def measured(self, ask: Ask, evaluate: Measure, wish: Interrupts) -> dict[str, float] | None:
        with torch.no_grad():
            return super().measured(ask, evaluate, wish)

    def written(self, ask: Ask, sample: Callable[[], str]) -> str:
        with torch.no_grad():
            return Ranks.written(self, ask, sample)

    def checkpoints(self, folder: Path, keep: int) -> Checkpoints:
        return ShardedCheckpoints(self, folder, keep)

    def take_up(self, model: nn.Module, optimiser: torch.optim.Optimizer, found: Checkpoint) -> None:
        """Read this rank's parts, whoever wrote the checkpoint, and from how many ranks."""
        assert found.path is not None
        weights = dict(model.state_dict())
        fill(found.path, "model", weights)
        model.load_state_dict(weights)
        held = remembered(optimiser, found.path)
        fill(found.path, "optimiser", held)
        restore_optimiser(optimiser, held)

    def kept_whole(self, model: nn.Module) -> nn.Module:
        """A copy, in the memory of the first rank's machine."""
        return copy.deepcopy(model) if self.first else model

    def give_whole(self, model: nn.Module, whole: nn.Module) -> None:
        own = whole.state_dict() if self.first else {}
        for name, value in model.state_dict().items():
            full = value.full_tensor() if isinstance(value, DTensor) else value
            if self.first:
                own[name].copy_(full)


class ShardedCheckpoints(SharedCheckpoints):
    """Checkpoints to which each rank adds its part, in safetensors as all others (DCP)."""

    not_read = SPREAD

    def save(self, checkpoint: Checkpoint, name: str = "") -> None:
        """The first rank makes the folder, and gives it its name when all parts are there."""
        path = self.folder / (name or f"step-{checkpoint.step:08d}")
        spread = {group: held for group, held in checkpoint.tensors.items() if group in SPREAD and held}
        rest = {group: held for group, held in checkpoint.tensors.items() if group not in spread}
        if not self.ranks.first:
            self._add(Path(self.ranks.agree("")), spread)
        else:
            with whole_folder(path) as temporary:
                self._add(Path(self.ranks.agree(str(temporary))), spread)
                self.fill(temporary, Checkpoint(checkpoint.step, rest, checkpoint.progress))
            self.remove_old()
        self.ranks.wait()

    def _add(self, folder: Path, groups: dict[str, Tensors]) -> None:
        for group, tensors in groups.items():
            writer = HuggingFaceStorageWriter(str(folder / f"{group}{SHARDS}"), save_distributed=True)
            own = {name: value.detach().clone() for name, value in tensors.items()}  # what is shared is written twice
            try:
                save(own, storage_writer=writer)
            except CheckpointException as error:  # what went wrong on some rank is told to all
                rank, (cause, _) = next(iter(error.failures.items()))
                what = f"rank {rank} cannot write its part ({str(cause).strip().splitlines()[0]})"
                raise InputError(what, where=str(self.folder), hint=ROOM) from cause


def units_of(model: nn.Module) -> list[nn.Module]:
    """The blocks of a model, and what in them is used from outside, inner ones first; none shares a weight."""
    named = (getattr(part, name) for part in model.modules() for name in getattr(part, "entries", ()))
    inside = [part for part in named if isinstance(part, nn.Module)]
    chosen = [part.experts for part in model.modules() if isinstance(part, Experts)]  # by tokens, so not by all ranks
    lists = [part for part in model.modules() if isinstance(part, nn.ModuleList)]
    blocks = [block for part in lists if not any(part is one for one in chosen) for block in part]
    owners: dict[Tensor, int] = {}
    for part in model.modules():
        for parameter in part.parameters(recurse=False):
            owners[parameter] = owners.get(parameter, 0) + 1
    ordered = [part for part in model.modules() if any(part is one for one in (*blocks, *inside))]
    fit = (part for part in reversed(ordered) if any(True for _ in part.parameters()))
    return [part for part in fit if all(owners[parameter] == 1 for parameter in part.parameters())]


def local(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def remembered(optimiser: torch.optim.Optimizer, path: Path) -> Tensors:
    """Room for what a checkpoint's optimiser holds, each as its parameter is spread."""
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    held: Tensors = {}
    for name, size, kind in names_in(path, "optimiser"):
        parameter = parameters[int(name.partition(".")[0])]
        like = size == parameter.shape
        held[name] = torch.zeros_like(parameter, dtype=kind) if like else torch.zeros(size, dtype=kind)
    return held


def names_in(path: Path, group: str) -> list[tuple[str, torch.Size, torch.dtype]]:
    """The tensors of a group in a checkpoint, with their whole sizes."""
    if (path / f"{group}{SHARDS}").is_dir():
        held: Any = HuggingFaceStorageReader(str(path / f"{group}{SHARDS}")).read_metadata().state_dict_metadata
        return [(name, one.size, one.properties.dtype) for name, one in held.items()]
    with safe_open(path / f"{group}.safetensors", framework="pt") as file:
        kinds = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        return [(name, torch.Size(one.get_shape()), file.get_tensor(name).dtype) for name, one in kinds.items()]


def fill(path: Path, group: str, tensors: Tensors) -> None:
    """Read a group of a checkpoint into tensors that are there: of each, this rank's part only."""
    if (path / f"{group}{SHARDS}").is_dir():
        reader = HuggingFaceStorageReader(str(path / f"{group}{SHARDS}"))
        load({name: value.detach() for name, value in tensors.items()}, storage_reader=reader)
        return
    with safe_open(path / f"{group}.safetensors", framework="pt") as file, torch.no_grad():
        for name, value in tensors.items():
            place = part_of(value)
            local(value).copy_(file.get_slice(name)[place] if place else file.get_tensor(name))


def part_of(tensor: Tensor) -> tuple[slice, ...]:
    """Which part of a whole tensor this rank has."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    if not isinstance(tensor, DTensor):
        return tuple(slice(0, size) for size in tensor.shape)
    shape, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return tuple(slice(begin, begin + size) for begin, size in zip(offset, shape, strict=True))
