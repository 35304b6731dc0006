"""A mixture of experts against transformers' Mixtral and Switch blocks, with the same weights."""

import pytest
import torch
from torch import nn

from ensue.kernels.kernel import use
from ensue.nn.experts import Experts, Gate, balance_of
from ensue.nn.feed_forward import FeedForward

transformers = pytest.importorskip("transformers")


class Passed(nn.Module):
    """Another library's expert, as one of ours."""

    def __init__(self, expert):
        super().__init__()
        self.expert = expert

    def forward(self, x):
        return self.expert(x)


def ours_of(gate, experts, active):
    mixture = Experts(Gate(gate.weight.shape[1], len(experts)), [Passed(e) for e in experts], active)
    with torch.no_grad():
        mixture.gate.want.weight.copy_(gate.weight)
    return mixture


@pytest.mark.parametrize("kernel", ["grouped", "reference"])
def test_routing_is_mixtrals(kernel):
    from transformers.models.mixtral.configuration_mixtral import MixtralConfig
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock, load_balancing_loss_func

    torch.manual_seed(0)
    config = MixtralConfig(hidden_size=16, intermediate_size=24, num_local_experts=5, num_experts_per_tok=2)
    theirs = MixtralSparseMoeBlock(config).eval()
    ours = ours_of(theirs.gate, theirs.experts, 2)
    x = torch.randn(3, 7, 16)
    expected, logits = theirs(x)
    with use(kernel, "experts"):
        torch.testing.assert_close(ours(x), expected, atol=1e-6, rtol=1e-5)
    _, chosen, probabilities = ours.route(x.flatten(0, 1))
    balance = load_balancing_loss_func((logits,), num_experts=5, top_k=2)
    torch.testing.assert_close(2 * balance_of(probabilities, chosen), balance)  # theirs is k where all get the same


def test_one_expert_a_token_is_switchs():
    from transformers.models.switch_transformers.configuration_switch_transformers import SwitchTransformersConfig
    from transformers.models.switch_transformers.modeling_switch_transformers import (
        SwitchTransformersSparseMLP,
        load_balancing_loss_func,
    )

    torch.manual_seed(0)
    config = SwitchTransformersConfig(
        d_model=16, d_ff=24, num_experts=4, expert_capacity=64, router_jitter_noise=0.0, dropout_rate=0.0
    )
    theirs = SwitchTransformersSparseMLP(config).eval()
    ours = ours_of(theirs.router.classifier, list(theirs.experts.values()), 1)
    x = torch.randn(2, 9, 16)
    expected, (logits, index) = theirs(x)
    torch.testing.assert_close(ours(x), expected, atol=1e-6, rtol=1e-5)
    _, chosen, probabilities = ours.route(x.flatten(0, 1))
    balance = load_balancing_loss_func(logits.softmax(-1).view(1, -1, 4), index.view(1, -1))
    torch.testing.assert_close(balance_of(probabilities, chosen), balance)


def test_our_own_experts_are_two_layers():
    experts = [FeedForward(16, 32) for _ in range(3)]
    mixture = Experts(Gate(16, 3), experts, 3).eval()
    x = torch.randn(4, 16)
    gates = (x @ mixture.gate.want.weight.T).softmax(-1)
    layers = [e.down(nn.functional.gelu(e.up(x), approximate="tanh")) for e in experts]
    expected = sum(gates[:, i, None] * y for i, y in enumerate(layers))
    torch.testing.assert_close(mixture(x), expected, atol=1e-6, rtol=1e-5)
