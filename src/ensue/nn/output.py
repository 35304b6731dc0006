"""The loss of an output layer, without its logits ever standing in memory whole.

    z = W h + b,   J = 1/M Σ_m −log softmax(z_m)[y_m]
    ∂J/∂z = (softmax(z) − target) / M,   ∂J/∂h = Wᵀ ∂J/∂z,   ∂J/∂W = ∂J/∂z hᵀ

The gradient of a softmax needs nothing but the softmax, so it is made on the way forward, a slice of tokens at a time:
each slice of logits is small enough to stay in the cache, and is written over until it is its own gradient.

Legend: M tokens, D width, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

SLICE = 1 << 21
"""How many logits stand at once: 8 MB in float32."""
FEW = 1 << 18
"""Fewer logits than this are in the cache anyway."""


def reference(hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float) -> Tensor:
    """The mean cross-entropy, plainly; a softmax in bfloat16 would lose the tail, so logits are float32 at least."""
    logits = F.linear(hidden, weight, bias)
    logits = logits if logits.dtype in (torch.float32, torch.float64) else logits.float()
    return F.cross_entropy(logits, targets, label_smoothing=smoothing)


def sliced(hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float) -> Tensor:
    """The same, slice by slice, its gradients made on the way."""
    learns = torch.is_grad_enabled()  # inside forward it is always off
    loss: Tensor = _Sliced.apply(hidden, weight, bias, targets, smoothing, learns)  # type: ignore[no-untyped-call]
    return loss


KERNELS = {"reference": reference, "sliced": sliced}


def mean_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float = 0.0, kernel: str = "auto"
) -> Tensor:
    """The mean of −log softmax(W h + b) at the targets, (M, D), (V, D), (V,), (M,) → a scalar.

    With ``smoothing`` ε the target is 1 − ε of the truth and ε of the uniform distribution (Szegedy et al., 2016).
    """
    if kernel == "auto":
        whole = hidden.dtype == weight.dtype and hidden.dtype in (torch.float32, torch.float64)
        plain = whole and not torch.is_autocast_enabled(hidden.device.type) and not torch.compiler.is_compiling()
        plain = plain and not _transformed()
        kernel = "sliced" if plain and len(targets) * len(weight) >= FEW else "reference"
    return KERNELS[kernel](hidden, weight, bias, targets, smoothing)


def _transformed() -> bool:
    """Whether torch.func (grad, vmap, jvp …) or forward-mode differentiation is at work.

    They ask for derivatives of every operation, also of the gradient and also for many rows at once. The sliced kernel
    has only one gradient to give.
    """
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


class _Sliced(torch.autograd.Function):
    """Forward makes the gradients too; backward only scales them, so there is no gradient of a gradient."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float, learns: bool
    ) -> Tensor:
        """The mean loss."""
        M, V = len(hidden), len(weight)
        by_hidden, by_weight, by_bias = (learns and wanted for wanted in ctx.needs_input_grad[:3])
        step = max(1, min(M, SLICE // V))
        buffer = hidden.new_empty(step, V)
        grad_hidden = torch.empty_like(hidden) if by_hidden else None
        grad_weight = torch.zeros_like(weight) if by_weight else None
        grad_bias = torch.zeros_like(bias) if by_bias and bias is not None else None
        total = hidden.new_zeros(())
        for at in range(0, M, step):
            h, y = hidden[at : at + step], targets[at : at + step, None]
            z = torch.mm(h, weight.T, out=buffer[: len(h)])
            if bias is not None:
                z += bias
            truth, top = z.gather(1, y), z.amax(1, keepdim=True)
            if smoothing:
                total -= smoothing * z.mean(1).sum()
            total += (top - (1 - smoothing) * truth).sum()
            norm = z.sub_(top).exp_().sum(1, keepdim=True)
            total += norm.log().sum()
            if not (by_hidden or by_weight or by_bias):
                continue
            z.div_(norm)  # softmax − target, of which the truth has 1 − ε
            if smoothing:
                z.sub_(smoothing / V)
            z.scatter_add_(1, y, z.new_full((len(h), 1), smoothing - 1))
            if grad_hidden is not None:
                torch.mm(z, weight, out=grad_hidden[at : at + step])
            if grad_weight is not None:
                grad_weight.addmm_(z.T, h)
            if grad_bias is not None:
                grad_bias += z.sum(0)
        ctx.save_for_backward(grad_hidden, grad_weight, grad_bias)
        ctx.count = M
        return total / M

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *above: Tensor) -> Any:
        """∂J/∂h, ∂J/∂W, ∂J/∂b."""
        by = above[0] / ctx.count
        return *(None if grad is None else grad * by for grad in ctx.saved_tensors), None, None, None
