"""Write the weights of a run as safetensors; shared ones are stored once."""

from __future__ import annotations

from pathlib import Path

import torch

from ensue.core.files import atomic_file
from ensue.core.run_folder import RunFolder
from ensue.exchange.tensor_files import TensorPlan, write_stream
from ensue.nn.adapters import trained_state


def write_weights(model: torch.nn.Module, folder: RunFolder) -> None:
    """Write model.safetensors: every weight, or the adapters alone where they are beside weights in groups."""
    with atomic_file(folder.weights) as temporary:
        write_model(model, temporary)
        temporary.chmod(0o644)


def write_model(model: torch.nn.Module, path: Path) -> None:
    """Write a model's weights to a file; as in the library, wider types come first, then names in order."""
    tensors = own_tensors(model)
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    plans = [TensorPlan(name, tensors[name].dtype, tuple(tensors[name].shape)) for name in order]
    write_stream(plans, (tensors[name] for name in order), path)


def own_tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """What training changes in a model, shared weights once."""
    first: dict[int, str] = {}
    state = trained_state(model)
    for name, tensor in state.items():
        first.setdefault(tensor.data_ptr() if tensor.numel() else id(tensor), name)
    return {name: state[name].contiguous() for name in first.values()}
