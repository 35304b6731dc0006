"""The network with a gate: the fused kernel and the gate's loops are the equation."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad

from ensue.kernels.gated_feed_forward import GATES, _GatedFeedForward, gate, gated_feed_forward
from ensue.kernels.kernel import use
from ensue.nn.adapters import AdaptedLinear
from ensue.nn.gated_feed_forward import GatedFeedForward

NAMES = ("x", "w_gate", "b_gate", "w_up", "b_up", "w_down", "b_down")


def inputs() -> list[Tensor]:
    torch.manual_seed(0)
    sizes = ((7, 4), (10, 4), (10,), (10, 4), (10,), (4, 10), (4,))
    return [torch.randn(*size, dtype=torch.float64, requires_grad=True) for size in sizes]


def answers(layer: GatedFeedForward, x: Tensor, implementation: str) -> list[Tensor]:
    with use(implementation):
        y = layer(x)
    return [y, *torch.autograd.grad(y.sin().sum(), [x, *layer.parameters()])]


@pytest.mark.parametrize("activation", GATES)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("rows", "inner"), [(1, 5), (3, 16), (150, 37), (300, 64)])
def test_output_and_gradients_are_those_of_the_equation(activation: str, bias: bool, rows: int, inner: int) -> None:
    torch.manual_seed(0)
    layer, x = GatedFeedForward(8, inner, activation, bias), (3 * torch.randn(rows, 8)).requires_grad_()
    for ours, wanted in zip(answers(layer, x, "fused"), answers(layer, x, "reference"), strict=True):
        torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("activation", GATES)
@pytest.mark.parametrize("size", [16, 17, 31, 8192, 8193, 16400])
def test_the_loops_are_the_equation_far_out_too(activation: str, size: int) -> None:
    torch.manual_seed(0)
    g, u, above = (4 * torch.randn(1, size) for _ in range(3))
    g[0, :6] = torch.tensor([-1e5, -90.0, -12.0, 0.0, 12.0, 1e5])
    exact = [one.double().requires_grad_() for one in (g, u)]
    wanted = GATES[activation](exact[0]) * exact[1]
    g.requires_grad_()
    u.requires_grad_()
    assert gate.choice(g, u, activation) == "one_pass"
    found = gate(g, u, activation)
    pairs = zip(torch.autograd.grad(found, [g, u], above), torch.autograd.grad(wanted, exact, above.double()))
    for ours, right in ((found, wanted), *pairs):
        torch.testing.assert_close(ours, right.float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("activation", GATES)
def test_what_is_not_finite_is_not_hidden(activation: str) -> None:
    layer, x = GatedFeedForward(4, 10, activation), torch.randn(3, 4)
    x[0, 0], x[1, 0] = float("nan"), float("inf")
    y = layer(x)
    assert not y[:2].isfinite().any() and y[2].isfinite().all()


@pytest.mark.parametrize("activation", GATES)
def test_the_gradient_of_a_gradient_is_right(activation: str) -> None:
    assert torch.autograd.gradgradcheck(lambda *all_: _GatedFeedForward.apply(*all_, activation), inputs())


@pytest.mark.parametrize("learnt", NAMES)
def test_only_what_is_learnt_gets_a_gradient(learnt: str) -> None:
    held = [one.requires_grad_(name == learnt) for name, one in zip(NAMES, (t.detach() for t in inputs()), strict=True)]
    _GatedFeedForward.apply(*held, "swiglu").sum().backward()  # type: ignore[no-untyped-call]
    assert [name for name, one in zip(NAMES, held, strict=True) if one.grad is not None] == [learnt]


def test_the_backward_pass_can_run_twice() -> None:
    layer, x = GatedFeedForward(8, 32), torch.randn(5, 8, requires_grad=True)
    y = layer(x).sum()
    first = torch.autograd.grad(y, x, retain_graph=True)
    assert torch.equal(first[0], torch.autograd.grad(y, x)[0])


def test_hooks_are_called_and_any_shape_is_taken() -> None:
    layer, seen = GatedFeedForward(4, 10), []
    x = torch.randn(2, 3, 5, 4)
    y = layer(x)
    assert y.shape == x.shape and layer(torch.randn(0, 3, 4)).shape == (0, 3, 4)
    layer.up.register_forward_hook(lambda *given: seen.append(given))
    torch.testing.assert_close(layer(x), y)
    assert len(seen) == 1


def test_layers_with_adapters_and_evaluation_use_the_gate_alone() -> None:
    torch.manual_seed(0)
    layer, x = GatedFeedForward(8, 32, bias=False), torch.randn(5, 8, requires_grad=True)
    wanted = layer(x)
    with torch.no_grad():
        torch.testing.assert_close(layer(x), wanted)
    adapted = nn.ModuleList(AdaptedLinear(one, 2, 1.0) for one in (layer.gate, layer.up, layer.down))
    assert gated_feed_forward.choice(x, *adapted, "swiglu") == "reference"
    torch.testing.assert_close(gated_feed_forward(x, *adapted, "swiglu"), wanted)


def test_torch_func_goes_through() -> None:
    layer, x = GatedFeedForward(4, 10), torch.randn(3, 4)
    held = dict(layer.named_parameters())
    found = grad(lambda weights: functional_call(layer, weights, x).sum())(held)
    layer(x).sum().backward()
    for name, weight in held.items():
        torch.testing.assert_close(found[name], weight.grad)
