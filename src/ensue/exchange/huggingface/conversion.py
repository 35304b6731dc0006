"""Convert names of weights, tensors and settings between Hugging Face and ours, by the maps of ``families``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from ensue.core.errors import InputError
from ensue.core.schema import shown
from ensue.exchange.huggingface.family import ACTIVATIONS, Family
from ensue.exchange.huggingface.weight_maps import POOLER, WeightMap
from ensue.models.encoder import EncoderConfig
from ensue.models.gpt import GPTConfig

PARAMETER_SUFFIXES = (".weight", ".bias")
MAX_SETTING = 1 << 31
"""The largest number in a config.json."""
ROBERTA_UNUSED_ROWS = 2
"""RoBERTa's unused position rows: one more than the id of its pad token, which is 1."""


def expand_map(names: WeightMap, blocks: int, theirs: str = "", ours: str = "") -> WeightMap:
    """Expand a map to every block and both suffixes, with prefixes for both names.

    >>> expand_map({"h.*.ln": ("blocks.*.norm", "")}, 1, ours="body.")
    {'h.0.ln.weight': ('body.blocks.0.norm.weight', ''), 'h.0.ln.bias': ('body.blocks.0.norm.bias', '')}
    """
    expanded: WeightMap = {}
    for left, (right, how) in names.items():
        for block in range(blocks if "*" in left else 1):
            for end in ("",) if left.endswith((".weight", "bias")) else PARAMETER_SUFFIXES:
                name = f"{theirs}{left}{end}".replace("*", str(block))
                expanded[name] = (f"{ours}{right}{end}".replace("*", str(block)), how)
    return expanded


def head_map(family: Family, heads: Iterable[str], pool: str = POOLER) -> WeightMap:
    """Return the map of some heads; ``pool`` is our name of the pooling layer."""
    names = {theirs: weight for head in heads for theirs, weight in expand_map(family.heads[head], 1).items()}
    return {theirs: (re.sub(f"^{POOLER}", pool, ours), how) for theirs, (ours, how) in names.items()}


def model_map(family: Family, blocks: int, heads: Iterable[str], ours: str = "", pool: str = POOLER) -> WeightMap:
    """Return the map of a backbone, with ``ours`` as our prefix, and some heads."""
    return expand_map(family.body, blocks, family.prefix, ours) | head_map(family, heads, pool)


def import_weights(
    names: WeightMap, weights: Mapping[str, Tensor], unused: int = 0, heads: int = 1
) -> dict[str, Tensor]:
    """Convert their tensors to ours; ``unused`` rows at the start are removed from "cut" tensors.

    ``heads`` is the number of heads in "heads" tensors.
    """
    parts: dict[str, list[Tensor]] = {}
    for theirs, (ours, how) in names.items():  # the parts of one tensor are in order
        weight = weights[theirs]
        if how == "T" and weight.dim() == 2:
            weight = weight.T
        elif how == "cut":
            weight = weight[unused:]
        elif how == "sines":
            weight = torch.stack(weight.chunk(2, dim=1), dim=2).flatten(1)
        elif how == "heads" and len(weight) % (3 * heads) == 0:
            weight = weight.view(heads, 3, -1, weight.shape[1]).transpose(0, 1).flatten(0, 2)
        parts.setdefault(ours, []).append(weight)
    return {ours: torch.cat(tensors) if len(tensors) > 1 else tensors[0] for ours, tensors in parts.items()}


def export_weights(
    names: WeightMap, weights: Mapping[str, Tensor], unused: int = 0, heads: int = 1
) -> dict[str, Tensor]:
    """Convert our tensors to theirs; ``unused`` rows of zeros are added at the start of "cut" tensors."""
    exported: dict[str, Tensor] = {}
    for theirs, (ours, how) in names.items():
        weight = weights[ours]
        if how == "T" and weight.dim() == 2:
            weight = weight.T
        elif how == "cut":
            weight = torch.cat([weight.new_zeros(unused, weight.shape[1]), weight])
        elif how == "sines":
            weight = torch.cat([weight[:, 0::2], weight[:, 1::2]], dim=1)
        elif how == "heads":
            weight = weight.view(3, heads, -1, weight.shape[1]).transpose(0, 1).flatten(0, 2)
        elif "/" in how:
            number, count = map(int, how.split("/"))
            weight = weight.chunk(count)[number - 1]
        exported[theirs] = weight.detach().contiguous().clone()
    return exported


