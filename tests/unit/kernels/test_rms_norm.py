"""RMSNorm in one pass is torch's, and takes everything that torch's takes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from ensue.kernels.kernel import use
from ensue.kernels.rms_norm import rms_norm
from ensue.nn.norms import RMSNorm


def answers(layer: nn.Module, x: Tensor) -> list[Tensor]:
    z = layer(x)
    return [z, *torch.autograd.grad(z.sin().sum(), [x, *layer.parameters()])]


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (150, 16), (2, 70, 3, 33), (64, 128)])
@pytest.mark.parametrize("epsilon", [None, 1e-5, 0.1])
def test_output_and_gradients_are_those_of_torch(shape: tuple[int, ...], epsilon: float | None) -> None:
    torch.manual_seed(0)
    ours, torchs = RMSNorm(shape[-1], eps=epsilon), nn.RMSNorm(shape[-1], eps=epsilon)
    nn.init.normal_(ours.weight)
    torchs.load_state_dict(ours.state_dict())
    x = (3 * torch.randn(shape)).requires_grad_()
    for found, wanted in zip(answers(ours, x), answers(torchs, x), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_a_row_of_zeros_has_a_gradient_and_what_is_not_finite_is_not_hidden() -> None:
    layer, x = RMSNorm(16, eps=1e-5), torch.zeros(3, 16, requires_grad=True)
    z = layer(x)
    (by_x,) = torch.autograd.grad(z.sum(), x)
    assert not z.any() and torch.allclose(by_x, torch.full_like(by_x, 1e-5**-0.5))
    y = torch.randn(3, 16)
    y[0, 0], y[1, 0] = float("nan"), float("inf")
    z = layer(y)
    assert z[0].isnan().all() and z[1, 0].isnan() and z[2].isfinite().all()


def test_rows_that_lie_apart_and_no_rows_are_taken() -> None:
    torch.manual_seed(0)
    layer, x = RMSNorm(16), torch.randn(5, 7, 32)[..., ::2]
    torch.testing.assert_close(layer(x), nn.RMSNorm(16)(x))
    assert layer(torch.zeros(0, 16)).shape == (0, 16)


def test_other_types_and_frozen_weights_are_taken() -> None:
    layer, x = RMSNorm(16), torch.randn(5, 16)
    assert layer.double()(x.double()).dtype == torch.float64
    assert rms_norm.choice(x.double(), layer.weight, 1e-5) == "reference"
    layer.float().requires_grad_(False)
    x.requires_grad_()
    layer(x).sum().backward()
    assert x.grad is not None and layer.weight.grad is None


def test_the_gradient_of_a_gradient_is_right() -> None:
    torch.manual_seed(0)
    layer, x = RMSNorm(16, eps=1e-5), torch.randn(4, 16, requires_grad=True)
    found = []
    for implementation in ("one_pass", "reference"):
        with use(implementation):
            (by_x,) = torch.autograd.grad(layer(x).sin().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(by_x.square().sum(), [x, layer.weight]))
    for ours, wanted in zip(*found, strict=True):
        torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=1e-4)
