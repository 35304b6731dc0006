"""When a kernel with a backward pass of its own may stand in for plain operations.

Such a kernel saves memory or passes over memory, but it computes one gradient of one batch. Compilers, mixed precision
and the transforms of ``torch.func`` have to see the operations themselves, and so has a gradient of a gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

FLOATS = (torch.float32, torch.float64)


def plain(*tensors: Tensor | None) -> bool:
    """True for float32 or float64 tensors, all of one type, under plain autograd."""
    dtype = device = None
    for tensor in tensors:
        if tensor is None:
            continue
        if tensor.is_meta or dtype not in (None, tensor.dtype):  # counting operations needs to see them
            return False
        dtype, device = tensor.dtype, tensor.device
    return dtype in FLOATS and device is not None and not torch.is_autocast_enabled(device.type) and not visible()


def visible() -> bool:
    """True where the operations have to be visible: to a compiler, ``torch.jit.trace`` or a transform."""
    return torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None or _transformed()


def differentiable(
    equation: Callable[..., Any], inputs: Sequence[Tensor | None], needed: Sequence[bool], above: Sequence[Tensor]
) -> tuple[Tensor | None, ...]:
    """The gradients of the needed inputs of an equation, which autograd can differentiate again.

    One input may be computed from another: y from x on a residual path, hidden states from embeddings that are the
    output's weights. So each gets a view of its own, and the gradient of one does not flow on to another.
    """
    views = [None if one is None else one.view_as(one) for one in inputs]
    wanted = [view for view, need in zip(views, needed, strict=True) if view is not None and need]
    gradients = iter(torch.autograd.grad(equation(*views), wanted, above, create_graph=True))
    return tuple(next(gradients) if need else None for need in needed)


def _transformed() -> bool:
    """True inside torch.func (grad, vmap, jvp …) or forward-mode differentiation.

    They take derivatives of every operation, also of the gradient and also for many rows at once.
    """
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
