"""The two-layer network of a Transformer block, the same at every position.

    FFN(x) = W_2 f(W_1 x + b_1) + b_2                                    D → 4D → D

What stands between the two layers is the widest thing in a block, so that each pass over it counts. The fused kernel
applies f, and its derivative on the way back, in place; relu takes the bias and the bias's gradient along:

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

from ensue.nn.kernels import differentiable, plain
from ensue.nn.products import times
from ensue.nn.quantised import QuantisedLinear
from ensue.nn.tape import Tape
from ensue.nn.threads import PART, reachable, run


@dataclass(frozen=True)
class Activation:
    """f in its three forms."""

    plain: Callable[[Tensor], Tensor]
    over: Callable[[Tensor], Tensor]
    """f(u), written over u; outside autograd."""
    forward: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
    """x, W_1, b_1 → u and h, which may be one and the same where the derivative can be told from h."""
    backward: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
    """∂h (written over), u, h → ∂u = ∂h ∘ f′(u), and its sum, ∂b_1."""


def _gelu(approximate: str) -> Activation:
    """u Φ(u), or its tanh form (Hendrycks and Gimpel, 2016)."""

    def forward(x: Tensor, up: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        u = times(x, up, bias)
        return u, F.gelu(u, approximate=approximate)

    def backward(above: Tensor, u: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        by_u: Tensor = torch.ops.aten.gelu_backward.grad_input(above, u, approximate=approximate, grad_input=above)
        return by_u, by_u.sum(0)

    plainly = partial(F.gelu, approximate=approximate)
    return Activation(plainly, partial(torch.ops.aten.gelu_, approximate=approximate), forward, backward)


def _relu_forward(x: Tensor, up: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    if not reachable(x, bias) or not bias.is_contiguous():
        h = F.relu_(times(x, up, bias))
        return h, h
    from ensue.nn import loops  # numba takes a while to import

    h = times(x, up)
    run(loops.add_relu, *h.shape, h, bias)
    return h, h


def _relu_backward(above: Tensor, u: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    if not reachable(above):
        by_u: Tensor = torch.ops.aten.threshold_backward.grad_input(above, h, 0, grad_input=above)
        return by_u, by_u.sum(0)
    from ensue.nn import loops

    M, inner = h.shape
    sums = h.new_empty(-(-M // PART), inner)
    run(loops.relu_backward, M, inner, above, h, sums)
    return above, sums.sum(0)


ACTIVATIONS = {
    "gelu": _gelu("tanh"),  # GPT's
    "gelu-erf": _gelu("none"),  # BERT's
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
        u, h = ACTIVATIONS[activation].forward(x, up, up_bias)
        ctx.save_for_backward(x, up, up_bias, down, down_bias, u, h)
        ctx.activation = activation
        return times(h, down, down_bias)

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> Any:
        """∂x, ∂W_1, ∂b_1, ∂W_2, ∂b_2."""
        x, up, up_bias, down, down_bias, u, h = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient of a gradient is asked for: let autograd see the operations
            equation = partial(reference, activation=ctx.activation)
            inputs = (x, up, up_bias, down, down_bias)
            return *differentiable(equation, inputs, ctx.needs_input_grad[:5], above), None
        by_y = above[0]
        by_u, sums = ACTIVATIONS[ctx.activation].backward(times(by_y.contiguous(), down.T), u, h)
        by_x, by_up, by_up_bias, by_down, by_down_bias = ctx.needs_input_grad[:5]
        return (
            times(by_u, up.T) if by_x else None,
            by_u.T @ x if by_up else None,
            sums if by_up_bias else None,
            by_y.T @ h if by_down else None,
            by_y.sum(0) if by_down_bias else None,
            None,
        )
