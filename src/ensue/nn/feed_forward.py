"""The two-layer network of a Transformer block, the same at every position.

    FFN(x) = W_2 f(W_1 x + b_1) + b_2                                    D → 4D → D

What stands between the two layers is the widest thing in a block, so that each pass over it counts. The fused kernel
applies f's derivative on the way back in place and sums it up for the bias; relu takes the bias along, and GPT's gelu
is made again on the way back instead of kept (see ensue.kernels.gelu_loops):

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
from ensue.kernels.decode_program import Tape
from ensue.kernels.int8 import QuantisedLinear
from ensue.kernels.matmul import summed, times
from ensue.kernels.threads import PART, reachable, run


@dataclass(frozen=True)
class Activation:
    """f in its three forms."""

    plain: Callable[[Tensor], Tensor]
    over: Callable[[Tensor], Tensor]
    """f(u), written over u; outside autograd."""
    forward: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, tuple[Tensor, ...]]]
    """x, W_1, b_1 → h, and what is kept for the way back."""
    backward: Callable[..., tuple[Tensor, Tensor, Tensor]]
    """∂h (written over) and what was kept → h, ∂u = ∂h ∘ f′(u), and its sum, ∂b_1."""


def _gelu_forward(x: Tensor, up: Tensor, bias: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    u = times(x, up, bias)
    if not reachable(u):
        return F.gelu(u, approximate="tanh"), (u,)
    from ensue.kernels import gelu_loops as loops  # numba takes a while to import

    h = torch.empty_like(u)
    run(loops.gelu, *u.shape, u, h)
    return h, (u,)


def _gelu_backward(above: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    if not reachable(above):
        h = F.gelu(u, approximate="tanh")
        by_u: Tensor = torch.ops.aten.gelu_backward.grad_input(above, u, approximate="tanh", grad_input=above)
        return h, by_u, by_u.sum(0)
    from ensue.kernels import gelu_loops as loops

    M, inner = u.shape
    h, sums = torch.empty_like(u), u.new_empty(-(-M // PART), inner)
    run(loops.gelu_backward, M, inner, above, u, h, sums)
    return h, above, sums.sum(0)


def _exact_forward(x: Tensor, up: Tensor, bias: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    u = times(x, up, bias)
    h = F.gelu(u)
    return h, (u, h)


def _exact_backward(above: Tensor, u: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    by_u: Tensor = torch.ops.aten.gelu_backward.grad_input(above, u, grad_input=above)
    return h, by_u, by_u.sum(0)


def _relu_forward(x: Tensor, up: Tensor, bias: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    if not reachable(x, bias) or not bias.is_contiguous():
        h = F.relu_(times(x, up, bias))
        return h, (h,)
    from ensue.kernels import elementwise_loops as loops  # numba takes a while to import

    h = times(x, up)
    run(loops.add_relu, *h.shape, h, bias)
    return h, (h,)


def _relu_backward(above: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    if not reachable(above):
        by_u: Tensor = torch.ops.aten.threshold_backward.grad_input(above, h, 0, grad_input=above)
        return h, by_u, by_u.sum(0)
    from ensue.kernels import elementwise_loops as loops

    M, inner = h.shape
    sums = h.new_empty(-(-M // PART), inner)
    run(loops.relu_backward, M, inner, above, h, sums)
    return h, above, sums.sum(0)


def _gelu(approximate: str) -> dict[str, Any]:
    """u Φ(u), or its tanh form (Hendrycks and Gimpel, 2016), plainly."""
    return {
        "plain": partial(F.gelu, approximate=approximate),
        "over": partial(torch.ops.aten.gelu_, approximate=approximate),
    }


ACTIVATIONS = {
    "gelu": Activation(**_gelu("tanh"), forward=_gelu_forward, backward=_gelu_backward),  # GPT's
    "gelu-erf": Activation(**_gelu("none"), forward=_exact_forward, backward=_exact_backward),  # BERT's
    "relu": Activation(F.relu, F.relu_, _relu_forward, _relu_backward),
}


def reference(x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor, activation: str) -> Tensor:
    """The equation, operation by operation."""
    return F.linear(ACTIVATIONS[activation].plain(F.linear(x, up, up_bias)), down, down_bias)


def fused(x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor, activation: str) -> Tensor:
    """The same with a gradient of its own."""
    result: Tensor = _Fused.apply(x, up, up_bias, down, down_bias, activation)  # type: ignore[no-untyped-call]
    return result


def lean(x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor, activation: str) -> Tensor:
    """The same where nothing is learnt: f is written over u."""
    return times(ACTIVATIONS[activation].over(times(x, up, up_bias)), down, down_bias)


KERNELS = {"reference": reference, "fused": fused, "lean": lean}


class FeedForward(nn.Module):
    """FFN(x) = W_2 f(W_1 x + b_1) + b_2, D → 4D → D, the same at every position."""

    def __init__(self, width: int, inner: int, activation: str = "gelu", kernel: str = "auto") -> None:
        super().__init__()
        self.activation, self.kernel = activation, kernel
        self.up: nn.Linear | QuantisedLinear = nn.Linear(width, inner)
        self.down: nn.Linear | QuantisedLinear = nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        """(…, D) → (…, D)."""
        if isinstance(self.up, QuantisedLinear):
            result: Tensor = self.down(ACTIVATIONS[self.activation].over(self.up(x)))
            return result
        held = (self.up.weight, self.up.bias, self.down.weight, self.down.bias)
        kernel = self.kernel
        if kernel == "auto":
            own = "fused" if torch.is_grad_enabled() else "lean"
            kernel = own if plain(x, *held) else "reference"
        return KERNELS[kernel](x.reshape(-1, x.shape[-1]), *held, self.activation).view(x.shape)

    def write(self, tape: Tape, x: Tensor, onto: Tensor) -> None:
        """Add it ``onto`` a residual path, as instructions."""
        tape.linear(self.down, tape.linear(self.up, x, self.activation), onto=onto)


class _Fused(torch.autograd.Function):
    """f and its derivative in place, on matrices (M, …)."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor, activation: str
    ) -> Tensor:
        """FFN(x)."""
        h, kept = ACTIVATIONS[activation].forward(x, up, up_bias)
        ctx.save_for_backward(x, up, up_bias, down, down_bias, *kept)
        ctx.activation = activation
        return times(h, down, down_bias)

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> Any:
        """∂x, ∂W_1, ∂b_1, ∂W_2, ∂b_2."""
        x, up, up_bias, down, down_bias, *kept = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient of a gradient is asked for: let autograd see the operations
            equation = partial(reference, activation=ctx.activation)
            inputs = (x, up, up_bias, down, down_bias)
            return *differentiable(equation, inputs, ctx.needs_input_grad[:5], above), None
        by_y = above[0]
        h, by_u, sums = ACTIVATIONS[ctx.activation].backward(times(by_y.contiguous(), down.T), *kept)
        by_x, by_up, by_up_bias, by_down, by_down_bias = ctx.needs_input_grad[:5]
        return (
            times(by_u, up.T) if by_x else None,
            summed(by_u, x) if by_up else None,
            sums if by_up_bias else None,
            summed(by_y, h) if by_down else None,
            by_y.sum(0) if by_down_bias else None,
            None,
        )
