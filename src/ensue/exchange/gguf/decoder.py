"""Weights of language models in GGUF files: the maps of names are data.

A map is their name → our name. The queries, keys and values of a block are one matrix in ours, in that order. Weights
stay as they are: blocks become groups (``ensue.kernels.grouped``) of the same numbers, only plain numbers become
float32. Gemma's norms, which multiply by 1 + w, are stored as 1 + w. Its scale of queries becomes part of their norm,
or in Gemma 2, which has none, of the rows that make queries: of their scales and offsets where they are groups.

The files of Llama and Mistral hold the rows of queries and keys in another order: a rotation turns neighbours (2j,
2j + 1) there, and (j, j + d/2) in ours and in the files of Qwen and Gemma.

Legend: d head width, H heads, G key–value heads.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ensue.core.errors import InputError
from ensue.exchange.gguf.blocks import Groups
from ensue.exchange.gguf.file import GGUFFile
from ensue.exchange.gguf.settings import ARCHITECTURE, ARCHITECTURES, FREQUENCIES, query_factor
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
NORM_QUERY = "blocks.*.attention.norm_query"
QK_NORM = {"blk.*.attn_q_norm": NORM_QUERY, "blk.*.attn_k_norm": "blocks.*.attention.norm_key"}
SANDWICH = {"blk.*.post_attention_norm": "blocks.*.norm_mixed", "blk.*.post_ffw_norm": "blocks.*.norm_fed"}


def weight_names(config: LlamaConfig, layer: int | None) -> dict[str, str]:
    """Return the names of a block's weights, theirs → ours; with None those outside of blocks."""
    names = NAMES | (QK_NORM if config.qk_norm else {}) | (SANDWICH if config.norm == "sandwich-rms" else {})
    if config.tied:
        names = {theirs: ours for theirs, ours in names.items() if theirs != "output"}
    if layer is None:
        return {theirs: ours for theirs, ours in names.items() if "*" not in theirs}
    number = str(layer)
    return {t.replace("*", number): o.replace("*", number) for t, o in names.items() if "*" in t}


def decoder_tensors(file: GGUFFile, config: LlamaConfig) -> dict[str, Tensor]:
    """Return the weights of a file under our names: plain ones in float32, blocks as groups in panels."""
    tensors: dict[str, Tensor] = {}
    used = {FREQUENCIES}
    architecture = file.text(ARCHITECTURE)
    neighbours = ARCHITECTURES[architecture].rotates_neighbours
    heads = (config.heads, config.kv_heads or config.heads, 0) if neighbours else (0, 0, 0)
    factor = query_factor(config, architecture)
    for layer in (None, *range(config.layers)):
        for theirs, ours in weight_names(config, layer).items():
            used |= {f"{theirs}.weight"}
            tensors |= _named(ours, [_part(file, f"{theirs}.weight", 0)])
        if layer is None:
            continue
        names = [name.replace("*", str(layer)) for name in QKV]
        for end in ("weight", "bias") if config.qkv_bias else ("weight",):
            used |= {f"{name}.{end}" for name in names}
            parts = [_part(file, f"{name}.{end}", count) for name, count in zip(names, heads)]
            _check_inputs(file, [f"{name}.{end}" for name in names])
            parts[0] = parts[0] if config.qk_norm else scaled(parts[0], factor)
            tensors |= _named(PROJECT.replace("*", str(layer)), parts, end)
    extra = sorted(set(file.tensors) - used)
    if extra:
        raise InputError(f"has tensors that its architecture does not have, e.g. {extra[0]}", where=str(file.path))
    for layer in range(config.layers) if factor != 1.0 else ():
        name = f"{NORM_QUERY.replace('*', str(layer))}.weight"
        tensors |= {name: tensors[name] * factor} if name in tensors else {}
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
        plain = _ordered(file.tensor(name), heads, name, file)
        _check_finite(file, name, plain)
        return plain
    with np.errstate(all="ignore"):  # what is not finite is refused in the next line
        groups = split(file.blocks(name))
    _check_finite(file, name, groups.scales, groups.offsets)
    codes, scales, offsets = (None if one is None else _ordered(one, heads, name, file) for one in groups[:3])
    assert codes is not None and scales is not None
    return Groups(codes, scales, offsets, groups.bits)


def scaled(part: Part, factor: float) -> Part:
    """A tensor times ``factor``."""
    if factor == 1.0:
        return part
    share = np.float32(factor)
    if isinstance(part, np.ndarray):
        return part * share
    return Groups(part.codes, part.scales * share, None if part.offsets is None else part.offsets * share, part.bits)


def _check_finite(file: GGUFFile, name: str, *numbers: np.ndarray | None) -> None:
    if not all(one is None or np.isfinite(one).all() for one in numbers):
        what = f"is damaged: {name} holds NaN or infinite values"
        raise InputError(what, where=str(file.path), hint="download it again")


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
    with np.errstate(over="ignore"):
        short = all(np.array_equal(one.astype(np.float16).astype(np.float32), one) for one in shares)
    stored = [torch.from_numpy(one.astype(np.float16 if short else np.float32)) for one in shares]
    return torch.from_numpy(codes), stored[0], stored[1] if len(stored) > 1 else None
