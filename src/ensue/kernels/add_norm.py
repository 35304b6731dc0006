"""The end of a residual path: dropout, sum and layer norm.

    s = x + y ∘ m,   n = (s − mean s) / √(var s + ε),   z = γ ∘ n + β
    ∂n = γ ∘ ∂z,   ∂x = (∂n − mean ∂n − n mean(∂n ∘ n)) / √(var s + ε),   ∂y = ∂x ∘ m,   ∂γ = Σ ∂z ∘ n,   ∂β = Σ ∂z

One by one these are six passes over memory and a stored mask. The fused implementation reads x and y once, and its
backward pass draws the mask again.

Legend: M tokens, D width, m the mask of dropout (see ensue.kernels.dropout).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.kernels.autograd_guards import differentiable, plain
from ensue.kernels.dropout import dropout_add, limit, new_seed, seeded_mask
from ensue.kernels.kernel import Fast, Kernel
from ensue.kernels.loops import Loops
from ensue.kernels.threads import PART, loopable, run

loops = Loops("ensue.kernels.elementwise_loops")


def _reference(x: Tensor, y: Tensor, p: float, norm: nn.Module) -> Tensor:
    """norm(x + dropout(y)), (…, D) → (…, D)."""
    z: Tensor = norm(dropout_add(x, y, p))
    return z


def _fused(x: Tensor, y: Tensor, p: float, norm: nn.Module) -> Tensor:
    assert isinstance(norm, nn.LayerNorm)
    arrays = (one.contiguous() for one in (x, y, norm.weight, norm.bias))
    result: Tensor = _AddNorm.apply(*arrays, norm.eps, limit(p), new_seed())  # type: ignore[no-untyped-call]
    return result


def _can_fuse(x: Tensor, y: Tensor, p: float, norm: nn.Module) -> bool:
    """True while training with dropout and a layer norm over the last dimension that has γ and β and no hooks."""
    return (
        p > 0
        and torch.is_grad_enabled()
        and type(norm) is nn.LayerNorm
        and len(norm.normalized_shape) == 1
        and norm.bias is not None
        and not (norm._forward_hooks or norm._forward_pre_hooks)
        and loopable(x, y, norm.weight, norm.bias)
        and plain(x, y, norm.weight, norm.bias)
    )


add_norm = Kernel("add_norm", _reference, Fast("fused", _fused, _can_fuse))
"""norm(x + dropout(y)): (x, y, p, norm)."""


def equation(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor, epsilon: float, off: int, seed: int) -> Tensor:
    """The fused implementation's equation for a given seed, in plain operations."""
    return F.layer_norm(x + y * seeded_mask(x.shape, off, seed), x.shape[-1:], weight, bias, epsilon)


class _AddNorm(torch.autograd.Function):
    """A compiled loop for each direction."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, weight: Tensor, bias: Tensor, epsilon: float, off: int, seed: int
    ) -> Tensor:
        """z."""
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
        *inputs, normal, scale = ctx.saved_tensors
        if torch.is_grad_enabled():  # a gradient of this gradient is needed: autograd must see the operations
            epsilon, off, seed = ctx.rest
            plainly = partial(equation, epsilon=epsilon, off=off, seed=seed)
            return *differentiable(plainly, inputs, ctx.needs_input_grad[:4], above), None, None, None
        D, (_, off, seed) = normal.shape[-1], ctx.rest
        M = normal.numel() // D
        by_z, sums = above[0].contiguous(), normal.new_empty(-(-M // PART), 2, D)
        by_x, by_y = torch.empty_like(normal), torch.empty_like(normal)
        run(loops.add_norm_backward, M, D, seed, off, by_z, normal, scale, inputs[2], by_x, by_y, sums)
        return by_x, by_y, *sums.sum(0), None, None, None
