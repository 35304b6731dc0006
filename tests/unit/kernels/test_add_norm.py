"""The end of a residual path: the fused kernel is the equation, whatever the number of threads."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from ensue.kernels.add_norm import _AddNorm, equation
from ensue.kernels.threads import torch_threads
from ensue.nn.dropout import Dropout
from ensue.nn.residual import add_norm

pytestmark = pytest.mark.skipif(torch_threads() is None, reason="torch runs on another OpenMP here")
NAMES = ("x", "y", "weight", "bias")
fused = _AddNorm.apply
REST = (1e-5, 77, -5)  # ε, the limit of dropout, a seed


def inputs(rows: int = 150, width: int = 20) -> list[Tensor]:
    torch.manual_seed(0)
    return [
        torch.randn(*size, requires_grad=True)
        for size in ((rows // 3, 3, width), (rows // 3, 3, width), (width,), (width,))
    ]


@pytest.mark.parametrize(("rows", "width"), [(150, 20), (3, 8), (129, 7), (0, 5)])
def test_the_fused_kernel_gives_the_output_and_all_gradients(rows: int, width: int) -> None:
    found = []
    for kernel in (equation, fused):
        held = inputs(rows, width)
        z = kernel(*held, *REST)
        (z * z.detach().cos()).sum().backward()  # type: ignore[no-untyped-call]
        found.append([z.detach(), *(one.grad for one in held)])
    for name, plain, ours in zip(("z", *NAMES), *found, strict=True):
        assert plain is not None and ours is not None
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-4, msg=name)


def test_the_result_does_not_depend_on_the_number_of_threads(threads: None) -> None:
    found = []
    for number in (1, 2, 3):
        torch.set_num_threads(number)
        held = inputs(1000, 64)
        fused(*held, *REST).sin().sum().backward()  # type: ignore[no-untyped-call]
        found.append([one.grad for one in held])
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other) if a is not None and b is not None)


def test_the_gradient_of_a_gradient_goes_through_the_equation() -> None:
    found = []
    for kernel in (equation, fused):
        held = inputs()
        (by,) = torch.autograd.grad(kernel(*held, *REST).pow(3).sum(), held[0], create_graph=True)
        by.square().sum().backward()  # type: ignore[no-untyped-call]
        found.append([one.grad for one in held])
    for plain, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-3, atol=1e-2)


def test_what_is_not_finite_is_not_hidden() -> None:
    x, y, weight, bias = inputs()
    with torch.no_grad():
        x[0, 0, 0], x[1, 0, 0] = float("nan"), float("inf")
    z = fused(x, y, weight, bias, *REST)
    assert z[0, 0].isnan().all() and z[1, 0].isnan().all() and z[2:].isfinite().all()


def test_the_same_random_state_draws_the_same_and_off_means_the_norm_alone() -> None:
    x, y, *_ = inputs()
    dropout, norm = Dropout(0.5), nn.LayerNorm(20)
    torch.manual_seed(1)
    first = add_norm(x, y, dropout, norm)
    torch.manual_seed(1)
    assert torch.equal(add_norm(x, y, dropout, norm), first)
    assert not torch.equal(add_norm(x, y, dropout, norm), first)
    assert torch.equal(add_norm(x, y, dropout.eval(), norm), norm(x + y))


def test_a_hook_on_the_norm_is_called() -> None:
    x, y, *_ = inputs()
    norm, seen = nn.LayerNorm(20), []
    norm.register_forward_hook(lambda *found: seen.append(found))
    add_norm(x, y, Dropout(0.5), norm)
    assert len(seen) == 1
