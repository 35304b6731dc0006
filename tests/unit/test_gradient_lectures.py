"""The lectures on gradients, as numbers: R31 to R37, R41 and R42."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from ensue.look.instruments.bptt import bptt_numbers, by_autograd, forward, random_network, terms
from ensue.look.instruments.gradient_flow import (
    SLOPES,
    bounds,
    by_distance,
    factor_per_step,
    gradient_flow,
    jacobian,
    largest_singular_value,
)
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.models.recurrent import (
    ChoGRULanguageModel,
    GRULanguageModel,
    LSTMConfig,
    LSTMLanguageModel,
    RecurrentConfig,
    RNNConfig,
    RNNLanguageModel,
)
from ensue.models.window import WindowConfig, WindowLanguageModel
from ensue.nn.recurrent import TanhCell
from ensue.train.optimisers import build_optimiser
from ensue.train.settings import TrainSettings

TOKENS = torch.randint(7, (25,), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("hidden", [1, 3])
def test_r31_every_term_of_three_steps_equals_autograd(hidden):
    network = random_network(steps=3, hidden=hidden, inputs=hidden, outputs=hidden + 1, seed=4)
    made = forward(network)
    count = 0
    for t in (1, 2, 3):
        found = terms(network, made, t)
        assert [term.k for term in found] == list(range(t, 0, -1))  # 1, 2 and 3 terms
        theirs = by_autograd(network, t)["w"]
        for term in found:
            assert term.value.abs().max() > 1e-6
            torch.testing.assert_close(term.value, theirs[term.k - 1], atol=1e-12, rtol=0)
            assert len(term.factors) == 5 + 2 * (t - term.k)
        count += len(found)
    assert count == 6
    assert bptt_numbers(network)["largest_difference"] < 1e-12


def test_r31_the_general_formula_holds_for_jacobians_that_do_not_commute():
    network = random_network(steps=4, hidden=3, seed=2)
    made = forward(network)
    w = network.w.clone().requires_grad_()
    h = network.h0
    for x in network.x:
        h = torch.tanh(network.u.T @ x + w @ h)
    loss = nn.functional.cross_entropy((network.v @ h)[None], network.y[-1:])
    (theirs,) = torch.autograd.grad(loss, w)
    total = torch.zeros(3, 3, dtype=torch.float64)
    for k in range(1, 5):
        row = torch.softmax(made[3].z, 0) - nn.functional.one_hot(network.y[3], 2)  # ∂J/∂ŷ · ∂ŷ/∂z
        g = row @ network.v
        for j in range(4, k, -1):
            g = g @ torch.diag(1 - made[j - 1].h ** 2) @ network.w
        g = g @ torch.diag(1 - made[k - 1].h ** 2)
        before = made[k - 2].h if k > 1 else network.h0
        by_w = torch.einsum("ia,b->iab", torch.eye(3, dtype=torch.float64), before)  # ∂s_i/∂w_ab
        total += torch.einsum("i,iab->ab", g, by_w)
    torch.testing.assert_close(total, theirs, atol=1e-12, rtol=0)
    torch.testing.assert_close(sum(t.value for t in terms(network, made, 4)), theirs, atol=1e-12, rtol=0)


def test_r31_e_is_the_sum_of_the_costs_and_its_gradients_the_sums_of_theirs():
    network = random_network(steps=3, hidden=2, seed=1)
    numbers = bptt_numbers(network)
    u, w, v = (getattr(network, name).clone().requires_grad_() for name in "uwv")
    h, error = network.h0, torch.zeros((), dtype=torch.float64)
    for x, y in zip(network.x, network.y):
        h = torch.tanh(u.T @ x + w @ h)
        error = error + nn.functional.cross_entropy((v @ h)[None], y[None])
    error.backward()
    assert numbers["error"] == pytest.approx(error.item(), abs=1e-12)
    for name, weight in (("u", u), ("w", w), ("v", v)):
        assert np.abs(np.array(numbers["gradients"][name]["total"]) - weight.grad.numpy()).max() < 1e-12


def test_r32_the_gradient_of_a_repeated_weight_is_the_sum_over_its_appearances():
    cell = TanhCell(2, 3).double()
    x = torch.randn(5, 2, dtype=torch.float64)
    copies = [cell.weight_h.detach().clone().requires_grad_() for _ in x]

    def last(weights):
        h = torch.zeros(3, dtype=torch.float64)
        for one, w in zip(x, weights):
            h = torch.tanh(cell.weight_x @ one + w @ h + cell.bias)
        return h.sum()

    whole = torch.autograd.grad(last([cell.weight_h] * 5), cell.weight_h)[0]
    torch.testing.assert_close(whole, sum(torch.autograd.grad(last(copies), copies)), atol=1e-14, rtol=0)


def test_r33_the_multivariable_chain_rule():
    t, step = 0.7, 1e-6

    def f(t):
        x, y = np.sin(t), t**2
        return x * np.exp(y)

    x, y = np.sin(t), t**2
    by_rule = np.exp(y) * np.cos(t) + x * np.exp(y) * 2 * t  # ∂f/∂x · dx/dt + ∂f/∂y · dy/dt
    assert by_rule == pytest.approx((f(t + step) - f(t - step)) / (2 * step), rel=1e-8)


def test_r34_no_gradient_reaches_the_heads_of_outputs_that_do_not_count():
    network = random_network(steps=5, hidden=2, seed=3)
    heads = [network.v.clone().requires_grad_() for _ in range(5)]
    h, losses = network.h0, []
    for x, y, v in zip(network.x, network.y, heads):
        h = torch.tanh(network.u.T @ x + network.w @ h)
        losses.append(nn.functional.cross_entropy((v @ h)[None], y[None]))
    sum(losses[2:]).backward()
    assert [head.grad is None for head in heads] == [True, True, False, False, False]
    numbers = bptt_numbers(network, costs=(3, 4, 5))
    assert [cost["t"] for cost in numbers["gradients"]["v"]["costs"]] == [3, 4, 5]
    expected = sum(head.grad for head in heads[2:])
    assert np.abs(np.array(numbers["gradients"]["v"]["total"]) - expected.numpy()).max() < 1e-12
    assert [len(cost["terms"]) for cost in numbers["gradients"]["w"]["costs"]] == [3, 4, 5]  # w's early uses do count


def test_r35_no_term_reaches_across_the_cut_and_values_stay():
    network = random_network(steps=4, hidden=2)
    whole, cut = bptt_numbers(network), bptt_numbers(network, cut=2)
    assert whole["forward"] == cut["forward"]
    assert [[term["k"] for term in cost["terms"]] for cost in cut["gradients"]["w"]["costs"]] == [
        [1],
        [2, 1],
        [3],
        [4, 3],
    ]
    for before in by_autograd(network, 4, cut=2)["w"][:2]:
        assert (before == 0).all()
    assert cut["largest_difference"] < 1e-12


MODELS = {
    "tanh": lambda: RNNLanguageModel(RNNConfig(vocabulary=7, hidden=6)),
    "sigmoid": lambda: RNNLanguageModel(RNNConfig(vocabulary=7, hidden=6, activation="sigmoid")),
    "relu": lambda: RNNLanguageModel(RNNConfig(vocabulary=7, hidden=6, activation="relu")),
    "gru": lambda: GRULanguageModel(RecurrentConfig(vocabulary=7, hidden=6)),
    "gru-cho": lambda: ChoGRULanguageModel(RecurrentConfig(vocabulary=7, hidden=6)),
    "lstm": lambda: LSTMLanguageModel(LSTMConfig(vocabulary=7, hidden=6)),
    "projected": lambda: LSTMLanguageModel(LSTMConfig(vocabulary=7, hidden=6, projection=3)),
    "residual": lambda: LSTMLanguageModel(LSTMConfig(vocabulary=7, hidden=6, layers=2, connect="residual")),
}


@pytest.mark.parametrize("name", MODELS)
def test_r36_norms_lie_under_the_bound_of_the_jacobians(name):
    flow = gradient_flow(MODELS[name](), TOKENS)
    low = np.tril(np.ones_like(flow.norms)) > 0
    assert flow.bound is not None and (flow.norms[low] <= flow.bound[low] * (1 + 1e-9)).all()
    assert (flow.norms[~low] == 0).all() and np.diag(flow.norms).min() > 0
    np.testing.assert_allclose(np.diag(flow.bound), np.diag(flow.norms))


def test_r36_a_jacobian_is_diag_of_the_slope_times_w():
    cell = TanhCell(3, 4).double()
    a, h = torch.randn(1, 4, dtype=torch.float64), torch.randn(1, 4, dtype=torch.float64)
    (after,) = cell.step(a, (h,))
    expected = torch.diag(1 - after[0] ** 2) @ cell.weight_h
    torch.testing.assert_close(jacobian(cell, a, (h,)), expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(torch.diag(SLOPES[TanhCell][0](after)[0]) @ cell.weight_h, expected, atol=1e-12, rtol=0)
    exact = torch.linalg.matrix_norm(expected, 2).item()
    assert largest_singular_value(expected.detach()) == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("size", [0.5, 2.0])
def test_r36_without_a_nonlinearity_flow_is_the_power_of_the_largest_eigenvalue(size):
    model = MODELS["relu"]()
    cell = model.stack.layers[0].cell
    with torch.no_grad():  # always above 0, where relu is the identity
        cell.weight_h.copy_(size * torch.eye(6))
        cell.weight_x.zero_()
        cell.bias.fill_(1.0)
    flow = gradient_flow(model, TOKENS[:13])
    rows = by_distance(flow.norms)
    expected = [np.diagonal(flow.norms)[row["distance"] :] * size ** row["distance"] for row in rows]
    assert [row["mean"] for row in rows] == pytest.approx([values.mean() for values in expected], rel=1e-9)
    assert flow.weight["eigenvalue"] == pytest.approx(size) and flow.weight["singular_value"] == pytest.approx(size)
    low = np.tril(np.ones_like(flow.norms)) > 0
    np.testing.assert_allclose(flow.bound[low], flow.norms[low], rtol=1e-9)  # here the bound is what happens


def test_r36_the_threshold_is_four_for_the_sigmoid_and_one_for_tanh():
    for name, threshold in (("tanh", 1.0), ("sigmoid", 4.0)):
        model = MODELS[name]()
        weight = model.stack.layers[0].cell.weight_h
        with torch.no_grad():
            weight.mul_(0.9 * threshold / torch.linalg.matrix_norm(weight, 2))
        flow = gradient_flow(model, TOKENS)
        assert flow.weight["vanishes_below"] == threshold
        T = len(flow.norms)
        away = np.subtract.outer(np.arange(T), np.arange(T)).clip(min=0)
        assert (flow.norms <= np.diag(flow.norms)[:, None] * 0.9**away * (1 + 1e-6)).all()


def flow_of(model):
    return by_distance(gradient_flow(model, torch.randint(7, (61,))).norms)


def test_r37_an_lstm_with_forget_gates_near_one_keeps_its_gradient_and_a_tanh_rnn_does_not():
    """Constructed weights, no training: W_h has norm 0.9, the forget gates are σ(9) = 0.9999."""
    lstm, rnn = MODELS["lstm"](), MODELS["tanh"]()
    cell, plain = lstm.stack.layers[0].cell, rnn.stack.layers[0].cell
    with torch.no_grad():
        cell.weight_h.mul_(0.1)
        cell.weight_x[6:12] = 0
        cell.bias[6:12] = 9.0
        plain.weight_h.mul_(0.9 / torch.linalg.matrix_norm(plain.weight_h, 2))
    kept, lost = flow_of(lstm), flow_of(rnn)
    assert kept[50]["mean"] > 0.5 * kept[1]["mean"] and 0.98 < factor_per_step(kept) < 1.02
    assert lost[50]["mean"] < 1e-2 * lost[1]["mean"] and factor_per_step(lost) <= 0.9
    with torch.no_grad():
        cell.bias[6:12] = 0.0  # half forgotten at each step
    assert factor_per_step(flow_of(lstm)) < 0.7


def test_r37_attention_reaches_back_at_once_and_a_window_not_beyond_itself():
    gpt = flow_of(GPTLanguageModel(GPTConfig(vocabulary=7, layers=2, heads=2, hidden=8, context=64)))
    assert gpt[50]["mean"] > 0.1 * gpt[5]["mean"]
    window = flow_of(WindowLanguageModel(WindowConfig(vocabulary=7, context=4, embedding=4, hidden=8)))
    assert window[3]["mean"] > 0 and all(row["mean"] == 0 for row in window[4:])


@pytest.mark.parametrize("name", ["gru", "lstm", "residual"])
def test_r37_flow_in_batches_is_flow_one_by_one(name):
    model = MODELS[name]().double()
    norms = gradient_flow(model, TOKENS).norms
    assert model.stack.layers[-1].cell.watch is None  # nobody looks on afterwards
    state, held = model.start(1), []
    for token, target in pairwise(TOKENS):
        log_p, state = model.log_prob(token.view(1, 1), target.view(1, 1), state)
        state = state.map(torch.clone)  # what is carried on, apart from what was said of this token
        held.append(state.layers[-1].memory)
    flat = [part for memory in held[:-1] for part in memory]
    grads = torch.autograd.grad(-log_p.sum(), flat)
    squares = torch.stack([grad.square().sum() for grad in grads]).view(len(held) - 1, -1).sum(1)
    assert norms[-1, :-1] == pytest.approx(squares.sqrt().numpy(), rel=1e-9)


def test_r41_an_identity_path_keeps_the_gradient_of_low_layers():
    norms = {}
    for connect in ("plain", "residual"):
        torch.manual_seed(0)
        model = RNNLanguageModel(RNNConfig(vocabulary=7, hidden=6, layers=12, connect=connect))
        norms[connect] = np.diag(gradient_flow(model, TOKENS[:9], layer=1).norms).mean()
    assert norms["residual"] > 100 * norms["plain"]


def test_r42_the_sgd_update_and_a_step_that_is_too_large():
    """J = ½ λ θ²: θ ← (1 − αλ) θ, which goes to 0 for α < 2/λ and away from it for α > 2/λ."""
    curvature = 4.0
    for rate, converges in ((0.1, True), (0.49, True), (0.51, False)):
        model = nn.Linear(1, 1, bias=False)
        with torch.no_grad():
            model.weight.fill_(1.0)
        optimiser = build_optimiser(model, TrainSettings(optimiser="sgd", lr=rate, momentum=0.0))
        way = []
        for _ in range(60):
            optimiser.zero_grad()
            before = model.weight.item()
            (0.5 * curvature * model.weight.square()).sum().backward()
            optimiser.step()
            assert model.weight.item() == pytest.approx(before - rate * curvature * before, rel=1e-5)
            way.append(abs(model.weight.item()))
        assert (way[-1] < 0.5) == converges and (way[-1] > 2) == (not converges)


def test_bounds_are_products_from_k_plus_one_to_t():
    norms = np.diag([1.0, 2.0, 3.0])
    found = bounds(norms, [9.0, 5.0, 7.0])
    np.testing.assert_allclose(found, [[1, 0, 0], [10, 2, 0], [105, 21, 3]])
