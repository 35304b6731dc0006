"""Products by another library: the same numbers, the same gradients, and only where they may be."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.kernels import matmul as module
from ensue.kernels.kernel import Fast
from ensue.kernels.matmul import linear, matmul, spare, transposed, weight_gradient

onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch has no oneDNN here")


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small, on whatever processor."""
    monkeypatch.setattr(module, "LARGE", 0)
    monkeypatch.setattr(module, "LARGE_TRANSPOSED", 0)
    monkeypatch.setattr(module, "_amd", lambda: True)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    calls: list[int] = []
    (own,) = matmul.fast
    noted = Fast("onednn", lambda *held: (calls.append(1), own.run(*held))[1], own.can_run)
    monkeypatch.setattr(matmul, "fast", (noted,))
    return calls


@onednn
@pytest.mark.parametrize("view", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_both_kernels_give_the_product(view: bool, biased: bool) -> None:
    torch.manual_seed(0)
    x, bias = torch.randn(37, 48), torch.randn(29) if biased else None
    weight = torch.randn(48, 29).T if view else torch.randn(29, 48)
    wanted, found = (matmul.implementations[name](x, weight, bias) for name in ("reference", "onednn"))
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(16, 16), (37, 50), (1, 40), (40, 3), (0, 20), (200, 17)])
def test_a_matrix_is_transposed_whatever_its_shape(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape)
    for one in (x, x.double(), x[:, ::2], x.T):
        found = transposed(one)
        assert found.is_contiguous() and torch.equal(found, one.T)


@onednn
@pytest.mark.parametrize(("outputs", "inputs"), [(20, 48), (48, 20), (32, 32)])
def test_both_kernels_give_the_gradient_of_weights(outputs: int, inputs: int, always: None) -> None:
    torch.manual_seed(0)
    above, x = torch.randn(70, outputs), torch.randn(70, inputs)
    wanted, found = (weight_gradient.implementations[name](above, x) for name in ("reference", "onednn"))
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-4)
    assert found.is_contiguous() and torch.equal(weight_gradient(above, x), found)
    apart = above.T.contiguous().T
    torch.testing.assert_close(weight_gradient(apart, x), wanted, rtol=1e-5, atol=1e-4)
    assert weight_gradient(above.double(), x.double()).dtype == torch.float64


def results(layer: nn.Linear, x: Tensor, plainly: bool) -> list[Tensor]:
    y = F.linear(x, layer.weight, layer.bias) if plainly else linear(layer, x)
    return [y.detach(), *torch.autograd.grad(y.sin().sum(), (x, layer.weight, layer.bias))]


@onednn
def test_a_linear_layer_gives_the_same_output_and_gradients(always: None, counted: list[int]) -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(24, 40), torch.randn(3, 7, 24, requires_grad=True)
    for wanted, found in zip(results(layer, x, True), results(layer, x, False), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    assert len(counted) == 2  # forward, and the gradient of x


@onednn
def test_the_gradient_of_a_gradient_goes_through_the_equation(always: None) -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(8, 8), torch.randn(5, 8, requires_grad=True)
    found = []
    for y in (layer(x), linear(layer, x)):
        (by,) = torch.autograd.grad(y.pow(3).sum(), x, create_graph=True)
        found.append(torch.autograd.grad(by.square().sum(), (x, layer.weight, layer.bias)))
    for wanted, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=1e-4)


@onednn
def test_only_what_is_learnt_gets_a_gradient(always: None) -> None:
    layer = nn.Linear(8, 8)
    layer.weight.requires_grad_(False)
    linear(layer, torch.randn(5, 8)).sum().backward()  # type: ignore[no-untyped-call]
    assert layer.weight.grad is None and layer.bias.grad is not None


def test_what_somebody_looks_at_or_changed_is_left_as_it_is(always: None, counted: list[int]) -> None:
    x = torch.randn(5, 8)
    watched, seen = nn.Linear(8, 8), []
    watched.register_forward_hook(lambda *_: seen.append(1))
    linear(watched, x)
    linear(nn.Sequential(nn.Linear(8, 8)), x)
    linear(nn.Linear(8, 8).double(), x.double())
    assert seen == [1] and not counted


def test_small_products_and_other_processors_stay_with_torch(
    counted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    matmul(torch.randn(5, 8), torch.randn(8, 8))
    monkeypatch.setattr(module, "LARGE", 0)
    monkeypatch.setattr(module, "_amd", lambda: False)
    matmul(torch.randn(5, 8), torch.randn(8, 8))
    assert not counted


def test_numbers_of_rows_come_again() -> None:
    assert [rows + spare(rows) for rows in (0, 1, 31, 33, 500, 1000, 1025, 2000, 4097)] == [
        *(0, 1, 31, 34, 512, 1024, 1088, 2048, 4160)
    ]
    for low in (512, 1024):  # of all numbers between two powers of two sixteen are left
        assert len({rows + spare(rows) for rows in range(low + 1, 2 * low + 1)}) == 16
    assert all(16 * spare(rows) <= rows for rows in range(5000))


@onednn
def test_smaller_products_take_the_other_library_only_for_a_round_number_of_tokens(
    counted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_amd", lambda: True)
    weight = torch.randn(128, 128)
    assert module.LARGE > 512 * 128 * 128 and module.SMALL <= 501 * 128 * 128
    matmul(torch.randn(501, 128), weight)  # padded rows have as many numbers of tokens as they like
    matmul(torch.randn(32, 1024), torch.randn(128, 1024))  # a beam
    assert not counted
    matmul(torch.randn(512, 128), weight)
    assert len(counted) == 1
    assert weight_gradient.choice(torch.randn(512, 128), torch.randn(512, 128)) == "onednn"
    assert weight_gradient.choice(torch.randn(501, 128), torch.randn(501, 128)) == "reference"
