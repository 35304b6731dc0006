"""The two-layer network of a Transformer block.

    FFN(x) = W_2 f(W_1 x + b_1) + b_2                                    D → I → D

What stands between the two layers is the widest thing in a block, so each pass over it counts. The fused
implementation applies f's derivative in place in the backward pass and sums it up for the bias; relu adds the bias
itself, and GPT's gelu is computed again in the backward pass instead of kept (see ensue.kernels.gelu_loops):

    u = W_1 x + b_1,  h = f(u),  ∂h = W_2ᵀ ∂y,  ∂u = ∂h ∘ f′(u),  ∂W_2 = ∂y hᵀ,  ∂W_1 = ∂u xᵀ,  ∂x = W_1ᵀ ∂u

Legend: M tokens, D width, I inner width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.kernels.autograd_guards import differentiable, plain
from ensue.kernels.int8 import QuantisedLinear
from ensue.kernels.kernel import Fast, Kernel
from ensue.kernels.loops import Loops
from ensue.kernels.matmul import has_bias, matmul, unhooked, weight_gradient
from ensue.kernels.threads import PART, loopable, run

gelu_loops = Loops("ensue.kernels.gelu_loops")
relu_loops = Loops("ensue.kernels.elementwise_loops")


@dataclass(frozen=True)
class Activation:
    """f in its three forms."""

    plain: Callable[[Tensor], Tensor]
    over: Callable[[Tensor], Tensor]
    """f(u), written over u; outside autograd."""
    forward: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, tuple[Tensor, ...]]]
    """x, W_1, b_1 → h, and what is kept for the backward pass."""
    backward: Callable[..., tuple[Tensor, Tensor, Tensor]]
    """∂h (written over) and what was kept → h, ∂u = ∂h ∘ f′(u), and its sum, ∂b_1."""


def _gelu_forward(x: Tensor, up: Tensor, bias: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    u = matmul(x, up, bias)
    if not loopable(u):
        return F.gelu(u, approximate="tanh"), (u,)
    h = torch.empty_like(u)
    run(gelu_loops.gelu, *u.shape, u, h)
    return h, (u,)


def _gelu_backward(above: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    if not loopable(above):
        h = F.gelu(u, approximate="tanh")
        by_u: Tensor = torch.ops.aten.gelu_backward.grad_input(above, u, approximate="tanh", grad_input=above)
        return h, by_u, by_u.sum(0)
    M, inner = u.shape
    h, sums = torch.empty_like(u), u.new_empty(-(-M // PART), inner)
    run(gelu_loops.gelu_backward, M, inner, above, u, h, sums)
    return h, above, sums.sum(0)


def _exact_forward(x: Tensor, up: Tensor, bias: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    u = matmul(x, up, bias)
    h = F.gelu(u)
    return h, (u, h)


def _exact_backward(above: Tensor, u: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    by_u: Tensor = torch.ops.aten.gelu_backward.grad_input(above, u, grad_input=above)
    return h, by_u, by_u.sum(0)


def _relu_forward(x: Tensor, up: Tensor, bias: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    if not loopable(x, bias) or not bias.is_contiguous():
        h = F.relu_(matmul(x, up, bias))
        return h, (h,)
    h = matmul(x, up, None)
    run(relu_loops.add_relu, *h.shape, h, bias)
    return h, (h,)


def _relu_backward(above: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    if not loopable(above):
        by_u: Tensor = torch.ops.aten.threshold_backward.grad_input(above, h, 0, grad_input=above)
        return h, by_u, by_u.sum(0)
    M, inner = h.shape
    sums = h.new_empty(-(-M // PART), inner)
    run(relu_loops.relu_backward, M, inner, above, h, sums)
    return h, above, sums.sum(0)


def _gelu(approximate: str) -> dict[str, Any]:
    """u Φ(u), or its tanh form (Hendrycks and Gimpel, 2016)."""
    return {
        "plain": partial(F.gelu, approximate=approximate),
        "over": partial(torch.ops.aten.gelu_, approximate=approximate),
    }


ACTIVATIONS = {
    "gelu": Activation(**_gelu("tanh"), forward=_gelu_forward, backward=_gelu_backward),  # GPT's
    "gelu-erf": Activation(**_gelu("none"), forward=_exact_forward, backward=_exact_backward),  # BERT's
    "relu": Activation(F.relu, F.relu_, _relu_forward, _relu_backward),
}


def _reference(x: Tensor, up: nn.Module, down: nn.Module, activation: str) -> Tensor:
    """down(f(up(x))), (…, D) → (…, D)."""
    y: Tensor = down(ACTIVATIONS[activation].plain(up(x)))
    return y


def _fused(x: Tensor, up: Any, down: Any, activation: str) -> Tensor:
    """The same with a backward pass of its own."""
    flat = x.reshape(-1, x.shape[-1])
    y: Tensor = _FeedForward.apply(flat, up.weight, up.bias, down.weight, down.bias, activation)  # type: ignore[no-untyped-call]
    return y.view(x.shape)


def _in_place(x: Tensor, up: Any, down: Any, activation: str) -> Tensor:
    """The same outside autograd: f is written over u."""
    flat = x.reshape(-1, x.shape[-1])
    u = ACTIVATIONS[activation].over(matmul(flat, up.weight, up.bias))
    return matmul(u, down.weight, down.bias).view(x.shape)


def _int8(x: Tensor, up: nn.Module, down: nn.Module, activation: str) -> Tensor:
    """The same for int8 layers, which have no gradient."""
    y: Tensor = down(ACTIVATIONS[activation].over(up(x)))
    return y


def _can_fuse(x: Tensor, up: nn.Module, down: nn.Module, activation: str) -> bool:
    return torch.is_grad_enabled() and _plain(x, up, down)


def _can_run_in_place(x: Tensor, up: nn.Module, down: nn.Module, activation: str) -> bool:
    return not torch.is_grad_enabled() and _plain(x, up, down)


def _can_run_int8(x: Tensor, up: nn.Module, down: nn.Module, activation: str) -> bool:
    return isinstance(up, QuantisedLinear)


def _plain(x: Tensor, up: nn.Module, down: nn.Module) -> bool:
    """True for linear layers with a bias and no hooks, under plain autograd. Weights have x's type, or nothing runs."""
    return all(unhooked(layer) and has_bias(layer) for layer in (up, down)) and plain(x)


