"""A linear layer with frozen weights and a low-rank update (LoRA, Hu et al., 2021).

    y = (W + s B A) x + b,   ∂x = (W + s B A)ᵀ ∂y,   ∂B = s ∂y (A x)ᵀ,   ∂A = s Bᵀ ∂y xᵀ

W has no gradient, so ∂W, the largest product of a training step, is never computed. The sum W + s B A takes r / M of
the time of the product with M tokens, and spares two thin products in each direction; it is not kept in between.

Legend: M tokens, D inputs, N outputs, r rank.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.kernels.autograd_guards import differentiable, plain
from ensue.kernels.kernel import Fast, Kernel
from ensue.kernels.matmul import matmul, thin_matmul, transposed


def updated(weight: Tensor, down: Tensor, up: Tensor, scale: float) -> Tensor:
    """W + s B A, (N, D)."""
    return torch.addmm(weight, up, down, alpha=scale)


def _reference(layer: nn.Module, x: Tensor, down: Tensor, up: Tensor, scale: float) -> Tensor:
    """The equation; the layer's own weights get a gradient if they are parameters that need one."""
    return F.linear(x, updated(layer.weight, down, up, scale), layer.bias)  # type: ignore[arg-type]


def _frozen(layer: nn.Module, x: Tensor, down: Tensor, up: Tensor, scale: float) -> Tensor:
    """The same without a gradient of the layer's own weights."""
    y: Tensor = _LowRank.apply(x.reshape(-1, x.shape[-1]), down, up, layer, scale)  # type: ignore[no-untyped-call]
    return y.view(*x.shape[:-1], -1)


def _is_frozen(layer: nn.Module, x: Tensor, down: Tensor, up: Tensor, scale: float) -> bool:
    return not any(weight.requires_grad for weight in layer.parameters()) and plain(x, down, up)


low_rank_linear = Kernel("low_rank_linear", _reference, Fast("frozen", _frozen, _is_frozen))
"""A layer's outputs with an update: (layer, x (…, D), A (r, D), B (N, r), s) → (…, N)."""


def _sum(layer: Any, down: Tensor, up: Tensor, scale: float) -> Tensor:
    """W + s B A outside autograd."""
    return thin_matmul(scale * up, down.T).add_(layer.weight)


class _LowRank(torch.autograd.Function):
    """x (W + s B A)ᵀ + b on matrices."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, down: Tensor, up: Tensor, layer: Any, scale: float) -> Tensor:
        """y."""
        ctx.save_for_backward(x, down, up)
        ctx.layer, ctx.scale = layer, scale
        return matmul(x, _sum(layer, down, up, scale), layer.bias)

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> Any:
        """∂x, ∂A, ∂B."""
        (x, down, up), layer, scale, by = ctx.saved_tensors, ctx.layer, ctx.scale, above[0]
        if torch.is_grad_enabled():  # a gradient of this gradient is needed: autograd must see the operations

            def equation(x: Tensor, down: Tensor, up: Tensor) -> Tensor:
                return _reference(layer, x, down, up, scale)

            return *differentiable(equation, (x, down, up), ctx.needs_input_grad[:3], above), None, None
        by = by.contiguous()
        by_x, by_down, by_up = ctx.needs_input_grad[:3]
        return (
            matmul(by, _sum(layer, down, up, scale).T) if by_x else None,
            thin_matmul(transposed(scale * thin_matmul(by, up.T)), x.T) if by_down else None,
            thin_matmul(transposed(scale * thin_matmul(x, down)), by.T).T.contiguous() if by_up else None,
            None,
            None,
        )
