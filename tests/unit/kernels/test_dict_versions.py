"""Versions of dicts: every change of one is noticed, and looking at one is no change."""

from collections import OrderedDict

import pytest
import torch
from torch import nn

from ensue.kernels.dict_versions import DictVersions, Places, available

pytestmark = pytest.mark.skipif(not available(), reason="this Python has no versions of dicts")


def tables_of(layer):
    hooks = [layer._forward_hooks, layer._forward_pre_hooks]
    return [layer.__dict__, layer._modules, layer._parameters, layer._buffers, *hooks]


@pytest.mark.parametrize(
    "change",
    [
        lambda layer: layer.train(),
        lambda layer: layer.register_forward_hook(print),
        lambda layer: layer.register_forward_pre_hook(print),
        lambda layer: layer.register_buffer("more", None),
        lambda layer: setattr(layer, "weight", nn.Parameter(layer.weight)),
        lambda layer: setattr(layer, "forward", print),
        lambda layer: setattr(layer, "inside", nn.Identity()),
        lambda layer: delattr(layer, "bias"),
        lambda layer: layer._parameters.clear(),
    ],
)
def test_every_change_of_a_module_is_noticed_once_remembered_no_longer(change):
    layers = [nn.Linear(2, 2).eval() for _ in range(3)]
    versions = DictVersions(table for layer in layers for table in tables_of(layer))
    assert versions.unchanged()
    change(layers[1])
    assert not versions.unchanged() and not versions.unchanged()
    versions.remember()
    assert versions.unchanged()


def test_looking_and_computing_change_nothing():
    table, plain = OrderedDict({1: 2}), {3: 4}
    versions = DictVersions([table, plain])
    assert (table[1], plain.get(5), [*table.items()], 3 in plain, dict(plain)) == (2, None, [(1, 2)], True, {3: 4})
    assert versions.unchanged()


def test_no_dicts_never_change():
    assert DictVersions([]).unchanged()


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(
    "move",
    [
        lambda tensor: setattr(tensor, "data", tensor.clone()),
        lambda tensor: tensor.share_memory_(),
        lambda tensor: tensor.resize_(1000),
        lambda tensor: tensor.set_(torch.zeros(8)),
    ],
)
def test_tensors_whose_memory_moves_are_noticed(compiled, move, monkeypatch):
    if not compiled:
        monkeypatch.setattr("ensue.kernels.dict_versions.available", lambda: False)
    tensors = [torch.zeros(8) for _ in range(3)]
    places = Places(tensors)
    assert places.unchanged() and (places.storages is not None) == compiled
    tensors[2].add_(1)
    assert places.unchanged()
    move(tensors[1])
    assert not places.unchanged()


def test_no_tensors_never_move():
    assert Places([]).unchanged()
