"""Weights of decoder-only language models: which of their tensors make which of ours, row by row.

    ours = (theirs + added) · factor

A matrix of ours may be several of theirs, one below the other: queries, keys and values. Gemma's norms multiply by
1 + w, so ``added`` is 1 there; ``factor`` holds its scale of queries, in their norm or in their projection. Nothing is
held as a whole: ``row_pieces`` reads some rows at a time, and ``their_pieces`` decodes some rows at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ensue.core.errors import InputError
from ensue.exchange.tensor_files import DTYPES, StoredTensors, TensorPlan, listed
from ensue.kernels.grouped import FILLED, GroupedWeight
from ensue.models.llama import LlamaConfig

PIECE = 1 << 23
"""Numbers in memory at once, about; 32 MB in float32."""
FLOATS = {name for dtype, name in DTYPES.items() if dtype.is_floating_point}
BUFFERS = (".rotary_emb.inv_freq",)
"""Suffixes of tensors that are computed, not trained."""
HEAD = "lm_head.weight"
BODY = {
    "embed": ("model.embed_tokens",),
    "norm": ("model.norm",),
    "blocks.*.attention.project": tuple(f"model.layers.*.self_attn.{one}_proj" for one in "qkv"),
    "blocks.*.attention.out": ("model.layers.*.self_attn.o_proj",),
    "blocks.*.attention.norm_query": ("model.layers.*.self_attn.q_norm",),
    "blocks.*.attention.norm_key": ("model.layers.*.self_attn.k_norm",),
    "blocks.*.feed.gate": ("model.layers.*.mlp.gate_proj",),
    "blocks.*.feed.up": ("model.layers.*.mlp.up_proj",),
    "blocks.*.feed.down": ("model.layers.*.mlp.down_proj",),
    "blocks.*.norm_attention": ("model.layers.*.input_layernorm",),
    "head": ("lm_head",),
}
BEFORE = {"blocks.*.norm_feed": ("model.layers.*.post_attention_layernorm",)}
SANDWICH = {
    "blocks.*.norm_mixed": ("model.layers.*.post_attention_layernorm",),
    "blocks.*.norm_feed": ("model.layers.*.pre_feedforward_layernorm",),
    "blocks.*.norm_fed": ("model.layers.*.post_feedforward_layernorm",),
}


class Origin(NamedTuple):
    """What one of our tensors is made of."""

    parts: tuple[str, ...]
    """Names of theirs, one below the other."""
    added: float = 0.0
    factor: float = 1.0
    """Of the first part."""


def origins(names: Iterable[str], config: LlamaConfig, query_factor: float = 1.0) -> dict[str, Origin]:
    """Return what each of our tensors, given by name, is made of; a shared one is left out the second time."""
    sandwich = config.norm == "sandwich-rms"
    theirs = BODY | (SANDWICH if sandwich else BEFORE)
    found = {}
    for name in names:
        if name.startswith("head.") and config.tied:
            continue
        layer, _, end = name.rpartition(".")
        number = layer.split(".")[1] if layer.startswith("blocks.") else ""
        pattern = layer.replace(f".{number}.", ".*.", 1) if number else layer
        parts = tuple(f"{part.replace('*', number)}.{end}" for part in theirs[pattern])
        norm = "norm" in pattern.rpartition(".")[2] and sandwich
        queries = "attention.norm_query" if config.qk_norm else "attention.project"
        factor = query_factor if pattern.endswith(queries) else 1.0
        found[name] = Origin(parts, 1.0 if norm else 0.0, factor)
    return found


def check_tensors(stored: StoredTensors, needed: Mapping[str, Origin], model: nn.Module, config: LlamaConfig) -> None:
    """Raise InputError for tensors that are missing, unexpected, not floats, or of another size."""
    where, own = str(stored.path), model.state_dict()
    parts = {part: ours for ours, origin in needed.items() for part in origin.parts}
    if missing := [name for name in parts if name not in stored.tensors]:
        raise InputError(f"tensors are missing: {listed(missing)}", where=where)
    spare = {HEAD} if config.tied else set()
    extra = sorted(name for name in set(stored.tensors) - set(parts) - spare if not name.endswith(BUFFERS))
    if extra:
        raise InputError(f"tensors that its class does not have: {listed(extra)}", where=where)
    for name in parts:
        if stored.tensors[name].dtype not in FLOATS:
            what = f"{name} is stored as {stored.tensors[name].dtype}, and should be float32, float16 or bfloat16"
            raise InputError(what, where=where)
    for ours, origin in needed.items():
        shapes = [stored.tensors[part].shape for part in origin.parts]
        same = all(shape[1:] == shapes[0][1:] and shape for shape in shapes)
        joined = (sum(shape[0] for shape in shapes), *shapes[0][1:]) if same else ()
        if joined != tuple(own[ours].shape) or shapes != _split_shapes(tuple(own[ours].shape), len(shapes), config):
            what = f"{listed(origin.parts)}: the sizes, e.g. {shapes[0]}, are not those that config.json gives"
            raise InputError(what, where=where)


def _split_shapes(shape: tuple[int, ...], parts: int, config: LlamaConfig) -> list[tuple[int, ...]]:
    """The shapes of the parts of one of our tensors: queries, keys and values, or all of it."""
    if parts == 1:
        return [shape]
    d = config.head_width or config.hidden // config.heads
    return [(heads * d, *shape[1:]) for heads in (config.heads, *[config.kv_heads or config.heads] * 2)]


def piece_rows(shape: tuple[int, ...]) -> int:
    """How many rows of a tensor are in memory at once: whole panels of weights in groups."""
    width = torch.Size(shape[1:]).numel() or 1
    return max(FILLED, PIECE // width // FILLED * FILLED)


def row_pieces(stored: StoredTensors, origin: Origin) -> Iterator[Tensor]:
    """Yield one of our tensors, some rows at a time and in float32; raise InputError for NaN and infinite values."""
    shapes = [stored.tensors[part].shape for part in origin.parts]
    step = piece_rows(shapes[0])
    held: list[Tensor] = []
    for number, (part, shape) in enumerate(zip(origin.parts, shapes)):
        factor = origin.factor if number == 0 else 1.0
        for start in range(0, shape[0], step):
            rows = stored.rows(part, start, min(shape[0], start + step)).float()
            if not bool(rows.isfinite().all()):
                what = f"tensors hold NaN or infinite values: {part}"
                raise InputError(what, where=str(stored.path), hint="save or download the model again")
            held.append((rows + origin.added) * factor if origin.added or factor != 1.0 else rows)
            if sum(map(len, held)) >= step:
                whole = torch.cat(held)
                yield whole[:step]
                held = [whole[step:]]
    last = torch.cat(held)
    if len(last):
        yield last


def their_plans(model: nn.Module, config: LlamaConfig, dtype: torch.dtype) -> list[TensorPlan]:
    """Return the tensors of a folder that is written of a model."""
    plans = []
    for name, origin in _weights(model, config).items():
        shapes = _split_shapes(_shape(model, name), len(origin.parts), config)
        plans += [TensorPlan(part, dtype, shape) for part, shape in zip(origin.parts, shapes)]
    return plans


def their_pieces(model: nn.Module, config: LlamaConfig, dtype: torch.dtype, plans: set[str]) -> Iterator[Tensor]:
    """Yield the tensors among ``plans`` in the order of ``their_plans``, some rows at a time."""
    for name, origin in _weights(model, config).items():
        start = 0
        for part, shape in zip(origin.parts, _split_shapes(_shape(model, name), len(origin.parts), config)):
            if part in plans:
                for first in range(start, start + shape[0], piece_rows(shape)):
                    last = min(start + shape[0], first + piece_rows(shape))
                    yield (_rows(model, name, first, last) - origin.added).to(dtype)
            start += shape[0]


def _weights(model: nn.Module, config: LlamaConfig) -> dict[str, Origin]:
    """Our weights and their counterparts; codes, scales and offsets of a layer are one weight."""
    names = (re.sub(r"\.(codes|scales|offsets)$", ".weight", name) for name in model.state_dict())
    return origins(dict.fromkeys(names), config)


def _shape(model: nn.Module, name: str) -> tuple[int, ...]:
    layer, end = _layer(model, name)
    if isinstance(layer, GroupedWeight) and end == "weight":
        return (layer.out_features, layer.in_features)
    return tuple(getattr(layer, end).shape)


def _rows(model: nn.Module, name: str, first: int, last: int) -> Tensor:
    """Some rows of a weight in float32."""
    layer, end = _layer(model, name)
    if not isinstance(layer, GroupedWeight) or end != "weight":
        found: Tensor = getattr(layer, end).detach()[first:last].float()
        return found
    return layer.some_rows(first, last - first)


def _layer(model: nn.Module, name: str) -> tuple[Any, str]:
    layer, _, end = name.rpartition(".")
    return model.get_submodule(layer), end
