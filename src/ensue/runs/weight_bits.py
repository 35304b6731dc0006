"""Weights of a language model in 4 or 8 bits, or in float32 again; adapters become part of the weights.

``ensue.kernels.grouped.quantise_groups`` has the equations. A layer is rounded only if it has more bits, or an adapter.
With 4 bits the embedding and the output layer get 8, as in ``ensue.exchange.stored_weights``. In 32 bits nothing is
rounded.
"""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor, nn

from ensue.exchange.stored_weights import LARGEST
from ensue.kernels.grouped import GROUP, GroupedEmbedding, GroupedLinear, GroupedWeight, group_weights, quantise_groups
from ensue.nn.adapters import AdaptedLinear, replace_layer

BITS = {"int4": 4, "int8": 8, "float32": 32}
"""How weights can be stored, and their bits."""


def with_bits(model: Any, bits: int) -> Any:
    """Return a copy of a language model whose weights have at most this number of bits, without adapters."""
    result = copy.deepcopy(model)
    inside = {f"{name}.base" for name, layer in result.named_modules() if isinstance(layer, AdaptedLinear)}
    tied = bool(getattr(result.config, "tied", False))
    for name, layer in list(result.named_modules()):
        if name not in inside and not (tied and name == "head"):
            new = _in_bits(layer, 8 if bits == 4 and f"{name}.weight" in LARGEST else bits)
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
    parts = group_weights(*quantise_groups(weight, bits))
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
