"""The weights of a run, written once each."""

from __future__ import annotations

import torch
from safetensors.torch import save_file

from ensue.core.files import whole_file
from ensue.core.run_folder import RunFolder


def write_weights(model: torch.nn.Module, folder: RunFolder) -> None:
    """Write model.safetensors."""
    with whole_file(folder.weights) as temporary:
        save_file(own_tensors(model), temporary, metadata={"format": "pt"})
        temporary.chmod(0o644)


def own_tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The state dict with shared weights stored once."""
    seen: dict[int, str] = {}
    result = {}
    for name, tensor in model.state_dict().items():
        key = tensor.data_ptr() if tensor.numel() else id(tensor)
        if key not in seen:
            seen[key] = name
            result[name] = tensor.contiguous()
    return result
