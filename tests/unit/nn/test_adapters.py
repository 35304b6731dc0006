"""Low-rank adapters: they begin as nothing, only they learn, and merged they leave no trace."""

import copy

import pytest
import torch
from torch.nn import functional as F

from ensue.core.errors import InputError
from ensue.kernels.grouped import GroupedLinear
from ensue.kernels.kernel import use
from ensue.kernels.threads import torch_threads
from ensue.models.encoder import Encoder, EncoderConfig
from ensue.models.llama import LlamaConfig, LlamaLanguageModel
from ensue.nn.adapters import LowRank, adapt, adaptable, adapters, load_trained_state, merge, trained_state
from ensue.nn.feed_forward import FeedForward
from ensue.runs.adapted_weights import use_adapters
from ensue.runs.weight_bits import with_bits

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
    made(TOKENS, None, None, PLACES).hidden.pow(3).sum().backward()  # squares of what was normed have a constant sum
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


def grouped_gpt():
    """A tiny Llama whose blocks have weights of 4 bits."""
    torch.manual_seed(0)
    config = LlamaConfig(vocabulary=77, layers=2, heads=2, kv_heads=1, hidden=64, inner=96, context=40)
    return with_bits(LlamaLanguageModel(config), 4)


def test_the_embedding_and_the_output_layer_keep_8_of_4_bits():
    own = grouped_gpt()
    assert (own.embed.bits, own.head.bits) == (8, 8) and own.head.codes is own.embed.codes
    assert {layer.bits for layer in own.blocks.modules() if isinstance(layer, GroupedLinear)} == {4}


def test_beside_groups_adapters_stay_and_only_they_are_saved():
    model = grouped_gpt()
    assert adapt(model, 4, 8.0, lambda name: name != "head") == 2 * 5
    layers = dict(adapters(model))
    assert len(layers) == 10 and all(isinstance(layer.base, GroupedLinear) for layer in layers.values())
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert trained == {f"{name}.{part}" for name in layers for part in ("down", "up")}
    before = trained_state(model)
    assert before.keys() == trained | {f"{name}.scale" for name in layers}
    merge(model)
    assert dict(adapters(model)).keys() == layers.keys()

    other = grouped_gpt()
    adapt(other, 4, 1.0, lambda name: name != "head")
    for layer in layers.values():
        torch.nn.init.normal_(layer.up, std=0.1)
    load_trained_state(other, trained_state(model))
    tokens = torch.arange(20)[None]
    torch.testing.assert_close(other(tokens).logits, model(tokens).logits)


@pytest.mark.parametrize("down", [torch.zeros(()), torch.zeros(0, 64), torch.zeros(4, 63), torch.zeros(4, 64).half()])
def test_adapters_of_another_form_are_refused(down):
    name = "blocks.0.attention.out"
    tensors = {f"{name}.down": down, f"{name}.up": torch.zeros(64, len(down) if down.dim() else 1)}
    with pytest.raises(InputError, match=rf"adapters.bin: does not fit the weights in base \({name}\)"):
        use_adapters(grouped_gpt(), tensors | {f"{name}.scale": torch.tensor(1.0)}, "adapters.bin")


def test_adapters_that_are_there_are_trained_further():
    model = grouped_gpt()
    adapt(model, 4, 8.0)
    first = dict(adapters(model))
    model.requires_grad_(False)
    assert adapt(model, 4, 8.0) == len(first)
    assert all(dict(adapters(model))[name] is layer and layer.up.requires_grad for name, layer in first.items())


@pytest.mark.skipif(torch_threads() is None, reason="torch has other threads than OpenMP's here")
@pytest.mark.parametrize("rows", [1, 3, 20])
def test_adapters_decode_by_program(rows):
    """Also after they have changed: in place, and by an optimiser that changes no version of a tensor."""
    model = grouped_gpt()
    adapt(model, 4, 8.0, lambda name: name != "head")
    model.eval()
    tokens = torch.randint(77, (rows, 12), generator=torch.Generator().manual_seed(2))
    optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.05, fused=True)
    for change in ("in place", "in place", "optimiser"):
        if change == "optimiser":
            model(tokens).logits.logsumexp(-1).sum().backward()
            optimiser.step()
        with torch.no_grad():
            for _, layer in adapters(model) if change == "in place" else ():
                layer.up.normal_(std=0.1)
            wanted, state, found = model(tokens).logits, None, []
            for token in tokens.split(1, dim=1):
                output = model(token, state)
                state = output.state
                found.append(output.logits)
        assert model._steps.programs.runners
        assert (torch.cat(found, 1) - wanted).abs().max() < 1e-3 * wanted.abs().max()
