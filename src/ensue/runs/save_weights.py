"""Write the weights of a run as safetensors; shared ones are stored once."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from ensue.core.files import atomic_file
from ensue.core.run_folder import RunFolder
from ensue.nn.adapters import trained_state

DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
BLOCK = 1 << 22
"""Bytes written at a time."""


def write_weights(model: torch.nn.Module, folder: RunFolder) -> None:
    """Write model.safetensors: every weight, or the adapters alone where they are beside weights in groups."""
    with atomic_file(folder.weights) as temporary:
        write_tensors(own_tensors(model), temporary)
        temporary.chmod(0o644)


def write_tensors(tensors: dict[str, torch.Tensor], path: Path) -> None:
    """Write a safetensors file block by block: the library would copy all tensors first, and n-gram tables may be
    memory-mapped files larger than memory. As in the library, wider types come first, then names in order."""
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name in order:
        tensor = tensors[name]
        size = tensor.numel() * tensor.element_size()
        offsets = [offset, offset + size]
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": offsets}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            tensor = tensors[name].detach().cpu().contiguous()
            flat = tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)  # a scalar may have any stride
            for start in range(0, len(flat), BLOCK):
                file.write(flat[start : start + BLOCK].numpy().data)


def own_tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """What training changes in a model, shared weights once."""
    first: dict[int, str] = {}
    state = trained_state(model)
    for name, tensor in state.items():
        first.setdefault(tensor.data_ptr() if tensor.numel() else id(tensor), name)
    return {name: state[name].contiguous() for name in first.values()}
