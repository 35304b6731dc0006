"""The loss of an output layer: the sliced kernel is the plain one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ensue.nn import output
from ensue.nn.output import mean_cross_entropy


def losses(kernel: str, smoothing: float, bias: bool) -> list[Tensor]:
    """The loss and its gradients."""
    torch.manual_seed(0)
    hidden = torch.randn(37, 8, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(11, 8, dtype=torch.float64, requires_grad=True)
    offset = torch.randn(11, dtype=torch.float64, requires_grad=True) if bias else None
    loss = mean_cross_entropy(hidden, weight, offset, torch.randint(11, (37,)), smoothing, kernel)
    (3 * loss).backward()  # type: ignore[no-untyped-call]
    held = [hidden, weight, *([offset] if offset is not None else [])]
    return [loss.detach(), *(one.grad for one in held if one.grad is not None)]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [1, 5, 1000])
def test_slices_give_the_loss_and_the_gradients_of_the_whole(
    monkeypatch: pytest.MonkeyPatch, smoothing: float, bias: bool, rows: int
) -> None:
    monkeypatch.setattr(output, "SLICE", 11 * rows)
    for plain, ours in zip(losses("reference", smoothing, bias), losses("sliced", smoothing, bias), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-12)


def test_a_loss_without_gradients_is_the_same() -> None:
    hidden, weight, targets = torch.randn(9, 4), torch.randn(5, 4), torch.randint(5, (9,))
    with torch.no_grad():
        ours = mean_cross_entropy(hidden, weight, None, targets, kernel="sliced")
    torch.testing.assert_close(ours, mean_cross_entropy(hidden, weight, None, targets, kernel="reference"))


def test_a_token_that_can_never_be_costs_nothing_where_nothing_is_smoothed() -> None:
    hidden, weight, targets = torch.randn(9, 4), torch.randn(5, 4), torch.randint(4, (9,))
    bias = torch.tensor([0.0, 0.0, 0.0, 0.0, -torch.inf])
    ours = mean_cross_entropy(hidden, weight, bias, targets, kernel="sliced")
    torch.testing.assert_close(ours, mean_cross_entropy(hidden, weight, bias, targets, kernel="reference"))
    assert ours.isfinite()


def test_only_what_is_learnt_gets_a_gradient() -> None:
    hidden, weight = torch.randn(9, 4, requires_grad=True), torch.randn(5, 4)
    mean_cross_entropy(hidden, weight, None, torch.randint(5, (9,)), kernel="sliced").backward()  # type: ignore[no-untyped-call]
    assert hidden.grad is not None and weight.grad is None


def test_half_precision_takes_the_kernel_that_is_safe() -> None:
    hidden, weight, targets = torch.randn(3000, 8).half(), 3 * torch.randn(50, 8).half(), torch.randint(50, (3000,))
    assert mean_cross_entropy(hidden, weight, None, targets).isfinite()
