"""Language models in GGUF files: the maps of names and settings are data.

A map is their name → (our name, part). The queries, keys and values of a block are one matrix in ours, in that order.
Weights stay as they are: blocks become groups (``ensue.kernels.grouped``) of the same numbers, only plain numbers
become float32.

The files of Llama and Mistral hold the rows of queries and keys in another order: a rotation turns neighbours (2j,
2j + 1) there, and (j, j + d/2) in ours.

Legend: d head width, H heads, G key–value heads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ensue.core.errors import InputError
from ensue.exchange.gguf.blocks import Groups
from ensue.exchange.gguf.file import GGUFFile
from ensue.kernels.grouped import group_weights
from ensue.models.llama import LlamaConfig

NAMES: dict[str, str] = {
    "token_embd": "embed",
    "output_norm": "norm",
    "output": "head",
    "blk.*.attn_norm": "blocks.*.norm_attention",
    "blk.*.attn_output": "blocks.*.attention.out",
    "blk.*.ffn_norm": "blocks.*.norm_feed",
    "blk.*.ffn_gate": "blocks.*.feed.gate",
    "blk.*.ffn_up": "blocks.*.feed.up",
    "blk.*.ffn_down": "blocks.*.feed.down",
}
QKV = ("blk.*.attn_q", "blk.*.attn_k", "blk.*.attn_v")
PROJECT = "blocks.*.attention.project"


@dataclass(frozen=True)
class Architecture:
    """A ``general.architecture`` that our model computes."""

    rotates_neighbours: bool
    """Whether its rows of queries and keys are in the other order."""
    qkv_bias: bool = False


ARCHITECTURES = {"llama": Architecture(True), "qwen2": Architecture(False, qkv_bias=True)}


def decoder_config(file: GGUFFile) -> LlamaConfig:
    """Return the settings of the model in a file."""
    name = file.text("general.architecture")
    if name not in ARCHITECTURES:
        what = f"the architecture {name[:40]!r} is not supported"
        raise InputError(what, where=str(file.path), hint=f"available: {', '.join(ARCHITECTURES)}")
    if "token_embd.weight" not in file.tensors:
        raise InputError("has no token_embd.weight", where=str(file.path))
    scaled = _value(file, f"{name}.rope.scaling.type", "none", str) != "none"
    if scaled or "rope_freqs.weight" in file.tensors or f"{name}.rope.scale_linear" in file.values:
        raise InputError("stretched rotary positions in a GGUF file are not supported", where=str(file.path))
    hidden, heads = _size(file, f"{name}.embedding_length"), _size(file, f"{name}.attention.head_count")
    width = _size(file, f"{name}.attention.key_length", hidden // heads)
    if _size(file, f"{name}.rope.dimension_count", width) != width:
        raise InputError("rotates a part of each head only, which is not supported", where=str(file.path))
    span = _size(file, f"{name}.attention.sliding_window", 0)
    layers = _size(file, f"{name}.block_count")
    if layers > len(file.tensors):
        raise InputError(f"has {layers:,} layers and {len(file.tensors):,} tensors", where=str(file.path))
    settings: dict[str, Any] = {
        "vocabulary": file.tensors["token_embd.weight"].shape[0],
        "layers": layers,
        "heads": heads,
        "kv_heads": _size(file, f"{name}.attention.head_count_kv", heads),
        "head_width": 0 if width * heads == hidden else width,
        "hidden": hidden,
        "inner": _size(file, f"{name}.feed_forward_length"),
        "context": _size(file, f"{name}.context_length"),
        "attention": f"local:span={span}" if span else "full",
        "rope_base": float(_value(file, f"{name}.rope.freq_base", 10000.0, float)),
        "epsilon": float(_value(file, f"{name}.attention.layer_norm_rms_epsilon", 1e-5, float)),
        "qkv_bias": ARCHITECTURES[name].qkv_bias,
        "tied": "output.weight" not in file.tensors,
    }
    try:
        return LlamaConfig(**settings)
    except InputError as error:
        raise InputError(f"its settings do not fit together: {error}", where=str(file.path)) from error


def decoder_tensors(file: GGUFFile, config: LlamaConfig) -> dict[str, Tensor]:
    """Return the weights of a file under our names: plain ones in float32, blocks as groups in panels."""
    tensors: dict[str, Tensor] = {}
    used: set[str] = set()
    neighbours = ARCHITECTURES[file.values["general.architecture"]].rotates_neighbours
    heads = (config.heads, config.kv_heads or config.heads, 0) if neighbours else (0, 0, 0)
    for layer in (None, *range(config.layers)):
        number = "" if layer is None else str(layer)
        for theirs, ours in NAMES.items():
            if ("*" in theirs) == (layer is not None) and not (theirs == "output" and config.tied):
                name = theirs.replace("*", number)
                used |= {f"{name}.weight"}
                tensors |= _named(ours.replace("*", number), [_part(file, f"{name}.weight", 0)])
        if layer is not None:
            names = [name.replace("*", number) for name in QKV]
            for end in ("weight", "bias") if config.qkv_bias else ("weight",):
                used |= {f"{name}.{end}" for name in names}
                parts = [_part(file, f"{name}.{end}", count) for name, count in zip(names, heads)]
                _check_inputs(file, [f"{name}.{end}" for name in names])
                tensors |= _named(PROJECT.replace("*", number), parts, end)
    extra = sorted(set(file.tensors) - used)
    if extra:
        raise InputError(f"has tensors that its architecture does not have, e.g. {extra[0]}", where=str(file.path))
    return tensors


Part = np.ndarray | Groups


def _part(file: GGUFFile, name: str, heads: int) -> Part:
    """A tensor: its groups, or plain numbers; with ``heads`` its rows in the order of ours."""
    if name not in file.tensors:
        raise InputError(f"has no {name}", where=str(file.path))
    split = file.tensors[name].format.split
    dimensions = 2 if split is not None or len(file.tensors[name].shape) > 1 else 1
    if len(file.tensors[name].shape) != dimensions:
        raise InputError(f"is damaged: {name} has the shape {file.tensors[name].shape}", where=str(file.path))
    if split is None:
        return _ordered(file.tensor(name), heads, name, file)
    groups = split(file.blocks(name))
    codes, scales, offsets = (None if one is None else _ordered(one, heads, name, file) for one in groups[:3])
    assert codes is not None and scales is not None
    return Groups(codes, scales, offsets, groups.bits)


def _ordered(rows: np.ndarray, heads: int, name: str, file: GGUFFile) -> np.ndarray:
    """Rows (H d, …) in which neighbours are turned, in the order in which (j, j + d/2) are."""
    if not heads:
        return rows
    if len(rows) % (2 * heads):
        raise InputError(f"{name} has {len(rows)} rows for {heads} heads", where=str(file.path))
    return rows.reshape(heads, -1, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def _check_inputs(file: GGUFFile, names: list[str]) -> None:
    """Raise InputError unless tensors have rows of the same length, so that they can be one matrix."""
    shapes = {file.tensors[name].shape[1:] for name in names}
    if len(shapes) > 1:
        raise InputError(f"is damaged: {' and '.join(names[:2])} have rows of different lengths", where=str(file.path))


def _named(ours: str, parts: list[Part], end: str = "weight") -> dict[str, Tensor]:
    """The tensors of one layer, from the parts side by side."""
    if any(isinstance(part, np.ndarray) for part in parts):
        plain = [part if isinstance(part, np.ndarray) else part.decoded() for part in parts]
        return {f"{ours}.{end}": torch.from_numpy(np.ascontiguousarray(np.concatenate(plain)))}
    codes, scales, offsets = _joined([part for part in parts if isinstance(part, Groups)])
    panels = group_weights(codes, scales, offsets)
    return {f"{ours}.{part}": one for part, one in zip(("codes", "scales", "offsets"), panels) if one is not None}


def _joined(parts: list[Groups]) -> tuple[Tensor, Tensor, Tensor | None]:
    """Groups side by side: where they differ, as 8 bits in the smallest groups, which hold the same numbers."""
    bits, group = max(part.bits for part in parts), min(part.codes.shape[-1] for part in parts)
    kind = np.uint8 if bits == 4 else np.int8
    repeats = [part.codes.shape[-1] // group for part in parts]
    codes = np.concatenate([part.codes.reshape(len(part.codes), -1, group).astype(kind) for part in parts])
    scales = np.concatenate([part.scales.repeat(times, axis=1) for part, times in zip(parts, repeats)])
    offsets = None
    if any(part.offsets is not None for part in parts):
        given = [np.zeros_like(part.scales) if part.offsets is None else part.offsets for part in parts]
        offsets = np.concatenate([one.repeat(times, axis=1) for one, times in zip(given, repeats)])
    shares = [one for one in (scales, offsets) if one is not None]
    short = all(np.array_equal(one.astype(np.float16).astype(np.float32), one) for one in shares)
    stored = [torch.from_numpy(one.astype(np.float16 if short else np.float32)) for one in shares]
    return torch.from_numpy(codes), stored[0], stored[1] if len(stored) > 1 else None


def _value(file: GGUFFile, key: str, default: Any, kind: type) -> Any:
    """A value of the metadata, of this type."""
    value = file.values.get(key, default)
    numbers = (int, float) if kind is float else (kind,)
    if value is None or isinstance(value, bool) or not isinstance(value, numbers):
        what = f"has no {key}" if value is None else f"{key} is {str(value)[:40]!r}"
        raise InputError(what, where=str(file.path))
    return value


def _size(file: GGUFFile, key: str, default: int | None = None) -> int:
    """A whole number of the metadata; all but those with a default of 0 must be above 0."""
    value = int(_value(file, key, default, int))
    if value < (1 if default != 0 else 0) or value >= 1 << 31:
        raise InputError(f"{key} is {value:,}", where=str(file.path))
    return value
