"""Which tensors a folder must have, and under which names."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor

from ensue.core.errors import InputError
from ensue.exchange.huggingface.conversion import head_map, model_map
from ensue.exchange.huggingface.family import Family
from ensue.exchange.tensor_files import listed
from ensue.models.labelled import KINDS

OLD_SUFFIXES = {".gamma": ".weight", ".beta": ".bias"}
"""Old suffixes of layer norms."""


def rename_tensors(family: Family, blocks: int, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename tensors to the library's current names, with the backbone's prefix; buffers are dropped."""
    known = model_map(family, blocks, family.heads)
    renamed = {}
    for name, tensor in weights.items():
        for old, new in OLD_SUFFIXES.items():
            if name.endswith(old):
                name = name.removesuffix(old) + new
        for old, new in family.renamed.items():
            if name.startswith(old):
                name = new + name.removeprefix(old)
        if name.endswith(family.buffers) or name.startswith(family.ignored):
            continue
        renamed[family.prefix + name if name not in known and family.prefix + name in known else name] = tensor
    return renamed


def without_tied(family: Family, config: dict[str, Any], weights: dict[str, Tensor], where: str) -> dict[str, Tensor]:
    """Drop tied tensors; raise an error for one that should be tied and is not."""
    weights = dict(weights)
    for alias, name in family.tied.items():
        copy = weights.pop(alias, None)
        if copy is None:
            continue
        original = weights.setdefault(name, copy)
        untied = config.get("tie_word_embeddings") is False and name.startswith(family.prefix)
        if untied and not torch.equal(original, copy):
            what = f"an untied output layer ({alias} is not {name}, tie_word_embeddings = false) is not supported"
            raise InputError(what, where=where)
    return weights


def present_heads(family: Family, architecture: str, weights: dict[str, Tensor]) -> tuple[str, ...]:
    """Return the heads of a class; if it is not a labelling class, also others whose tensors are complete."""
    heads = family.classes[architecture]
    if any(head in KINDS for head in heads):
        return heads
    more = (head for head in ("masked", "next", "pooler", "decoder") if head in family.heads and head not in heads)
    return heads + tuple(head for head in more if head_map(family, [head]).keys() <= weights.keys())


def check_tensors(
    family: Family, heads: tuple[str, ...], blocks: int, weights: dict[str, Tensor], where: str
) -> list[str]:
    """Raise an error for missing, unexpected or broken tensors; note unused heads of other tasks."""
    needed = set(model_map(family, blocks, heads))
    missing = sorted(needed - set(weights), key=_natural)
    if missing:
        raise InputError(f"tensors are missing: {listed(missing)}", where=where)
    broken = sorted((name for name in needed if not bool(weights[name].isfinite().all())), key=_natural)
    if broken:
        what = f"tensors hold NaN or infinite values: {listed(broken)}"
        raise InputError(what, where=where, hint="save or download the model again")
    extra = set(weights) - needed
    unknown = sorted(extra - head_map(family, family.heads).keys(), key=_natural)
    if unknown:
        raise InputError(f"tensors that its class does not have: {listed(unknown)}", where=where)
    return [f"not used, of another task: {listed(sorted(extra))}"] if extra else []


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort key: layer 10 after layer 9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"\.", name)]
