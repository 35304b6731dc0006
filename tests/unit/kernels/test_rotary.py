"""Rotary positions in one pass over memory: the same numbers to the bit, in both directions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ensue.kernels.kernel import use
from ensue.kernels.rotary import rotate


def angles(rows: int, time: int, width: int) -> tuple[Tensor, Tensor]:
    speeds = 100.0 ** (-torch.arange(0, width, 2).double() / width)
    turned = (torch.arange(time).double() + 3 * torch.arange(rows)[:, None])[..., None] * speeds
    both = torch.cat([turned, turned], dim=-1)
    return both.cos().float(), both.sin().float()


def results(x: Tensor, cos: Tensor, sin: Tensor, width: int) -> list[Tensor]:
    y = rotate(x, cos, sin, width)
    return [y.detach(), *torch.autograd.grad((y * torch.linspace(-1, 1, y.numel()).view_as(y)).sum(), x)]


@pytest.mark.parametrize("rows_of_angles", [1, 5])
@pytest.mark.parametrize(("head", "heads", "rest"), [(32, 8, 128), (6, 3, 5), (2, 1, 0)])
def test_one_pass_gives_the_bits_of_plain_operations(head: int, heads: int, rest: int, rows_of_angles: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 33, head * heads + rest, requires_grad=True)
    cos, sin = angles(rows_of_angles, 33, head)
    assert rotate.choice(x, cos, sin, head * heads) == "one_pass"
    found = results(x, cos, sin, head * heads)
    with use("reference"):
        wanted = results(x, cos, sin, head * heads)
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one, other)


def test_a_gradient_of_the_gradient_goes_through_the_equation() -> None:
    torch.manual_seed(0)
    x, (cos, sin) = torch.randn(2, 3, 12, requires_grad=True), angles(1, 3, 4)
    found = []
    for name in ("reference", "one_pass"):
        with use(name):
            y = rotate(x, cos, sin, 8)
            (by,) = torch.autograd.grad(y.pow(3).sum(), x, create_graph=True)
            found.append(torch.autograd.grad(by.square().sum(), x)[0])
    torch.testing.assert_close(found[1], found[0])


def test_other_types_and_transposed_rows_take_plain_operations() -> None:
    x, (cos, sin) = torch.randn(2, 3, 12), angles(1, 3, 4)
    assert rotate.choice(x.double(), cos.double(), sin.double(), 8) == "reference"
    assert rotate.choice(x.transpose(0, 1).contiguous().transpose(0, 1), cos, sin, 8) == "reference"
