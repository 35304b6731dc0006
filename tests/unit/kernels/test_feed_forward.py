"""The two-layer network: the fused kernel is the equation."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad

from ensue.kernels.feed_forward import ACTIVATIONS, _FeedForward, equation, feed_forward
from ensue.nn.feed_forward import FeedForward

IMPLEMENTATIONS: dict[str, Callable[..., Tensor]] = {"equation": equation, "fused": _FeedForward.apply}

NAMES = ("x", "up", "up_bias", "down", "down_bias")


def inputs() -> list[Tensor]:
    torch.manual_seed(0)
    sizes = ((7, 4), (10, 4), (10,), (4, 10), (4,))
    return [torch.randn(*size, dtype=torch.float64, requires_grad=True) for size in sizes]


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_fused_kernel_gives_the_output_and_all_gradients(activation: str) -> None:
    found = []
    for kernel in ("equation", "fused"):
        held = inputs()
        y = IMPLEMENTATIONS[kernel](*held, activation)
        y.square().sum().backward()  # type: ignore[no-untyped-call]
        found.append([y.detach(), *(one.grad for one in held)])
    for name, plain, ours in zip(("y", *NAMES), *found, strict=True):
        assert plain is not None and ours is not None
        torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-12, msg=name)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_single_precision_over_many_rows_is_the_same(activation: str) -> None:
    """Here loops of our own run, part by part; the last one is not full."""
    found = []
    for kernel in ("equation", "fused"):
        torch.manual_seed(0)
        held = [torch.randn(*size, requires_grad=True) for size in ((150, 4), (37, 4), (37,), (4, 37), (4,))]
        y = IMPLEMENTATIONS[kernel](*held, activation)
        y.square().mean().backward()  # type: ignore[no-untyped-call]
        found.append([y.detach(), *(one.grad for one in held)])
    for name, plain, ours in zip(("y", *NAMES), *found, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-4, msg=name)


@pytest.mark.parametrize("width", [5, 16, 37])
def test_the_loops_of_gelu_are_the_equation_far_out_too(width: int) -> None:
    activation, names = ACTIVATIONS["gelu"], torch.eye(width)
    torch.manual_seed(0)
    x, above = 4 * torch.randn(70, width), torch.randn(70, width)
    x[0, :5] = torch.tensor([-1e5, -12.0, 0.0, 12.0, 1e5])
    u = x.double().requires_grad_()
    wanted = activation.plain(u)
    (by_u,) = torch.autograd.grad(wanted, u, above.double())
    h, kept = activation.forward(x, names, torch.zeros(width))
    again, ours, sums = activation.backward(above.clone(), *kept)
    assert torch.equal(h, again) and len(kept) == 1
    for found, right in ((h, wanted), (ours, by_u), (sums, by_u.sum(0))):
        torch.testing.assert_close(found, right.float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_what_is_not_finite_is_not_hidden(activation: str) -> None:
    layer, x = FeedForward(4, 10, activation), torch.randn(3, 4)
    x[0, 0], x[1, 0] = float("nan"), float("inf")
    y = layer(x)
    assert not y[:2].isfinite().any() and y[2].isfinite().all()


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_outside_autograd_the_output_is_the_same_and_the_input_is_left_alone(activation: str) -> None:
    layer, x = FeedForward(4, 10, activation).double(), torch.randn(7, 4, dtype=torch.float64)
    before = x.clone()
    with torch.no_grad():
        assert feed_forward.choice(x, layer.up, layer.down, activation) == "in_place"
        found, wanted = layer(x), feed_forward.reference(x, layer.up, layer.down, activation)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    assert torch.equal(x, before)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_gradient_of_a_gradient_is_right(activation: str) -> None:
    held = inputs()
    assert torch.autograd.gradgradcheck(lambda *all_: _FeedForward.apply(*all_, activation), held)


@pytest.mark.parametrize("learnt", NAMES)
def test_only_what_is_learnt_gets_a_gradient(learnt: str) -> None:
    held = [one.requires_grad_(name == learnt) for name, one in zip(NAMES, (t.detach() for t in inputs()), strict=True)]
    _FeedForward.apply(*held, "relu").sum().backward()  # type: ignore[no-untyped-call]
    assert [name for name, one in zip(NAMES, held, strict=True) if one.grad is not None] == [learnt]


def test_the_input_is_left_alone_and_any_shape_is_taken() -> None:
    layer = FeedForward(4, 10, "relu")
    x = torch.randn(2, 3, 5, 4)
    before = x.clone()
    assert layer(x).shape == x.shape and torch.equal(x, before)
    assert layer(torch.randn(0, 3, 4)).shape == (0, 3, 4)
    with torch.no_grad():
        torch.testing.assert_close(layer(x), layer.down(layer.up(x).relu()))


def test_torch_func_goes_through() -> None:
    layer, x = FeedForward(4, 10), torch.randn(3, 4)
    held = dict(layer.named_parameters())
    found = grad(lambda weights: functional_call(layer, weights, x).sum())(held)
    layer(x).sum().backward()
    for name, weight in held.items():
        torch.testing.assert_close(found[name], weight.grad)
