"""Apply the weight maps of ``families`` in both directions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from ensue.exchange.huggingface.families import POOLER, Family, WeightMap

PARAMETER_SUFFIXES = (".weight", ".bias")


def expand_map(names: WeightMap, layers: int, theirs: str = "", ours: str = "") -> WeightMap:
    """Expand a map to every layer and both suffixes, with prefixes for both names.

    >>> expand_map({"h.*.ln": ("blocks.*.norm", "")}, 1, ours="body.")
    {'h.0.ln.weight': ('body.blocks.0.norm.weight', ''), 'h.0.ln.bias': ('body.blocks.0.norm.bias', '')}
    """
    expanded: WeightMap = {}
    for left, (right, how) in names.items():
        for layer in range(layers if "*" in left else 1):
            for end in ("",) if left.endswith(PARAMETER_SUFFIXES) else PARAMETER_SUFFIXES:
                name = f"{theirs}{left}{end}".replace("*", str(layer))
                expanded[name] = (f"{ours}{right}{end}".replace("*", str(layer)), how)
    return expanded


def head_map(family: Family, heads: Iterable[str], pool: str = POOLER) -> WeightMap:
    """Return the map of some heads; ``pool`` is our name of the pooling layer."""
    names = {theirs: weight for head in heads for theirs, weight in expand_map(family.heads[head], 1).items()}
    return {theirs: (re.sub(f"^{POOLER}", pool, ours), how) for theirs, (ours, how) in names.items()}


def model_map(family: Family, layers: int, heads: Iterable[str], ours: str = "", pool: str = POOLER) -> WeightMap:
    """Return the map of a backbone, with ``ours`` as our prefix, and some heads."""
    return expand_map(family.body, layers, family.prefix, ours) | head_map(family, heads, pool)


def import_weights(names: WeightMap, weights: Mapping[str, Tensor], unused: int = 0) -> dict[str, Tensor]:
    """Convert their tensors to ours; ``unused`` rows at the start are removed from "cut" tensors."""
    parts: dict[str, list[Tensor]] = {}
    for theirs, (ours, how) in names.items():  # the parts of one tensor are in order
        weight = weights[theirs]
        if how == "T" and weight.dim() == 2:
            weight = weight.T
        elif how == "cut":
            weight = weight[unused:]
        parts.setdefault(ours, []).append(weight)
    return {ours: torch.cat(tensors) if len(tensors) > 1 else tensors[0] for ours, tensors in parts.items()}


def export_weights(names: WeightMap, weights: Mapping[str, Tensor], unused: int = 0) -> dict[str, Tensor]:
    """Convert our tensors to theirs; ``unused`` rows of zeros are added at the start of "cut" tensors."""
    exported: dict[str, Tensor] = {}
    for theirs, (ours, how) in names.items():
        weight = weights[ours]
        if how == "T" and weight.dim() == 2:
            weight = weight.T
        elif how == "cut":
            weight = torch.cat([weight.new_zeros(unused, weight.shape[1]), weight])
        elif "/" in how:
            number, count = map(int, how.split("/"))
            weight = weight.chunk(count)[number - 1]
        exported[theirs] = weight.detach().contiguous().clone()
    return exported
