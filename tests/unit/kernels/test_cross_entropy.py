"""The loss of an output layer: the sliced kernel is the plain one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import grad, jvp, vmap

from ensue.kernels import cross_entropy as output
from ensue.kernels import sliced_loss
from ensue.kernels.cross_entropy import mean_cross_entropy

IMPLEMENTATIONS = mean_cross_entropy.implementations | {"auto": mean_cross_entropy}


def losses(kernel: str, smoothing: float, bias: bool) -> list[Tensor]:
    """The loss and its gradients."""
    torch.manual_seed(0)
    hidden = torch.randn(37, 8, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(11, 8, dtype=torch.float64, requires_grad=True)
    offset = torch.randn(11, dtype=torch.float64, requires_grad=True) if bias else None
    loss = IMPLEMENTATIONS[kernel](hidden, weight, offset, torch.randint(11, (37,)), smoothing)
    (3 * loss).backward()  # type: ignore[no-untyped-call]
    held = [hidden, weight, *([offset] if offset is not None else [])]
    return [loss.detach(), *(one.grad for one in held if one.grad is not None)]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("rows", "columns"), [(1, 3), (5, 11), (1000, 4)])
def test_slices_give_the_loss_and_the_gradients_of_the_whole(
    monkeypatch: pytest.MonkeyPatch, smoothing: float, bias: bool, rows: int, columns: int
) -> None:
    monkeypatch.setattr(output, "SLICE", 11 * rows)
    monkeypatch.setattr(output, "COLUMNS", columns)
    for plain, ours in zip(losses("reference", smoothing, bias), losses("sliced", smoothing, bias), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-12)


def test_only_the_last_slice_has_rows_to_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "SLICE", 11 * 333)
    seen: list[int] = []
    softened = output._exponentials
    monkeypatch.setattr(output, "_exponentials", lambda h, *others: seen.append(len(h)) or softened(h, *others))
    IMPLEMENTATIONS["sliced"](torch.randn(3071, 8), torch.randn(11, 8), None, torch.randint(11, (3071,)))
    assert seen == [320] * 9 + [192]  # one of 3072


@pytest.mark.parametrize("columns", [16, 37, 2048])
def test_the_loop_that_softens_columns_gives_the_same(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setattr(output, "COLUMNS", columns)
    found = []
    for kernel in ("reference", "sliced"):
        torch.manual_seed(0)
        hidden, weight = (torch.randn(150, 8) * 4).requires_grad_(), torch.randn(100, 8, requires_grad=True)
        loss = IMPLEMENTATIONS[kernel](hidden, weight, torch.randn(100), torch.randint(100, (150,)), 0.1)
        found.append([loss.detach(), *torch.autograd.grad(loss, (hidden, weight))])
    for plain, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_columns_of_tokens_that_can_never_be_cost_nothing(monkeypatch: pytest.MonkeyPatch, kind: torch.dtype) -> None:
    monkeypatch.setattr(output, "COLUMNS", 2)
    hidden, weight, targets = torch.randn(9, 4, dtype=kind), torch.randn(6, 4, dtype=kind), torch.randint(2, (9,))
    bias = torch.tensor([0.0, 0.0, -torch.inf, -torch.inf, 0.0, 0.0], dtype=kind)
    ours = IMPLEMENTATIONS["sliced"](hidden, weight, bias, targets)
    torch.testing.assert_close(ours, IMPLEMENTATIONS["reference"](hidden, weight, bias, targets))
    assert ours.isfinite()


def test_a_loss_without_gradients_is_the_same() -> None:
    hidden, weight, targets = torch.randn(9, 4), torch.randn(5, 4), torch.randint(5, (9,))
    with torch.no_grad():
        ours = IMPLEMENTATIONS["sliced"](hidden, weight, None, targets)
    torch.testing.assert_close(ours, IMPLEMENTATIONS["reference"](hidden, weight, None, targets))


def test_a_token_that_can_never_be_costs_nothing_where_nothing_is_smoothed() -> None:
    hidden, weight, targets = torch.randn(9, 4), torch.randn(5, 4), torch.randint(4, (9,))
    bias = torch.tensor([0.0, 0.0, 0.0, 0.0, -torch.inf])
    ours = IMPLEMENTATIONS["sliced"](hidden, weight, bias, targets)
    torch.testing.assert_close(ours, IMPLEMENTATIONS["reference"](hidden, weight, bias, targets))
    assert ours.isfinite()


def test_the_gradient_of_a_gradient_is_that_of_the_whole() -> None:
    found = []
    for kernel in ("reference", "sliced"):
        torch.manual_seed(0)
        hidden = torch.randn(9, 4, dtype=torch.float64, requires_grad=True)
        weight = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
        loss = IMPLEMENTATIONS[kernel](hidden, weight, None, torch.randint(5, (9,)), 0.1)
        first = torch.autograd.grad(loss, (hidden, weight), create_graph=True)
        found.append(torch.autograd.grad(sum(one.square().sum() for one in first), (hidden, weight)))
    for plain, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-12)


def test_only_what_is_learnt_gets_a_gradient() -> None:
    hidden, weight = torch.randn(9, 4, requires_grad=True), torch.randn(5, 4)
    IMPLEMENTATIONS["sliced"](hidden, weight, None, torch.randint(5, (9,))).backward()  # type: ignore[no-untyped-call]
    assert hidden.grad is not None and weight.grad is None


def setting() -> tuple[nn.Linear, Tensor, Tensor]:
    """A layer, hidden states and targets with so many logits that slices would be made of them."""
    layer = nn.Linear(4, 2048).double()
    tokens = sliced_loss.FEW // 2048
    return layer, torch.randn(tokens, 4, dtype=torch.float64), torch.randint(2048, (tokens,))


def of(layer: nn.Linear, parameters: dict[str, Tensor], hidden: Tensor, targets: Tensor, kernel: str) -> Tensor:
    """The loss as a function of the layer's parameters."""
    return IMPLEMENTATIONS[kernel](hidden, parameters["weight"], parameters["bias"], targets, 0.1)


