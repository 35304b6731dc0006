"""The weights of a run, written once each."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from ensue.core.files import atomic_file
from ensue.core.run_folder import RunFolder

KINDS = {
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
"""Bytes that are written at once."""


def write_weights(model: torch.nn.Module, folder: RunFolder) -> None:
    """Write model.safetensors."""
    with atomic_file(folder.weights) as temporary:
        write_tensors(own_tensors(model), temporary)
        temporary.chmod(0o644)


def write_tensors(tensors: dict[str, torch.Tensor], path: Path) -> None:
    """A safetensors file, written a block at a time: the library would copy all tensors first, and tables of n-grams
    may be mapped files, larger than memory. As the library has it, wider types stand first, then names in order."""
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    place = 0
    for name in order:
        tensor = tensors[name]
        size = tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": KINDS[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [place, place + size],
        }
        place += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            held = tensors[name].detach().cpu().contiguous()
            flat = held.as_strided((held.numel(),), (1,)).view(torch.uint8)  # a single number may have any stride
            for at in range(0, len(flat), BLOCK):
                file.write(flat[at : at + BLOCK].numpy().data)


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
