"""Sharded training (FSDP2): every rank holds a part of the weights, the gradients and the optimiser's state.

torch.distributed.fsdp splits every parameter along its first dimension into one part per rank. A unit (a block of a
model, or everything outside its blocks) gathers its weights before it is used and frees the other ranks' parts after;
the backward pass sums gradients and splits them. So a model needs 1/n of the memory on each rank, plus one block.

The blocks of a model are the modules in its ``nn.ModuleList``s, except a mixture's experts: all ranks must gather a
unit together, and a rank may have no token for some expert. A unit gathers its weights when its ``forward`` is called.
Other entry points are listed in its class as ``entries``: methods, which then gather its weights too, or submodules,
which become units themselves. Objectives and measures call the model in many ways (``loss``, ``log_prob``,
``pair_loss``, …), so every call passes through the ``forward`` of ``RootUnit``.
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
from ensue.core.files import DISK_FULL_HINT, atomic_folder
from ensue.nn.experts import Experts
from ensue.nn.trunk import Trunk
from ensue.train.checkpoints import SHARDS, Checkpoint, Checkpoints, Tensors
from ensue.train.data_parallel import DataParallel, SharedCheckpoints
from ensue.train.interrupts import Interrupts
from ensue.train.optimisers import gradients_of, restore_optimiser
from ensue.train.ranks import Evaluate, Ranks, RunWithWeights

MAX_GATHERED_BYTES = 1 << 28
"""Models up to this size are gathered once for a whole evaluation; larger ones block by block."""
SHARDED_GROUPS = ("model", "optimiser")
"""The groups of a checkpoint's tensors of which each rank writes its part."""


class RootUnit(nn.Module):
    """The FSDP unit of everything outside a model's blocks; its ``forward`` runs any callable that uses the model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, function: Callable[[], Any]) -> Any:
        """Call the function."""
        return function()


class ShardedDataParallel(DataParallel):
    """One of several processes, each with a part of the weights."""

    def distribute(self, model: nn.Module, device: torch.device) -> RunWithWeights:
        """Shard the model in place."""
        super().distribute(model, device)
        # units often return views, which must not be changed in place; ours are not
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view", category=UserWarning)
        mesh = init_device_mesh(device.type, (self.world_size,))
        for block in shard_units(model):
            fully_shard(block, mesh=mesh, reshard_after_forward=True)
            for name in getattr(block, "entries", ()):
                if not isinstance(getattr(block, name), nn.Module):
                    register_fsdp_forward_method(block, name)
        root: Any = fully_shard(RootUnit(model), mesh=mesh, reshard_after_forward=False)
        units: list[FSDPModule] = [module for module in root.modules() if isinstance(module, FSDPModule)]
        for unit in units:
            unit.set_gradient_divide_factor(1.0)  # each loss is a term of the global mean: gradients are summed
            unit.set_force_sum_reduction_for_comms(True)
            unit.unshard()  # allocates outside inference mode, whose tensors could not be trained
            unit.reshard()
        small = sum(parameter.nbytes for parameter in model.parameters()) <= MAX_GATHERED_BYTES

        def with_weights(function: Callable[[], Any]) -> Any:
            if torch.is_grad_enabled():
                return root(function)
            for unit in units[1:]:
                unit.set_reshard_after_forward(not small, recurse=False)
            result = root(function)
            for unit in units:
                unit.reshard()
                unit.set_reshard_after_forward(unit is not root, recurse=False)
            return result

        return with_weights

    def reduced_gradients(self, model: nn.Module) -> list[Tensor]:
        """Return this rank's parts, which FSDP has summed."""
        return [local_part(gradient) for gradient in gradients_of(model)]

    def gradient_norm(self, gradients: list[Tensor]) -> float:
        local = super().gradient_norm(gradients) if gradients else 0.0
        return float(self.total(local**2) ** 0.5)

    def evaluate(
        self, with_weights: RunWithWeights, evaluate: Evaluate, interrupts: Interrupts
    ) -> dict[str, float] | None:
        with torch.no_grad():
            return super().evaluate(with_weights, evaluate, interrupts)

    def sample(self, with_weights: RunWithWeights, sample: Callable[[], str]) -> str:
        with torch.no_grad():
            return Ranks.sample(self, with_weights, sample)

    def checkpoints(self, folder: Path, keep: int) -> Checkpoints:
        return ShardedCheckpoints(self, folder, keep)

    def restore(self, model: nn.Module, optimiser: torch.optim.Optimizer, checkpoint: Checkpoint) -> None:
        """Read this rank's parts of a checkpoint, which any number of ranks may have written."""
        assert checkpoint.path is not None
        weights = dict(model.state_dict())
        read_group(checkpoint.path, "model", weights)
        model.load_state_dict(weights)
        state = empty_optimiser_state(optimiser, checkpoint.path)
        read_group(checkpoint.path, "optimiser", state)
        restore_optimiser(optimiser, state)

    def full_copy(self, model: nn.Module) -> nn.Module:
        """Return a copy on the first rank."""
        return copy.deepcopy(model) if self.first else model

    def copy_full_weights(self, model: nn.Module, full: nn.Module) -> None:
        target = full.state_dict() if self.first else {}
        for name, value in model.state_dict().items():
            tensor = value.full_tensor() if isinstance(value, DTensor) else value
            if self.first:
                target[name].copy_(tensor)