def test_functional_gradients_are_those_of_the_plain_kernel() -> None:
    layer, hidden, targets = setting()
    parameters = {name: value.detach() for name, value in layer.named_parameters()}
    ours, plain = (
        grad(lambda p: of(layer, p, hidden, targets, kernel))(parameters)  # noqa: B023
        for kernel in ("auto", "reference")
    )
    for name, value in plain.items():
        torch.testing.assert_close(ours[name], value, rtol=1e-12, atol=1e-12)


def test_gradients_of_each_row_add_up_to_that_of_all() -> None:
    layer, hidden, targets = setting()
    parameters = {name: value.detach() for name, value in layer.named_parameters()}
    halves = hidden.unflatten(0, (2, -1)), targets.unflatten(0, (2, -1))
    hidden, targets = (torch.cat([half, half], 1) for half in halves)  # still enough for slices
    each = vmap(lambda h, y: grad(lambda p: of(layer, p, h, y, "auto"))(parameters)["weight"])(hidden, targets)
    whole = grad(lambda p: of(layer, p, hidden.flatten(0, 1), targets.flatten(), "auto"))(parameters)["weight"]
    torch.testing.assert_close(each.mean(0), whole, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("way", ["torch.func", "dual numbers"])
def test_derivatives_forward_are_those_backward(way: str) -> None:
    layer, hidden, targets = setting()
    along = torch.randn_like(hidden)
    weight, bias = layer.weight.detach(), layer.bias.detach()

    def loss(h: Tensor) -> Tensor:
        return mean_cross_entropy(h, weight, bias, targets)

    if way == "torch.func":
        _, slope = jvp(loss, (hidden,), (along,))
    else:
        with forward_ad.dual_level():
            slope = forward_ad.unpack_dual(loss(forward_ad.make_dual(hidden, along))).tangent
    asked = hidden.clone().requires_grad_()
    loss(asked).backward()  # type: ignore[no-untyped-call]
    assert asked.grad is not None
    torch.testing.assert_close(slope, (asked.grad * along).sum(), rtol=1e-10, atol=1e-12)


def test_half_precision_takes_the_kernel_that_is_safe() -> None:
    hidden, weight, targets = torch.randn(3000, 8).half(), 3 * torch.randn(50, 8).half(), torch.randint(50, (3000,))
    assert mean_cross_entropy(hidden, weight, None, targets).isfinite()
