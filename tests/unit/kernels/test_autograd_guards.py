"""What every kernel with a gradient of its own must do, whatever it computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from ensue.kernels import add_norm, feed_forward, short_attention
from ensue.kernels.autograd_guards import plain
from ensue.kernels.cross_entropy import mean_cross_entropy
from ensue.kernels.lstmp import lstmp
from ensue.kernels.packing import AttentionRows
from ensue.kernels.threads import loopable, torch_threads

WIDTH = 16
ours = pytest.mark.skipif(torch_threads() is None, reason="torch runs on another OpenMP here")


def attended(x: Tensor) -> Tensor:
    """Keys and values made of the queries themselves."""
    return short_attention.attend((x, x.sin(), x), 1)


def normed(x: Tensor) -> Tensor:
    """What is added is made of what it is added to, as on every residual path."""
    return add_norm._AddNorm.apply(x, x.sin(), x.new_ones(WIDTH), x.new_zeros(WIDTH), 1e-5, 77, -5)


def plain_attention(x: Tensor) -> Tensor:
    """The same as the equation has it."""
    held, rows = x.flatten(0, 1), AttentionRows.padded(len(x), x.shape[1], x.shape[1])
    return short_attention.equation((held, held.sin(), held), 1, rows).view_as(x)


def plain_norm(x: Tensor) -> Tensor:
    """The same as the equation has it."""
    return add_norm.equation(x, x.sin(), x.new_ones(WIDTH), x.new_zeros(WIDTH), 1e-5, 77, -5)


def fed(x: Tensor) -> Tensor:
    """Weights made of the input."""
    x = x[0]
    return feed_forward._FeedForward.apply(x, x.cos(), x[:, 0].sin(), x.T.sin(), x[0], "relu")


def tied(x: Tensor) -> Tensor:
    """Hidden states made of the output's weights, as where embeddings are tied."""
    x = x[0]
    return mean_cross_entropy.implementations["sliced"](x.sin(), x, None, torch.arange(len(x)), 0.1)


def recurrent(x: Tensor) -> Tensor:
    """A memory made of the input."""
    memory = x[:, 0].sin()
    weights = x[0, :1].expand(4 * WIDTH, -1)
    return lstmp.implementations["fused"](
        x, weights, weights.cos(), weights[:, 0], x[0, :1].expand(WIDTH, -1), memory, memory
    )[0]


@pytest.mark.parametrize(
    "kernel", [pytest.param(attended, marks=ours), pytest.param(normed, marks=ours), fed, tied, recurrent]
)
def test_the_gradient_is_the_same_where_one_input_is_made_of_another(kernel: Callable[[Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 9, WIDTH, requires_grad=True)
    once, again = (torch.autograd.grad(kernel(x).pow(3).sum(), x, create_graph=graph)[0] for graph in (False, True))
    assert again.requires_grad
    torch.testing.assert_close(again.detach(), once, rtol=1e-4, atol=1e-4)


@pytest.fixture
def double() -> Iterator[None]:
    """New tensors are in double precision, unless they say otherwise."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@ours
@pytest.mark.parametrize(("kernel", "plainly"), [(attended, plain_attention), (normed, plain_norm)])
def test_what_new_tensors_hold_by_default_does_not_matter(
    kernel: Callable[[Tensor], Tensor], plainly: Callable[[Tensor], Tensor], double: None
) -> None:
    x = torch.randn(2, 9, WIDTH, dtype=torch.float32, requires_grad=True)
    found, wanted = (torch.autograd.grad(way(x).pow(3).sum(), x)[0] for way in (kernel, plainly))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


@ours
def test_what_is_traced_shows_its_operations() -> None:
    taken = []

    def noted(x: Tensor) -> Tensor:
        taken.append(loopable(x) or plain(x))
        return x * 2

    x = torch.randn(3)
    noted(x)
    torch.jit.trace(noted, x, check_trace=False)  # type: ignore[no-untyped-call]
    assert taken == [True, False]
