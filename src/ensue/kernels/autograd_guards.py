"""When a kernel with a gradient of its own may stand in for plain operations.

Such a kernel saves memory or passes over it, but gives one gradient, for one batch. Compilers, mixed precision and the
transforms of ``torch.func`` need to see the operations themselves; so does who asks for the gradient of a gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad


def plain(*tensors: Tensor | None) -> bool:
    """Whether nothing but ordinary automatic differentiation, in float32 or float64, is at work on these."""
    held = [tensor for tensor in tensors if tensor is not None]
    kinds = {tensor.dtype for tensor in held}
    return (
        not any(tensor.is_meta for tensor in held)  # what only counts must see the operations
        and len(kinds) == 1
        and kinds <= {torch.float32, torch.float64}
        and not torch.is_autocast_enabled(held[0].device.type)
        and not visible()
    )


def visible() -> bool:
    """Whether somebody has to see the operations themselves: a compiler, ``torch.jit.trace``, or a transform."""
    return torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None or _transformed()


def differentiable(
    equation: Callable[..., Any], inputs: Sequence[Tensor | None], needed: Sequence[bool], above: Sequence[Tensor]
) -> tuple[Tensor | None, ...]:
    """The gradients of the needed inputs of an equation, made of operations that autograd can differentiate again.

    One input may be made of another: y of x on a residual path, hidden states of the embeddings that are the output's
    weights. So each gets a view of its own, and the gradient of the one does not go on to the other.
    """
    own = [None if one is None else one.view_as(one) for one in inputs]
    wanted = [one for one, need in zip(own, needed, strict=True) if one is not None and need]
    found = iter(torch.autograd.grad(equation(*own), wanted, above, create_graph=True))
    return tuple(next(found) if need else None for need in needed)


def _transformed() -> bool:
    """Whether torch.func (grad, vmap, jvp …) or forward-mode differentiation is at work.

    They ask for derivatives of every operation, also of the gradient and also for many rows at once.
    """
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
