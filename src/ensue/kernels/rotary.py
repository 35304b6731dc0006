"""Rotary positions of queries and keys as they were projected, side by side (Su et al., 2021).

    l′ = l cos − r sin,   r′ = r cos + l sin             l, r: the two halves of a head
    ∂l = ∂l′ cos + ∂r′ sin,   ∂r = ∂r′ cos − ∂l′ sin     the same rotation, back

In plain operations this takes a dozen passes over memory, and what was projected side by side comes apart. The
compiled loop takes one in each direction, and its results are bit-identical.

Legend: B rows, T tokens, W width of all that was projected, R width of what is rotated, d head width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ensue.kernels.autograd_guards import plain
from ensue.kernels.kernel import Fast, Kernel
from ensue.kernels.loops import Loops
from ensue.kernels.threads import loopable, run

loops = Loops("ensue.kernels.rotary_loops")


def _reference(x: Tensor, cos: Tensor, sin: Tensor, width: int) -> Tensor:
    """The equation."""
    heads = x[..., :width].view(*x.shape[:2], width // cos.shape[-1], cos.shape[-1])  # (B, T, heads, d)
    left, right = heads.chunk(2, dim=-1)
    y = heads * cos[:, :, None] + torch.cat([-right, left], dim=-1) * sin[:, :, None]
    return torch.cat([y.flatten(2), x[..., width:]], dim=-1)


def _one_pass(x: Tensor, cos: Tensor, sin: Tensor, width: int) -> Tensor:
    y: Tensor = _Rotated.apply(x, cos, sin, width)  # type: ignore[no-untyped-call]
    return y


def _can_run(x: Tensor, cos: Tensor, sin: Tensor, width: int) -> bool:
    return loopable(x, cos, sin) and x.is_contiguous() and x.numel() > 0 and plain(x, cos, sin)


rotate = Kernel("rotary", _reference, Fast("one_pass", _one_pass, _can_run))
"""The first ``width`` columns rotated, head by head: (x (B, T, W), cos (1 or B, T, d), sin, width) → (B, T, W)."""


def _turn(x: Tensor, cos: Tensor, sin: Tensor, width: int, back: bool) -> Tensor:
    y = torch.empty_like(x)
    apart = cos.shape[1] if len(cos) == 1 else 0  # all rows have the same angles, or each token has its own
    sizes = (x.shape[-1], width, cos.shape[-1], apart, int(back))
    run(loops.rotate, x.numel() // x.shape[-1], *sizes, x, cos.contiguous(), sin.contiguous(), y)
    return y


class _Rotated(torch.autograd.Function):
    """A compiled loop for both directions."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor, width: int) -> Tensor:
        """x, rotated."""
        ctx.save_for_backward(cos, sin)
        ctx.width = width
        return _turn(x, cos, sin, width, back=False)

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> Any:
        """∂y, rotated back."""
        cos, sin = ctx.saved_tensors
        if torch.is_grad_enabled():  # a gradient of this gradient is needed: autograd must see the operations
            return rotate(above[0], cos, -sin, ctx.width), None, None, None
        return _turn(above[0].contiguous(), cos, sin, ctx.width, back=True), None, None, None
