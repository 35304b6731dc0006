"""The loss of an output layer whose logits are capped, without storing all of them.

    u = tanh((W h + b) / c),   z = c u,   J = 1/M Σ_m −log softmax(z_m)[y_m]
    ∂J/∂(W h + b) = (softmax(z) − target) (1 − u²) / M

As in ensue.kernels.cross_entropy the forward pass computes the gradients, a slice of tokens at a time.

Legend: M tokens, D width, V vocabulary.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from ensue.kernels.cap import capped
from ensue.kernels.cross_entropy import full_precision
from ensue.kernels.kernel import Fast, Kernel
from ensue.kernels.sliced_loss import Gradients, can_slice, sliced_loss
from ensue.kernels.threads import rounds

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
    loss = partial(_in_slices, cap=cap, smoothing=smoothing)
    equation = partial(_reference, cap=cap, smoothing=smoothing)
    return sliced_loss(loss, equation, hidden, weight, bias, targets)


mean_capped_cross_entropy = Kernel("capped_cross_entropy", _reference, Fast("sliced", _sliced, can_slice))
"""The mean of −log softmax(c tanh((W h + b) / c)) at the targets: (M, D), (V, D), (V,) or None, (M,), c, ε → a scalar.

ε is the label smoothing; see ``ensue.kernels.cross_entropy``.
"""


def _in_slices(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    grads: Gradients,
    gradient: bool,
    cap: float,
    smoothing: float,
) -> Tensor:
    """The mean loss; fills the gradients."""
    M, V = len(hidden), len(weight)
    total = hidden.new_zeros(())
    step = max(1, SLICE // V)
    for at in rounds(range(0, M, step), hidden):
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
        if grads.hidden is not None:
            grads.hidden[at : at + step] = p @ weight
        if grads.weight is not None:
            torch.addmm(grads.weight, p.T, h, beta=int(at > 0), out=grads.weight)
        if grads.bias is not None:
            grads.bias.add_(p.sum(0))
    return total / M