def check_settings(family: Family, config: dict[str, Any], where: str) -> None:
    """Raise an error for the first setting that our models do not support."""
    needs = dict(family.needs)
    if family.name == "gpt2":
        needs["n_inner"] = (None, 4 * setting(family, config, "n_embd", where))
    else:  # the masked heads of some always use GELU; ours uses the activation of the blocks
        always_gelu = {"RobertaForMaskedLM", "ElectraForMaskedLM"} & set(config.get("architectures") or ())
        needs[family.their("activation")] = ("gelu",) if always_gelu else tuple(ACTIVATIONS)
    for name, allowed in needs.items():
        value = config.get(name, allowed[0])
        if value not in allowed:
            hint = f"it can be {' or '.join(map(str, allowed))}"
            raise InputError(f"{name} = {shown(value)} is not supported", where=where, hint=hint)


def setting(family: Family, config: dict[str, Any], name: str, where: str) -> Any:
    """Return one of their settings or its default; raise an error for a wrong type."""
    default = family.settings[name][1]
    value = config.get(name, default)
    kinds = (int, float) if isinstance(default, float) else (type(default),)
    large = isinstance(value, int | float) and not abs(value) <= MAX_SETTING
    if not isinstance(value, kinds) or isinstance(value, bool) or large:
        raise InputError(f"{name} = {shown(value)} should be a {kinds[-1].__name__}", where=where)
    return value


def backbone_settings(family: Family, config: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the backbone's settings under our names."""
    settings = {ours: setting(family, config, theirs, where) for theirs, (ours, _) in family.settings.items()}
    if "activation" in settings:
        settings["activation"] = ACTIVATIONS[settings["activation"]]
    settings["context"] -= unused_rows(family, config)
    return settings | family.fixed | (family.derived(config, where) if family.derived else {})


def unused_rows(family: Family, config: dict[str, Any]) -> int:
    """Return the number of unused position rows."""
    if all(how != "cut" for _, how in family.body.values()):
        return 0
    pad = config.get("pad_token_id", ROBERTA_UNUSED_ROWS - 1)
    return pad + 1 if isinstance(pad, int) else ROBERTA_UNUSED_ROWS


def head_dropout(family: Family, config: dict[str, Any], kind: str, where: str) -> float:
    """Return the dropout of a head that labels ``kind``."""
    name = family.head_dropouts.get(kind)
    if name is None:
        return 0.0
    share = config.get(name, family.head_dropout)
    if share is None:
        return float(setting(family, config, family.their("dropout"), where))
    if not isinstance(share, int | float):
        raise InputError(f"{name} = {shown(share)} should be a float", where=where)
    return float(share)


def export_settings(family: Family, config: EncoderConfig | GPTConfig, pad: int | None) -> dict[str, Any]:
    """Return a backbone's settings under their names."""
    ours: dict[str, Any] = {name: getattr(config, name, None) for name, _ in family.settings.values()}
    if isinstance(config, EncoderConfig):
        ours["inner"] = config.inner or 4 * config.hidden
        few = int(not family.optional)  # most of theirs always have one
        ours["segments"] = max(few, config.segments)
        ours["groups"] = config.groups or config.layers
        ours["embedding"] = config.embedding or config.hidden
        ours["activation"] = next(theirs for theirs, name in ACTIVATIONS.items() if name == config.activation)
    ours["context"] += unused_rows(family, {"pad_token_id": pad})
    settings = {theirs: ours[name] for theirs, (name, _) in family.settings.items()}
    settings |= {name: values[0] for name, values in family.needs.items() if values[0] not in ({}, None)}
    return settings | dict.fromkeys(family.dropouts, config.dropout)
