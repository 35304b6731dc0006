"""The loss of an output layer that never stores all logits.

    z = W h + b,   J = 1/M Σ_m −log softmax(z_m)[y_m]
    ∂J/∂z = (softmax(z) − target) / M,   ∂J/∂h = Wᵀ ∂J/∂z,   ∂J/∂W = ∂J/∂z hᵀ

The gradient of a softmax needs nothing but the softmax, so the forward pass computes it, a slice of tokens at a time. A
slice's logits are computed for a block of vocabulary columns c at a time, small enough to be overwritten with
e_c = exp(z_c − max z_c) while they are in the cache. The rest is linear: with t = max z over all columns and
n = Σ_c exp(max z_c − t) Σ e_c, the softmax of columns c is s_c e_c, s_c = exp(max z_c − t) / n, so that its share of
∂J/∂h is Σ_c s_c W_cᵀ e_c, and of ∂J/∂W_c it is e_c (s_c h)ᵀ: the scaling is applied to the smaller matrices.

Legend: M tokens, D width, V vocabulary.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from ensue.kernels.kernel import Fast, Kernel
from ensue.kernels.loops import Loops
from ensue.kernels.matmul import matmul, spare
from ensue.kernels.sliced_loss import Gradients, can_slice, sliced_loss
from ensue.kernels.threads import loopable, rounds, run

loops = Loops("ensue.kernels.softmax_loops")

SLICE = 1 << 24
"""Logits of a slice: 64 MB in float32. With fewer the weights would be read too often."""
COLUMNS = 2048
"""Vocabulary columns of a block."""


def full_precision(logits: Tensor) -> Tensor:
    """Cast logits to at least float32: a softmax in bfloat16 loses the tail."""
    return logits if logits.dtype in (torch.float32, torch.float64) else logits.float()


def _reference(hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    """The equation."""
    return F.cross_entropy(full_precision(F.linear(hidden, weight, bias)), targets, label_smoothing=smoothing)


def _sliced(hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    """The same, slice by slice; the forward pass also computes the gradients."""
    loss, equation = partial(_in_slices, smoothing=smoothing), partial(_reference, smoothing=smoothing)
    return sliced_loss(loss, equation, hidden, weight, bias, targets)


mean_cross_entropy = Kernel("cross_entropy", _reference, Fast("sliced", _sliced, can_slice))
"""The mean of −log softmax(W h + b) at the targets: (M, D), (V, D), (V,) or None, (M,), ε → a scalar.

With label smoothing ε the target is 1 − ε of the truth and ε of the uniform distribution (Szegedy et al., 2016).
"""


def _in_slices(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    grads: Gradients,
    gradient: bool,
    smoothing: float,
) -> Tensor:
    """The mean loss; fills the gradients."""
    M, V = len(hidden), len(weight)
    grad_hidden, grad_weight, grad_bias = grads
    total = hidden.new_zeros(())
    parts = range(0, V, COLUMNS)
    step = -(-M // -(-M // max(1, SLICE // V)))  # slices of the same size, or nearly
    step += spare(step)  # so that only the last one is padded
    for at in rounds(range(0, M, step), hidden):
        here = slice(at, min(at + step, M))
        h, rows = _with_spare(hidden[here]), here.stop - at
        kept, tops, sums = [], [], []
        for c in parts:
            z, top, norm = _exponentials(h, weight[c : c + COLUMNS], None if bias is None else bias[c : c + COLUMNS])
            kept += [z] if gradient else []
            tops.append(top)
            sums.append(norm)
        highest, scales = torch.stack(tops)[:, :rows], torch.stack(sums)[:, :rows]  # (parts, M)
        top = highest.amax(0)
        shares = highest.sub_(top).exp_()
        norm = scales.mul_(shares).sum(0)
        total += (top + norm.log()).sum()
        shares /= norm * M
        for z, c, share in zip(kept, parts, shares[..., None]):
            own = slice(c, c + COLUMNS)
            if grad_hidden is not None:
                grad_hidden[here].addcmul_(matmul(z, weight[own].T)[:rows], share)
            if grad_weight is not None:
                scaled = hidden[here] * share
                torch.addmm(grad_weight[own], z[:rows].T, scaled, beta=int(at > 0), out=grad_weight[own])
            if grad_bias is not None:
                grad_bias[own].addmv_(z[:rows].T, share[:, 0])
    chosen = (hidden * weight.index_select(0, targets)).sum()
    if bias is not None:
        chosen = chosen + bias.index_select(0, targets).sum()
    total -= (1 - smoothing) * chosen
    if smoothing:  # the mean of W h + b over the vocabulary is that of W and b: no pass over the logits
        total -= smoothing * (hidden.sum(0) @ weight.mean(0))
        if bias is not None:
            total -= smoothing * M * bias.mean()
    _subtract_targets(hidden, weight, targets, smoothing, grads)
    return total / M


def _with_spare(h: Tensor) -> Tensor:
    """h (M, D), padded with rows of zeros (see ``matmul.spare``)."""
    more = spare(len(h))
    return F.pad(h, (0, 0, 0, more)) if more else h.contiguous()


def _exponentials(h: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """exp(z − max z) of z = W h + b, (M, C), max z and the sum, (M,) each."""
    z = matmul(h, weight, bias)
    if not loopable(z):
        top = z.amax(1).clamp_(min=torch.finfo(z.dtype).min)  # a row of −∞ stays −∞
        return z.sub_(top[:, None]).exp_(), top, z.sum(1)
    top, norm = z.new_empty(len(z)), z.new_empty(len(z))
    run(loops.exp_rows, *z.shape, z, top, norm)
    return z, top, norm


def _subtract_targets(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    smoothing: float,
    grads: Gradients,
) -> None:
    """Subtract the target from the softmax: 1 − ε of the truth, ε / V of every token."""
    grad_hidden, grad_weight, grad_bias = grads
    V, M = len(weight), len(targets)
    sure, rest = (smoothing - 1) / M, smoothing / M
    if grad_hidden is not None:
        grad_hidden.add_(weight.index_select(0, targets), alpha=sure)
        if smoothing:
            grad_hidden.sub_(weight.mean(0), alpha=rest)
    if grad_weight is not None:
        grad_weight.index_add_(0, targets, hidden, alpha=sure)
        if smoothing:
            grad_weight.sub_(hidden.sum(0), alpha=rest / V)
    if grad_bias is not None:
        grad_bias.index_add_(0, targets, hidden.new_ones(M), alpha=sure)
        if smoothing:
            grad_bias.sub_(smoothing / V)
