"""Low-rank adapters: they begin as nothing, only they learn, and merged they leave no trace."""

import copy

import pytest
import torch
from torch.nn import functional as F

from ensue.kernels.kernel import use
from ensue.models.encoder import Encoder, EncoderConfig
from ensue.nn.adapters import LowRank, adapt, adaptable, merge
from ensue.nn.feed_forward import FeedForward

TOKENS = torch.randint(19, (3, 7), generator=torch.Generator().manual_seed(1))
PLACES = torch.tensor([[0, 2], [1, 6], [5, 5]])


def encoder():
    torch.manual_seed(0)
    return Encoder(EncoderConfig(vocabulary=19, layers=2, heads=2, hidden=8, context=9, dropout=0.0))


def learnt(module, rank=2, alpha=3.0):
    """A module with adapters that have learnt something."""
    count = adapt(module, rank, alpha)
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            assert "parametrizations.weight.0" in name
            torch.nn.init.normal_(parameter, std=0.3)
    return count


def test_adapters_begin_as_nothing():
    plain, adapted = encoder(), encoder()
    assert adapt(adapted, 4, 16.0) == len(adaptable(plain)) == 2 * 4 + 1
    torch.testing.assert_close(adapted(TOKENS).hidden, plain(TOKENS).hidden, rtol=0, atol=0)


def test_only_chosen_layers_are_adapted():
    made = encoder()
    assert adapt(made, 2, 1.0, lambda name: name.endswith("project")) == 2
    trained = [name for name, parameter in made.named_parameters() if parameter.requires_grad]
    assert len(trained) == 4 and all("attention.project" in name for name in trained)


@pytest.mark.parametrize("places", [None, PLACES])
@pytest.mark.parametrize("grad", [True, False])
def test_merged_weights_say_the_same(places, grad):
    """At places too, where attention takes its matrix apart, and with the fused kernel, which runs under gradients."""
    made = encoder()
    learnt(made)
    with torch.set_grad_enabled(grad):
        before = made(TOKENS, None, None, places).hidden.detach()
        assert not torch.allclose(before, encoder()(TOKENS, None, None, places).hidden, atol=1e-3)
        merge(made)
        torch.testing.assert_close(made(TOKENS, None, None, places).hidden.detach(), before)
    assert made.state_dict().keys() == encoder().state_dict().keys()


def test_a_merged_weight_by_hand():
    layer = torch.nn.Sequential(torch.nn.Linear(5, 3))
    weight = layer[0].weight.detach().clone()
    learnt(layer, rank=2, alpha=3.0)
    (held,) = layer[0].parametrizations["weight"]
    assert isinstance(held, LowRank)
    wanted = weight + 1.5 * held.up @ held.down
    merge(layer)
    torch.testing.assert_close(layer[0].weight, wanted)


def test_only_the_adapters_change():
    made = encoder()
    learnt(made)
    before = copy.deepcopy(made.state_dict())
    optimiser = torch.optim.SGD([p for p in made.parameters() if p.requires_grad], lr=0.1)
    made(TOKENS, None, None, PLACES).hidden.square().sum().backward()
    optimiser.step()
    for name, value in made.state_dict().items():
        moved = name.endswith(("weight.0.up", "weight.0.down")) and "pooler" not in name
        assert torch.equal(value, before[name]) != moved, name


@pytest.mark.parametrize("kernel", ["fused", "reference"])
def test_gradients_are_those_of_the_sum(kernel):
    torch.manual_seed(0)
    feed = FeedForward(4, 6, "gelu-erf").double()
    x = torch.randn(5, 4, dtype=torch.double)
    learnt(feed, rank=2, alpha=4.0)
    (up,), (down,) = feed.up.parametrizations["weight"], feed.down.parametrizations["weight"]
    with use(kernel):
        feed(x).sin().sum().backward()
    found = [up.up.grad, up.down.grad, down.up.grad, down.down.grad]
    parts = [p.detach().clone().requires_grad_() for p in (up.up, up.down, down.up, down.down)]
    first = feed.up.parametrizations.weight.original + 2 * parts[0] @ parts[1]
    second = feed.down.parametrizations.weight.original + 2 * parts[2] @ parts[3]
    y = F.linear(F.gelu(F.linear(x, first, feed.up.bias)), second, feed.down.bias)
    torch.testing.assert_close(found, list(torch.autograd.grad(y.sin().sum(), parts)))


def test_a_copy_keeps_its_adapters():
    """Speed is tried on a copy."""
    made = encoder()
    learnt(made)
    other = copy.deepcopy(made)
    torch.testing.assert_close(other(TOKENS).hidden, made(TOKENS).hidden)
    with torch.no_grad():
        other.blocks[0].feed.up.parametrizations.weight[0].up.zero_()
    assert not torch.allclose(other(TOKENS).hidden, made(TOKENS).hidden)
