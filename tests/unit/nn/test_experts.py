from functools import partial

import pytest
import torch

from ensue.core.errors import InputError
from ensue.exchange.huggingface.export_form import _check_gpt
from ensue.kernels.experts import mix_experts
from ensue.kernels.int8 import QuantisedLinear, quantise
from ensue.kernels.kernel import use
from ensue.measure.cost import active_parameters, flops_per_token
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.nn.experts import GATES, Experts, Gate, balance_of, balances
from ensue.nn.feed_forward import FeedForward


def mixture(width=8, experts=4, active=2, gate="plain", dtype=torch.float64, inner=None):
    torch.manual_seed(0)
    many = [FeedForward(width, inner or 2 * width) for _ in range(experts)]
    return Experts(GATES[gate](width, experts), many, active).to(dtype)


def gpt(**more):
    torch.manual_seed(0)
    shape = {"vocabulary": 17, "layers": 2, "heads": 2, "hidden": 16, "context": 12, "experts": 4, "experts_active": 2}
    return GPTLanguageModel(GPTConfig(**{**shape, **more}))


@pytest.mark.parametrize(("experts", "active"), [(4, 2), (3, 1), (2, 2), (5, 4)])
def test_grouped_tokens_give_what_all_experts_on_all_tokens_give(experts, active):
    model = mixture(experts=experts, active=active)
    x, above = torch.randn(3, 7, 8, dtype=torch.float64), torch.randn(3, 7, 8, dtype=torch.float64)
    found = {}
    for kernel in mix_experts.implementations:
        model.zero_grad()
        given = x.clone().requires_grad_()
        with use(kernel, "experts"):
            y = model(given)
        y.backward(above)
        found[kernel] = [y.detach(), given.grad, *(p.grad for p in model.parameters())]
    for one, other in zip(*found.values(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("active", [1, 2])
def test_a_mixture_is_its_equation(active):
    model = mixture(active=active).eval()
    x = torch.randn(5, 8, dtype=torch.float64)
    p = (x @ model.gate.want.weight.T).softmax(-1)
    for row in range(5):
        best = sorted(range(4), key=lambda i: -p[row, i])[:active]
        total = sum(p[row, i] for i in best) if active > 1 else 1
        expected = sum(p[row, i] / total * model.experts[i](x[row : row + 1]) for i in best)
        torch.testing.assert_close(model(x[row : row + 1]), expected)


def test_only_the_chosen_experts_run():
    model, seen = mixture(experts=4, active=1).eval(), []
    for expert in model.experts:
        expert.register_forward_hook(lambda module, given, y: seen.append(len(given[0])))
    with torch.no_grad():
        model(torch.randn(30, 8, dtype=torch.float64))
    assert sum(seen) == 30 and len(seen) <= 4


def test_what_becomes_of_a_token_does_not_depend_on_the_others():
    model = mixture().eval()
    x = torch.randn(40, 8, dtype=torch.float64)
    torch.testing.assert_close(model(x)[7:9], model(x[7:9]), atol=1e-12, rtol=1e-12)


def test_no_tokens_are_no_trouble():
    model = mixture()
    assert model(torch.zeros(0, 8, dtype=torch.float64)).shape == (0, 8)
    with torch.no_grad():
        assert model(torch.zeros(2, 0, 8, dtype=torch.float64)).shape == (2, 0, 8)


def test_an_expert_without_tokens_has_gradients_of_zero():
    model = mixture(experts=4, active=1)
    model(torch.randn(1, 8, dtype=torch.float64)).sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    idle = [e for e in model.experts if not e.up.weight.grad.any()]
    assert len(idle) == 3


def test_the_gate_learns_even_where_one_expert_is_chosen():
    model = mixture(active=1)
    model(torch.randn(6, 8, dtype=torch.float64)).square().sum().backward()
    assert model.gate.want.weight.grad.abs().max() > 0


def test_balance_is_one_where_all_get_the_same_and_many_where_one_gets_all():
    even = torch.full((8, 4), 0.25)
    assert balance_of(even, torch.arange(8)[:, None] % 4).item() == pytest.approx(1)
    one = torch.zeros(8, 4)
    one[:, 2] = 1
    assert balance_of(one, torch.full((8, 1), 2)).item() == pytest.approx(4)


def test_the_balance_of_a_batch_is_the_sum_of_what_processes_have_of_it():
    torch.manual_seed(0)
    logits, cuts = torch.randn(12, 4, dtype=torch.float64), (5, 7)
    found = []
    for sizes in ([12], cuts):
        given = logits.clone().requires_grad_()
        parts = [part.softmax(-1) for part in given.split(sizes)]
        chosen = [part.topk(2).indices for part in parts]
        everywhere = torch.cat(chosen).flatten().bincount(minlength=4).double()
        added = partial(torch.add, everywhere, alpha=0)  # what all chose, whatever was chosen here
        shares = [len(p) / 12 * balance_of(p, c, added) for p, c in zip(parts, chosen, strict=True)]
        sum(shares).backward()
        found.append((sum(shares).detach(), given.grad))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)
    p, c = logits.softmax(-1), logits.topk(2).indices
    torch.testing.assert_close(found[0][0], balance_of(p, c))
    apart = sum(n / 12 * balance_of(a, b) for n, a, b in zip(cuts, p.split(cuts), c.split(cuts), strict=True))
    assert abs(apart - balance_of(p, c)) > 1e-4  # means of products are no products of means


def test_the_balance_is_switchs_formula_token_by_token():
    torch.manual_seed(1)
    p = torch.randn(9, 4, dtype=torch.float64).softmax(-1)
    chosen = p.topk(2).indices
    expected = 0.0
    for expert in range(4):
        f = sum(expert in row for row in chosen.tolist()) / (9 * 2)
        expected += 4 * f * sum(float(row[expert]) for row in p) / 9
    assert balance_of(p, chosen).item() == pytest.approx(expected, rel=1e-12)


def test_making_the_balance_small_evens_experts_out():
    torch.manual_seed(0)
    model, x = mixture(dtype=torch.float32, active=1), torch.randn(256, 8) + 1
    with torch.no_grad():
        model.gate.want.weight[0] += 1  # everybody wants the first
    optimiser = torch.optim.Adam(model.gate.parameters(), lr=0.05)
    values = []
    for _ in range(60):
        with balances() as found:
            model(x)
        values.append(found[0].item())
        optimiser.zero_grad()
        found[0].backward()
        optimiser.step()
    assert values[0] > 3 and values[-1] < 1.5


def test_a_noisy_gate_is_random_only_while_it_learns():
    model = mixture(gate="noisy")
    x = torch.randn(20, 8, dtype=torch.float64)
    assert not torch.equal(model(x), model(x))
    model.eval()
    assert torch.equal(model(x), model(x))


def test_balances_are_gathered_where_they_are_asked_for_and_from_what_learns():
    model, x = mixture(), torch.randn(4, 8, dtype=torch.float64)
    with balances() as found:
        model(x)
        model.eval()(x)
        with torch.no_grad():
            model.train()(x)
    model(x)
    assert len(found) == 1


def test_training_a_gpt_adds_the_balance_and_scoring_does_not():
    tokens = torch.randint(17, (2, 8))
    plain, weighed = gpt(experts_balance=0.0).double(), gpt(experts_balance=0.5).double()
    assert plain.eval().loss(tokens, tokens)[0] == weighed.eval().loss(tokens, tokens)[0]
    with balances() as found:
        plain.train()(tokens)
    expected = plain.loss(tokens, tokens)[0] + 0.5 * torch.stack(found).mean()
    torch.testing.assert_close(weighed.train().loss(tokens, tokens)[0], expected)
    assert weighed.log_prob(tokens, tokens)[0].mean().item() == pytest.approx(
        -plain.eval().loss(tokens, tokens)[0].item()
    )


def test_one_expert_is_the_plain_network():
    model = gpt(experts=1, experts_active=1)
    assert isinstance(model.blocks[0].feed, FeedForward)
    with balances() as found:
        model.train().loss(torch.zeros(1, 3, dtype=torch.long), torch.zeros(1, 3, dtype=torch.long))
    assert not found


def test_experts_quantise():
    model = gpt(hidden=64).eval()
    small = quantise(model)
    assert isinstance(small.blocks[0].feed.experts[1].down, QuantisedLinear)
    assert isinstance(small.blocks[0].feed.gate.want, torch.nn.Linear)  # what chooses stays exact
    tokens = torch.randint(17, (2, 9))
    with torch.no_grad():
        close = torch.isclose(small(tokens).logits, model(tokens).logits, atol=0.05, rtol=0.1)
    assert close.float().mean() > 0.9  # rounding may send a token to another expert


def test_experts_can_be_traced():
    model = mixture(dtype=torch.float32).eval()
    x = torch.randn(6, 8)
    traced = torch.jit.trace(model, (x,), check_trace=False)
    other = torch.randn(6, 8)
    torch.testing.assert_close(traced(other), model(other))  # the choice is in the graph, not frozen


def test_more_experts_cost_parameters_and_not_flops():
    with torch.device("meta"):
        one, two, eight = (gpt(experts=e, experts_active=1) for e in (1, 2, 8))
    gate = 2 * 16
    each = 2 * 4 * 16 * 16 + 4 * 16 + 16
    assert sum(p.numel() for p in eight.parameters()) - sum(p.numel() for p in one.parameters()) == 2 * (
        7 * each + 8 * 16
    )
    assert active_parameters(eight) - active_parameters(one) == 2 * 8 * 16
    assert flops_per_token(eight, 8) - flops_per_token(two, 8) == 2 * (8 - 2) * gate  # the gates alone


def test_settings_say_what_does_not_fit():
    with pytest.raises(InputError, match="experts_active = 3 must be at most experts = 2"):
        GPTConfig(experts=2, experts_active=3)
    with pytest.raises(InputError, match="experts_gate"):
        GPTConfig(experts=2, experts_gate="loud")
    with pytest.raises(InputError, match="experts_balance"):
        GPTConfig(experts=2, experts_balance=-1.0)


def test_a_mixture_has_no_form_in_the_other_library():
    with pytest.raises(InputError, match="experts"):
        _check_gpt(gpt(positions="learned"))


def test_a_gate_has_a_weight_for_each_expert():
    assert Gate(8, 3).want.weight.shape == (3, 8)
