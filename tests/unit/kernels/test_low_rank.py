"""A layer with a low-rank update is the layer with the sum as its weights, and only the update gets a gradient."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ensue.kernels import matmul
from ensue.kernels.grouped import GroupedLinear, group_weights
from ensue.kernels.kernel import use
from ensue.kernels.low_rank import low_rank_linear


def frozen(kind, bias):
    """A layer of 64 inputs and 48 outputs whose weights have no gradient."""
    torch.manual_seed(0)
    if kind == "float":
        return nn.Linear(64, 48, bias=bias).requires_grad_(False)
    codes = torch.randint(16, (48, 2, 32), dtype=torch.uint8)
    parts = group_weights(codes, torch.rand(48, 2) / 50, -torch.rand(48, 2) / 5)
    return GroupedLinear(*parts, 48, torch.randn(48) if bias else None)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", ["float", "groups"])
@pytest.mark.parametrize("rows", [1, 7, 128])
@pytest.mark.parametrize("amd", [True, False])
def test_outputs_and_gradients_are_those_of_the_sum(kind, bias, rows, amd, monkeypatch):
    monkeypatch.setattr(matmul, "_amd", lambda: amd)
    layer = frozen(kind, bias)
    x, down, up = (torch.randn(*shape).requires_grad_() for shape in ((rows, 64), (3, 64), (48, 3)))
    above = torch.randn(rows, 48)
    y = low_rank_linear(layer, x, down, up, 0.5)
    found = torch.autograd.grad(y, (x, down, up), above)
    wanted = F.linear(x, layer.weight + 0.5 * up @ down, layer.bias)
    torch.testing.assert_close(y, wanted, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found, torch.autograd.grad(wanted, (x, down, up), above), rtol=1e-4, atol=1e-3)


def test_weights_that_learn_get_their_gradient():
    layer = nn.Linear(64, 48)
    x, down, up = torch.randn(5, 64), torch.randn(3, 64), torch.randn(48, 3)
    low_rank_linear(layer, x, down, up, 0.5).sum().backward()
    assert layer.weight.grad is not None and layer.bias.grad is not None


def test_a_gradient_of_a_gradient():
    layer = frozen("groups", True)
    x, down, up = (torch.randn(*shape).requires_grad_() for shape in ((5, 64), (3, 64), (48, 3)))

    def second(kernel):
        with use(kernel):
            y = low_rank_linear(layer, x, down, up, 0.5).square().sum()
            (first,) = torch.autograd.grad(y, x, create_graph=True)
            return torch.autograd.grad(first.square().sum(), (down, up))

    torch.testing.assert_close(second("frozen"), second("reference"), rtol=1e-4, atol=1e-2)
