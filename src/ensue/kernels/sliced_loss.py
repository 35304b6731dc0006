"""A mean loss of an output layer whose forward pass computes the gradients; the backward pass scales them.

    J = 1/M Σ_m J_m(W h_m + b),    ∂J/∂h, ∂J/∂W and ∂J/∂b are there as soon as J is

Legend: M tokens, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ensue.kernels.autograd_guards import differentiable, plain

FEW = 1 << 18
"""Fewer logits than this fit into the cache anyway."""


class Gradients(NamedTuple):
    """∂J/∂h (M, D), ∂J/∂W (V, D) and ∂J/∂b (V,), where they are needed."""

    hidden: Tensor | None
    """Zeros at first."""
    weight: Tensor | None
    """Not filled at first: the first slice writes it."""
    bias: Tensor | None
    """Zeros at first."""


Loss = Callable[..., Tensor]
"""h, W, b, y → J; or with ``Gradients`` and whether any are needed, which it fills."""


def sliced_loss(
    loss: Loss, equation: Loss, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor
) -> Tensor:
    """J by ``loss``, which fills the gradients; ``equation`` is the same in operations that autograd sees."""
    gradient = torch.is_grad_enabled()  # inside an autograd function's forward it is always off
    found: Tensor = _SlicedLoss.apply(hidden, weight, bias, targets, loss, equation, gradient)  # type: ignore[no-untyped-call]
    return found


def can_slice(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, *numbers: float, **named: float
) -> bool:
    """Whether there are enough logits for slices, and nothing but ordinary automatic differentiation is at work."""
    return len(targets) * len(weight) >= FEW and plain(hidden, weight)


class _SlicedLoss(torch.autograd.Function):
    """The forward pass computes the gradients; the backward pass scales them."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        loss: Loss,
        equation: Loss,
        gradient: bool,
    ) -> Tensor:
        """The mean loss."""
        by_hidden, by_weight, by_bias = (gradient and needed for needed in ctx.needs_input_grad[:3])
        grads = Gradients(
            torch.zeros_like(hidden) if by_hidden else None,
            torch.empty_like(weight) if by_weight else None,
            torch.zeros_like(bias) if by_bias and bias is not None else None,
        )
        found = loss(hidden, weight, bias, targets, grads, gradient)
        ctx.save_for_backward(*grads, hidden, weight, bias, targets)
        ctx.equation = equation
        return found

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> Any:
        """∂J/∂h, ∂J/∂W, ∂J/∂b."""
        *grads, hidden, weight, bias, targets = ctx.saved_tensors
        if torch.is_grad_enabled():  # a gradient of this gradient is needed: autograd must see the operations
            equation = partial(ctx.equation, targets=targets)
            grads = list(differentiable(equation, (hidden, weight, bias), ctx.needs_input_grad[:3], above))
        elif above[0].device.type != "cpu" or above[0] != 1:  # mostly it is 1: the loss itself
            grads = [None if grad is None else grad * above[0] for grad in grads]
        return *grads, None, None, None, None