class ShardedCheckpoints(SharedCheckpoints):
    """Checkpoints to which each rank adds its part, in safetensors as all others (DCP)."""

    skipped_groups = SHARDED_GROUPS

    def save(self, checkpoint: Checkpoint, name: str = "") -> None:
        """The first rank creates the folder and renames it when all parts are written."""
        path = self.folder / (name or f"step-{checkpoint.step:08d}")
        sharded = {group: held for group, held in checkpoint.tensors.items() if group in SHARDED_GROUPS and held}
        rest = {group: held for group, held in checkpoint.tensors.items() if group not in sharded}
        if not self.ranks.first:
            self._write_parts(Path(self.ranks.broadcast("")), sharded)
        else:
            with atomic_folder(path) as temporary:
                self._write_parts(Path(self.ranks.broadcast(str(temporary))), sharded)
                self.write_files(temporary, Checkpoint(checkpoint.step, rest, checkpoint.progress))
            self.remove_old()
        self.ranks.barrier()

    def _write_parts(self, folder: Path, groups: dict[str, Tensors]) -> None:
        for group, tensors in groups.items():
            writer = HuggingFaceStorageWriter(str(folder / f"{group}{SHARDS}"), save_distributed=True)
            copies = {name: value.detach().clone() for name, value in tensors.items()}  # tied weights are written twice
            try:
                save(copies, storage_writer=writer)
            except CheckpointException as error:  # an error on any rank is raised on all
                rank, (cause, _) = next(iter(error.failures.items()))
                what = f"rank {rank} cannot write its part ({str(cause).strip().splitlines()[0]})"
                raise InputError(what, where=str(self.folder), hint=DISK_FULL_HINT) from cause


def shard_units(model: nn.Module) -> list[nn.Module]:
    """Return the modules that become FSDP units, inner ones first: blocks and entry points that share no weights.

    A block that several layers run stays with the rest of its model: it is used again before its gradient is whole.
    """
    modules = list(model.modules())
    entries = [getattr(module, name) for module in modules for name in getattr(module, "entries", ())]
    experts = [module.experts for module in modules if isinstance(module, Experts)]  # not used by all ranks
    lists = [one for one in modules if isinstance(one, nn.ModuleList) and not (isinstance(one, Trunk) and one.shares)]
    blocks = [block for module in lists if not any(module is other for other in experts) for block in module]
    owners: dict[Tensor, int] = {}
    for _, module in model.named_modules(remove_duplicate=False):  # blocks may share a module too
        for parameter in module.parameters(recurse=False):
            owners[parameter] = owners.get(parameter, 0) + 1
    ordered = [module for module in modules if any(module is other for other in (*blocks, *entries))]
    with_weights = (module for module in reversed(ordered) if any(True for _ in module.parameters()))
    return [module for module in with_weights if all(owners[parameter] == 1 for parameter in module.parameters())]


def local_part(tensor: Tensor) -> Tensor:
    """Return this rank's part of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def empty_optimiser_state(optimiser: torch.optim.Optimizer, path: Path) -> Tensors:
    """Return zeros for the optimiser state in a checkpoint, sharded as their parameters are."""
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    state: Tensors = {}
    for name, size, dtype in tensor_specs(path, "optimiser"):
        parameter = parameters[int(name.partition(".")[0])]
        alike = size == parameter.shape
        state[name] = torch.zeros_like(parameter, dtype=dtype) if alike else torch.zeros(size, dtype=dtype)
    return state


def tensor_specs(path: Path, group: str) -> list[tuple[str, torch.Size, torch.dtype]]:
    """Return the names, full shapes and dtypes of the tensors of a checkpoint's group."""
    if (path / f"{group}{SHARDS}").is_dir():
        specs: Any = HuggingFaceStorageReader(str(path / f"{group}{SHARDS}")).read_metadata().state_dict_metadata
        return [(name, spec.size, spec.properties.dtype) for name, spec in specs.items()]
    with safe_open(path / f"{group}.safetensors", framework="pt") as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        return [(name, torch.Size(part.get_shape()), file.get_tensor(name).dtype) for name, part in slices.items()]


def read_group(path: Path, group: str, tensors: Tensors) -> None:
    """Read a group of a checkpoint into existing tensors, of each this rank's part only."""
    if (path / f"{group}{SHARDS}").is_dir():
        reader = HuggingFaceStorageReader(str(path / f"{group}{SHARDS}"))
        load({name: value.detach() for name, value in tensors.items()}, storage_reader=reader)
        return
    with safe_open(path / f"{group}.safetensors", framework="pt") as file, torch.no_grad():
        for name, value in tensors.items():
            part = local_slices(value)
            local_part(value).copy_(file.get_slice(name)[part] if part else file.get_tensor(name))


def local_slices(tensor: Tensor) -> tuple[slice, ...]:
    """Return the slices of the full tensor that this rank holds."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    if not isinstance(tensor, DTensor):
        return tuple(slice(0, size) for size in tensor.shape)
    shape, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return tuple(slice(begin, begin + size) for begin, size in zip(offset, shape, strict=True))