feed_forward = Kernel(
    "feed_forward",
    _reference,
    Fast("fused", _fused, _can_fuse),
    Fast("in_place", _in_place, _can_run_in_place),
    Fast("int8", _int8, _can_run_int8),
)
"""down(f(up(x))): (x, up, down, activation)."""


def equation(x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor, activation: str) -> Tensor:
    """FFN(x) of its weights, in plain operations."""
    return F.linear(ACTIVATIONS[activation].plain(F.linear(x, up, up_bias)), down, down_bias)


class _FeedForward(torch.autograd.Function):
    """f and its derivative in place, on matrices (M, …)."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor, activation: str
    ) -> Tensor:
        """FFN(x)."""
        h, kept = ACTIVATIONS[activation].forward(x, up, up_bias)
        ctx.save_for_backward(x, up, up_bias, down, down_bias, *kept)
        ctx.activation = activation
        return matmul(h, down, down_bias)

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> Any:
        """∂x, ∂W_1, ∂b_1, ∂W_2, ∂b_2."""
        x, up, up_bias, down, down_bias, *kept = ctx.saved_tensors
        if torch.is_grad_enabled():  # a gradient of this gradient is needed: autograd must see the operations
            plainly = partial(equation, activation=ctx.activation)
            inputs = (x, up, up_bias, down, down_bias)
            return *differentiable(plainly, inputs, ctx.needs_input_grad[:5], above), None
        by_y = above[0]
        h, by_u, sums = ACTIVATIONS[ctx.activation].backward(matmul(by_y.contiguous(), down.T, None), *kept)
        by_x, by_up, by_up_bias, by_down, by_down_bias = ctx.needs_input_grad[:5]
        return (
            matmul(by_u, up.T, None) if by_x else None,
            weight_gradient(by_u, x) if by_up else None,
            sums if by_up_bias else None,
            weight_gradient(by_y, h) if by_down else None,
            by_y.sum(0) if by_down_bias else None,
            None,
        )
