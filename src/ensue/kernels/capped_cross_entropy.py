"""The loss of an output layer whose logits are capped, without storing all of them.

    u = tanh((W h + b) / c),   z = c u,   J = 1/M Σ_m −log softmax(z_m)[y_m]
    ∂J/∂(W h + b) = (softmax(z) − target) (1 − u²) / M

As in ensue.kernels.cross_entropy the forward pass computes the gradients, a slice of tokens at a time.

Legend: M tokens, D width, V vocabulary.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ensue.kernels.autograd_guards import differentiable, plain
from ensue.kernels.cap import capped
from ensue.kernels.cross_entropy import FEW, full_precision
from ensue.kernels.kernel import Fast, Kernel

SLICE = 1 << 23
"""Logits of a slice: 32 MB in float32, and as much for u."""


def _reference(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, cap: float, smoothing: float = 0.0
) -> Tensor:
    """The equation."""
    logits = full_precision(capped(F.linear(hidden, weight, bias), cap))
    return F.cross_entropy(logits, targets, label_smoothing=smoothing)


def _sliced(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, cap: float, smoothing: float = 0.0
) -> Tensor:
    """The same, slice by slice."""
    gradient = torch.is_grad_enabled()  # inside an autograd function's forward it is always off
    loss: Tensor = _Sliced.apply(hidden, weight, bias, targets, cap, smoothing, gradient)  # type: ignore[no-untyped-call]
    return loss


def _can_slice(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, cap: float, smoothing: float = 0.0
) -> bool:
    return len(targets) * len(weight) >= FEW and plain(hidden, weight)


mean_capped_cross_entropy = Kernel("capped_cross_entropy", _reference, Fast("sliced", _sliced, _can_slice))
"""The mean of −log softmax(c tanh((W h + b) / c)) at the targets: (M, D), (V, D), (V,) or None, (M,), c, ε → a scalar.

ε is the label smoothing; see ``ensue.kernels.cross_entropy``.
"""


class _Sliced(torch.autograd.Function):
    """The forward pass computes the gradients; the backward pass scales them."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        cap: float,
        smoothing: float,
        gradient: bool,
    ) -> Tensor:
        """The mean loss."""
        M, V = len(hidden), len(weight)
        by_hidden, by_weight, by_bias = (gradient and needed for needed in ctx.needs_input_grad[:3])
        grad_hidden = torch.zeros_like(hidden) if by_hidden else None
        grad_weight = torch.zeros_like(weight) if by_weight else None
        grad_bias = torch.zeros_like(bias) if by_bias and bias is not None else None
        total = hidden.new_zeros(())
        step = max(1, SLICE // V)
        for at in range(0, M, step):
            h, y = hidden[at : at + step], targets[at : at + step, None]
            u = F.linear(h, weight, bias).div_(cap).tanh_()
            p = (u * cap).log_softmax(1)
            total -= (1 - smoothing) * p.gather(1, y).sum()
            if smoothing:
                total -= smoothing / V * p.sum()
            if not gradient:
                continue
            p.exp_().sub_(smoothing / V).scatter_add_(1, y, p.new_full(y.shape, smoothing - 1))
            p.mul_(u.square_().neg_().add_(1)).div_(M)
            if grad_hidden is not None:
                grad_hidden[at : at + step] = p @ weight
            if grad_weight is not None:
                grad_weight.addmm_(p.T, h)
            if grad_bias is not None:
                grad_bias += p.sum(0)
        ctx.save_for_backward(grad_hidden, grad_weight, grad_bias, hidden, weight, bias, targets)
        ctx.cap, ctx.smoothing = cap, smoothing
        return total / M

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> Any:
        """∂J/∂h, ∂J/∂W, ∂J/∂b."""
        *grads, hidden, weight, bias, targets = ctx.saved_tensors
        if torch.is_grad_enabled():  # a gradient of this gradient is needed: autograd must see the operations
            equation = partial(_reference, targets=targets, cap=ctx.cap, smoothing=ctx.smoothing)
            grads = list(differentiable(equation, (hidden, weight, bias), ctx.needs_input_grad[:3], above))
        else:
            grads = [None if grad is None else grad * above[0] for grad in grads]
        return *grads, None, None, None, None
