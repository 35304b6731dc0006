"""Matrix multiplication by whichever of torch's two libraries is faster on this processor.

    y = x Wᵀ + b,   ∂x = ∂y W,   ∂W = ∂yᵀ x,   ∂b = Σ ∂y

Torch multiplies with MKL, which leaves half of what AMD's newer processors can do. oneDNN, which torch also has, does
not, where it reads the rows of its left matrix in order: y and ∂x. For ∂W the smaller of the two matrices is transposed
first. oneDNN generates code for every size it sees, which takes half a millisecond and half a megabyte. So a product
that is not large is left to MKL, unless its number of tokens is a round one: windows of text and packed rows have few
such numbers, padded rows have many others. Tiny products stay with MKL: a call of oneDNN takes longer.

The choice depends on the processor and on sizes, never on timings: a resumed run computes the same.

Legend: M tokens, D width, N outputs.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.kernels.autograd_guards import differentiable, plain
from ensue.kernels.kernel import Fast, Kernel
from ensue.kernels.loops import Loops
from ensue.kernels.threads import LANES, loopable, run

tiles = Loops("ensue.kernels.tiles")

LARGE = 1 << 27
"""The least M · D · N for oneDNN whatever M is."""
LARGE_TRANSPOSED = 3 << 27
"""The same where a matrix has to be transposed first."""
SMALL = 1 << 22
"""The least M · D · N for oneDNN where M is round."""
SMALL_TRANSPOSED = 1 << 23
"""The same where a matrix has to be transposed first."""
MULTIPLE = 64
"""The largest multiple that ``spare`` rounds to."""


@cache
def _amd() -> bool:
    """True for processors on which MKL is the slower."""
    try:
        return "AuthenticAMD" in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def _large(tokens: int, size: int, large: int, small: int) -> bool:
    """True if a product of ``size`` multiplications over M = ``tokens`` is worth oneDNN's code for it."""
    return size >= large or (size >= small and tokens >= MULTIPLE and not spare(tokens))


def _onednn_is_faster(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    """True where oneDNN should compute x Wᵀ."""
    return _large(len(x), x.numel() * len(weight), LARGE, SMALL) and _onednn_can_run(x, weight)


def _onednn_can_run(x: Tensor, weight: Tensor) -> bool:
    """True on processors where oneDNN is the faster, for matrices that it reads in order."""
    return bool(
        x.device.type == "cpu"
        and x.dtype == torch.float32 == weight.dtype
        and x.is_contiguous()
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and torch.backends.mkldnn.enabled
        and _amd()
    )


def spare(rows: int) -> int:
    """How many padding rows to add: to the next multiple of 64, or of a sixteenth of the power of two below.

    oneDNN keeps the code it generates for each number of rows, half a megabyte a product, among blocks that are freed
    and requested again: a Transformer that met a new number in every batch had three times the memory after 200.
    """
    return -rows % min(MULTIPLE, 1 << max(0, rows.bit_length() - 5))


def _reference(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return x @ weight.T if bias is None else torch.addmm(bias, x, weight.T)


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The same; W may be a transposed view."""
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return y


matmul = Kernel("matmul", _reference, Fast("onednn", _onednn, _onednn_is_faster))
"""x Wᵀ + b outside autograd: (M, D), (N, D), (N,) or None → (M, N)."""


def thin_matmul(x: Tensor, weight: Tensor) -> Tensor:
    """x Wᵀ where W, or x itself, is thin: (M, D), (N, D) → (M, N). MKL is the slower there even if little is to do."""
    return _onednn(x, weight) if not spare(len(x)) and _onednn_can_run(x, weight) else _reference(x, weight)


def transposed(x: Tensor) -> Tensor:
    """xᵀ, contiguous: (M, D) → (D, M)."""
    if not loopable(x) or not x.is_contiguous() or min(x.shape) < LANES:
        return x.T.contiguous()
    y = x.new_empty(x.shape[1], x.shape[0])
    run(tiles.transpose_matrix, *x.shape, x, y)
    return y


def _gradient_reference(above: Tensor, x: Tensor) -> Tensor:
    return above.T @ x


def _gradient_onednn(above: Tensor, x: Tensor) -> Tensor:
    """The same; the smaller matrix is transposed, and where that is x also the result."""
    if above.shape[1] < x.shape[1]:
        return _onednn(transposed(above), x.T)
    return transposed(_onednn(transposed(x), above.T))


def _gradient_onednn_is_faster(above: Tensor, x: Tensor) -> bool:
    large = _large(len(x), above.numel() * x.shape[1], LARGE_TRANSPOSED, SMALL_TRANSPOSED)
    return large and above.is_contiguous() and _onednn_can_run(x, above)


weight_gradient = Kernel(
    "weight_gradient", _gradient_reference, Fast("onednn", _gradient_onednn, _gradient_onednn_is_faster)
)
"""∂W = ∂yᵀ x outside autograd: (M, N), (M, D) → (N, D)."""


def unhooked(layer: nn.Module) -> bool:
    """True for a linear layer that computes W x + b, or W x, and nothing else: no hooks, no ``forward`` of its own."""
    return (
        isinstance(layer, nn.Linear)
        and type(layer).forward is nn.Linear.forward
        and not (layer._forward_hooks or layer._forward_pre_hooks)
    )


def has_bias(layer: nn.Module) -> bool:
    """True for a linear layer with a bias."""
    return layer._parameters.get("bias", layer) is not None  # a parametrised bias is not among them


def _layer(layer: nn.Module, x: Tensor) -> Tensor:
    y: Tensor = layer(x)
    return y


def _layer_onednn(layer: nn.Module, x: Tensor) -> Tensor:
    """The same with ``matmul`` in both directions."""
    y: Tensor = _Linear.apply(x.view(-1, x.shape[-1]), layer.weight, layer.bias)  # type: ignore[no-untyped-call]
    return y.view(*x.shape[:-1], -1)


def _layer_onednn_is_faster(layer: nn.Module, x: Tensor) -> bool:
    return (
        type(layer) is nn.Linear
        and _large(x.numel() // layer.in_features, x.numel() * layer.out_features, LARGE, SMALL)
        and unhooked(layer)
        and plain(x, layer.weight, layer.bias)
        and _onednn_can_run(x, layer.weight)
    )


linear = Kernel("linear", _layer, Fast("onednn", _layer_onednn, _layer_onednn_is_faster))
"""A layer's outputs: (layer, x (…, D)) → (…, N)."""


class _Linear(torch.autograd.Function):
    """x Wᵀ + b on matrices."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """y."""
        ctx.save_for_backward(x, weight, bias)
        return matmul(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> Any:
        """∂x, ∂W, ∂b."""
        x, weight, bias = ctx.saved_tensors
        if torch.is_grad_enabled():  # a gradient of this gradient is needed: autograd must see the operations
            return differentiable(F.linear, (x, weight, bias), ctx.needs_input_grad, above)
        by_x, by_weight, by_bias = ctx.needs_input_grad
        return (
            matmul(above[0].contiguous(), weight.T) if by_x else None,
            weight_gradient(above[0], x) if by_weight else None,
            above[0].sum(0) if by_bias else None,
        )
