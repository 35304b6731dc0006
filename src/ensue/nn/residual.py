"""The end of a residual path: dropout, sum and layer norm.

    s = x + y ∘ m,   n = (s − mean s) / √(var s + ε),   z = γ ∘ n + β
    ∂n = γ ∘ ∂z,   ∂x = (∂n − mean ∂n − n mean(∂n ∘ n)) / √(var s + ε),   ∂y = ∂x ∘ m,   ∂γ = Σ ∂z ∘ n,   ∂β = Σ ∂z

They are six passes over memory and a mask as wide as the model when done one by one. The fused kernel reads x and y
once, and makes the mask again on the way back instead of keeping it.

Legend: M tokens, D width, m the mask of dropout (see ensue.nn.dropout).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.kernels.autograd_guards import differentiable, plain
from ensue.kernels.dropout_mask import drawn_mask, limit, new_seed
from ensue.kernels.threads import PART, reachable, run
from ensue.nn.dropout import Dropout


def add_norm(x: Tensor, y: Tensor, dropout: Dropout, norm: nn.LayerNorm) -> Tensor:
    """LN(x + dropout(y)), (…, D) → (…, D)."""
    held = (x, y, norm.weight, norm.bias)
    if not (dropout.active and _whole(norm) and torch.is_grad_enabled() and reachable(*held) and plain(*held)):
        z: Tensor = norm(dropout.add(x, y))
        return z
    return fused(*held, norm.eps, limit(dropout.p), new_seed())


def reference(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor, epsilon: float, off: int, seed: int) -> Tensor:
    """The equation, operation by operation."""
    return F.layer_norm(x + y * drawn_mask(x.shape, off, seed), x.shape[-1:], weight, bias, epsilon)


def fused(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor, epsilon: float, off: int, seed: int) -> Tensor:
    """The same in one pass."""
    arrays = (one.contiguous() for one in (x, y, weight, bias))
    result: Tensor = _Fused.apply(*arrays, epsilon, off, seed)  # type: ignore[no-untyped-call]
    return result


def _whole(norm: nn.LayerNorm) -> bool:
    """Whether a norm is what the equation says: over the last dimension, with γ and β, and nobody looks on."""
    return (
        type(norm) is nn.LayerNorm
        and len(norm.normalized_shape) == 1
        and norm.bias is not None
        and not (norm._forward_hooks or norm._forward_pre_hooks)
    )


class _Fused(torch.autograd.Function):
    """Both ways a loop of our own."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, weight: Tensor, bias: Tensor, epsilon: float, off: int, seed: int
    ) -> Tensor:
        """z."""
        from ensue.kernels import elementwise_loops as loops  # numba takes a while to import

        D = x.shape[-1]
        z, normal, scale = torch.empty_like(x), torch.empty_like(x), x.new_empty(x.shape[:-1])
        small = x.new_tensor([epsilon])
        run(loops.add_norm, x.numel() // D, D, seed, off, x, y, weight, bias, small, z, normal, scale)
        ctx.save_for_backward(x, y, weight, bias, normal, scale)
        ctx.rest = (epsilon, off, seed)
        return z

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> Any:
        """∂x, ∂y, ∂γ, ∂β."""
        from ensue.kernels import elementwise_loops as loops

        *inputs, normal, scale = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient of a gradient is asked for: let autograd see the operations
            epsilon, off, seed = ctx.rest
            equation = partial(reference, epsilon=epsilon, off=off, seed=seed)
            return *differentiable(equation, inputs, ctx.needs_input_grad[:4], above), None, None, None
        D, (_, off, seed) = normal.shape[-1], ctx.rest
        M = normal.numel() // D
        by_z, sums = above[0].contiguous(), normal.new_empty(-(-M // PART), 2, D)
        by_x, by_y = torch.empty_like(normal), torch.empty_like(normal)
        run(loops.add_norm_backward, M, D, seed, off, by_z, normal, scale, inputs[2], by_x, by_y, sums)
        return by_x, by_y, *sums.sum(0), None, None, None
