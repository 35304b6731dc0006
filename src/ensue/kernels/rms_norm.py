"""RMSNorm over the last dimension (Zhang and Sennrich, 2019).

    r = 1 / √(mean x² + ε),   z = r x ∘ γ
    ∂n = γ ∘ ∂z,   ∂x = r (∂n − r² x mean(∂n ∘ x)),   ∂γ = Σ ∂z ∘ r x

Torch composes it on a CPU of six passes over memory, and its gradient of a dozen. The loops take one in each direction,
and keep x and r only.

Legend: M tokens, D width.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ensue.kernels.autograd_guards import differentiable, plain
from ensue.kernels.kernel import Fast, Kernel
from ensue.kernels.loops import Loops
from ensue.kernels.threads import PART, loopable, run

loops = Loops("ensue.kernels.elementwise_loops")


def _reference(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """The equation."""
    if torch.onnx.is_in_onnx_export():  # which has this operation from opset 23 on only
        return x * (x.square().mean(-1, keepdim=True) + epsilon).rsqrt() * weight
    return F.rms_norm(x, x.shape[-1:], weight, epsilon)


def _one_pass(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    z: Tensor = _RMSNorm.apply(x.contiguous(), weight.contiguous(), epsilon)  # type: ignore[no-untyped-call]
    return z


def _can_run(x: Tensor, weight: Tensor, epsilon: float) -> bool:
    return loopable(x, weight) and x.shape[-1] == len(weight) and x.numel() > 0 and plain(x, weight)


rms_norm = Kernel("rms_norm", _reference, Fast("one_pass", _one_pass, _can_run))
"""x / √(mean x² + ε) ∘ γ: (x (…, D), γ (D,), ε) → (…, D)."""


class _RMSNorm(torch.autograd.Function):
    """A compiled loop for each direction."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        """z."""
        D = x.shape[-1]
        z, scale = torch.empty_like(x), x.new_empty(x.shape[:-1])
        run(loops.rms_norm, x.numel() // D, D, x, weight, x.new_tensor([epsilon]), z, scale)
        ctx.save_for_backward(x, weight, scale)
        ctx.epsilon = epsilon
        return z

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> Any:
        """∂x, ∂γ."""
        x, weight, scale = ctx.saved_tensors
        if torch.is_grad_enabled():  # a gradient of this gradient is needed: autograd must see the operations
            plainly = partial(_reference, epsilon=ctx.epsilon)
            return *differentiable(plainly, (x, weight), ctx.needs_input_grad[:2], above), None
        D = x.shape[-1]
        M = x.numel() // D
        by_z, by_x, sums = above[0].contiguous(), torch.empty_like(x), x.new_empty(-(-M // PART), D)
        run(loops.rms_norm_backward, M, D, by_z, x, scale, weight, by_x, sums)
        return by_x, sums.sum(0) if ctx.needs_input_grad[1] else None, None
