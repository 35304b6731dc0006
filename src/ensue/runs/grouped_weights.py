"""Models whose file holds weights in groups of 4 or 8 bits: their layers are exchanged before the weights are set.

A file says by the names and types of its tensors which layers have such weights: ``….codes``, ``….scales`` and perhaps
``….offsets`` stand for a ``….weight``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ensue.core.errors import InputError
from ensue.kernels.grouped import FILLED, PANEL, GroupedEmbedding, GroupedLinear, GroupedWeight
from ensue.nn.positions import Rotary

MISFIT = "does not fit config.json"
CODES = ".codes"
STORED = (torch.uint8, torch.int8)
SHARES = (torch.float16, torch.float32)


def has_groups(tensors: Mapping[str, Tensor]) -> bool:
    """Whether a file holds weights in groups."""
    return any(name.endswith(CODES) for name in tensors)


def use_groups(model: nn.Module, tensors: Mapping[str, Tensor], where: str) -> None:
    """Exchange the layers of a model whose weights are in groups among ``tensors``, which may be without storage."""
    for name in sorted(name.removesuffix(CODES) for name in tensors if name.endswith(CODES)):
        parent, _, own = name.rpartition(".")
        try:
            layer = model.get_submodule(name)
        except AttributeError as error:
            raise InputError(f"{MISFIT} ({name})", where=where) from error
        setattr(model.get_submodule(parent), own, _grouped(layer, name, tensors, where))
    for module in list(model.modules()):
        embed = getattr(module, "embed", None)
        if isinstance(embed, GroupedEmbedding) and getattr(getattr(module, "config", None), "tied", False):
            module.head = GroupedLinear(embed.codes, embed.scales, embed.offsets, embed.out_features)


def _grouped(layer: nn.Module, name: str, tensors: Mapping[str, Tensor], where: str) -> GroupedWeight:
    """The layer with weights in groups in place of another one."""
    codes, scales, offsets = (tensors.get(f"{name}.{part}") for part in ("codes", "scales", "offsets"))
    if type(layer) is nn.Linear:
        outputs, inputs = layer.out_features, layer.in_features
    elif type(layer) is nn.Embedding:
        outputs, inputs = layer.num_embeddings, layer.embedding_dim
    else:
        raise InputError(f"{MISFIT} ({name})", where=where)
    _check(codes, scales, offsets, (outputs, inputs), f"{name}.codes", where)
    assert codes is not None and scales is not None
    if isinstance(layer, nn.Embedding):
        return GroupedEmbedding(codes, scales, offsets, outputs)
    bias: Any = layer.bias
    return GroupedLinear(codes, scales, offsets, outputs, None if bias is None else torch.empty_like(bias))


def _check(
    codes: Tensor | None, scales: Tensor | None, offsets: Tensor | None, shape: tuple[int, int], name: str, where: str
) -> None:
    """Raise InputError unless codes, scales and offsets are a matrix of this shape."""
    outputs, inputs = shape
    fits = codes is not None and scales is not None and codes.dim() == 5 and codes.dtype in STORED
    if fits:
        assert codes is not None and scales is not None
        panels, groups, loads, lanes, pair = codes.shape
        group = loads * (4 if codes.dtype == torch.uint8 else 2)
        fits = (panels * PANEL, lanes, pair) == (outputs + -outputs % FILLED, PANEL, 2) and groups * group == inputs
        fits = fits and all(
            one.shape == (panels, groups, PANEL) and one.dtype == scales.dtype and one.dtype in SHARES
            for one in (scales, offsets)
            if one is not None
        )
    if not fits:
        raise InputError(f"{MISFIT} ({name})", where=where, hint="the folder may be damaged")


def assign_tensors(model: nn.Module, tensors: Mapping[str, Tensor], where: str) -> None:
    """Let a model without storage use these tensors, shared ones where they are shared."""
    own = model.state_dict(keep_vars=True)
    first = {id(tensor): name for name, tensor in own.items() if name in tensors}
    whole: dict[str, Any] = {name: tensors.get(first.get(id(tensor), name)) for name, tensor in own.items()}
    wrong = [name for name, tensor in own.items() if not _fits(tensor, whole[name])]
    wrong += [name for name in tensors if name not in own]
    if wrong:
        raise InputError(f"{MISFIT} ({wrong[0]})", where=where, hint="the folder may be damaged")
    model.load_state_dict({name: whole[name].to(tensor.dtype) for name, tensor in own.items()}, assign=True)
    for module in model.modules():
        if isinstance(module, Rotary):
            module.fill()
    left = [name for name, tensor in (*model.named_parameters(), *model.named_buffers()) if tensor.is_meta]
    assert not left, left


def _fits(own: Tensor, given: Tensor | None) -> bool:
    """Whether a tensor of a model can be one of a file: of its shape, and of its type or another one of floats."""
    if given is None or given.shape != own.shape:
        return False
    return given.dtype == own.dtype or (own.is_floating_point() and given.is_floating_point())


def count_parameters(model: nn.Module) -> int:
    """The number of weights of a model, those in groups included, shared ones once."""
    grouped = {
        layer.codes.data_ptr(): layer.out_features * layer.in_features
        for layer in model.modules()
        if isinstance(layer, GroupedWeight)
    }
    return sum(p.numel() for p in model.parameters()) + sum(grouped.values())
