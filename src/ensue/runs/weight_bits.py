"""Weights of a language model in 4 or 8 bits, or in float32 again; adapters become part of the weights.

    8 bits    W ≈ s c,        s = max|W| / 127              of each group, as in GGUF's Q8_0
    4 bits    W ≈ s c + o,    o = min W,  s = (max W − o) / 15        as in Q4_1

A layer is rounded only if it has more bits, or an adapter. In 32 bits nothing is rounded.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from ensue.kernels.grouped import GroupedEmbedding, GroupedLinear, GroupedWeight, group_weights
from ensue.nn.adapters import AdaptedLinear, replace_layer

GROUP = 32
"""Inputs of a group."""
CHOICES = (4, 8, 32)


def rounded(weight: Tensor, bits: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """Codes (out, G, group), scales and offsets (out, G) of a matrix (out, in).

    >>> codes, scales, offsets = rounded(torch.arange(32.0)[None] / 31 * 15, 4)
    >>> codes.shape, int(codes.max()), float(scales), float(offsets)
    (torch.Size([1, 1, 32]), 15, 1.0, 0.0)
    """
    groups = weight.detach().float().view(len(weight), -1, GROUP)
    if bits == 8:
        scales = (groups.abs().amax(-1) / 127).half()
        codes = groups / scales.float().clamp(min=torch.finfo(torch.float16).tiny)[..., None]
        return codes.round().clamp(-127, 127).to(torch.int8), scales, None
    offsets = groups.amin(-1).half()
    scales = ((groups.amax(-1) - offsets.float()) / 15).clamp(min=0).half()
    codes = (groups - offsets.float()[..., None]) / scales.float().clamp(min=torch.finfo(torch.float16).tiny)[..., None]
    return codes.round().clamp(0, 15).to(torch.uint8), scales, offsets


def with_bits(model: Any, bits: int) -> Any:
    """Return a copy of a language model whose weights have at most this number of bits, without adapters."""
    result = copy.deepcopy(model)
    inside = {f"{name}.base" for name, layer in result.named_modules() if isinstance(layer, AdaptedLinear)}
    tied = bool(getattr(result.config, "tied", False))
    for name, layer in list(result.named_modules()):
        if name not in inside and not (tied and name == "head"):
            new = _in_bits(layer, bits)
            if new is not layer:
                replace_layer(result, name, new)
    if tied:
        embed = result.embed
        if isinstance(embed, GroupedEmbedding):
            result.head = GroupedLinear(embed.codes, embed.scales, embed.offsets, embed.out_features)
        else:
            result.head = nn.Linear(embed.embedding_dim, embed.num_embeddings, bias=False, device="meta")
            result.head.weight = embed.weight
    return result.eval()


def _in_bits(layer: nn.Module, bits: int) -> nn.Module:
    """A layer with weights of at most this number of bits; the layer itself if it has none, or no more."""
    adapted, embeds = isinstance(layer, AdaptedLinear), isinstance(layer, nn.Embedding | GroupedEmbedding)
    if not (adapted or isinstance(layer, GroupedWeight) or type(layer) in (nn.Linear, nn.Embedding)):
        return layer
    given: Any = layer
    weight: Tensor = given.weight.detach()
    bias: Tensor | None = None if embeds or given.bias is None else given.bias.detach()
    own = getattr(layer, "bits", 32)
    if not adapted and (own == 32 if bits == 32 else own <= bits):
        return layer
    if bits == 32 or weight.shape[1] % GROUP:
        return _plain(weight, bias, embeds)
    parts = group_weights(*rounded(weight, bits))
    return GroupedEmbedding(*parts, len(weight)) if embeds else GroupedLinear(*parts, len(weight), bias)


def _plain(weight: Tensor, bias: Tensor | None, embeds: bool) -> nn.Module:
    """A layer with weights in float32."""
    if embeds:
        embedding = nn.Embedding(len(weight), weight.shape[1], device="meta")
        embedding.weight = nn.Parameter(weight.clone())
        return embedding
    layer = nn.Linear(weight.shape[1], len(weight), bias=bias is not None, device="meta")
    layer.weight = nn.Parameter(weight.clone())
    if bias is not None:
        layer.bias = nn.Parameter(bias.clone())
    return layer
