"""Products of matrices by whichever of torch's two libraries is faster on this processor.

    y = x Wᵀ + b,   ∂x = ∂y W,   ∂W = ∂yᵀ x,   ∂b = Σ ∂y

Torch's own products are MKL's, which on AMD's processors leaves a tenth of what they can do. oneDNN, which torch has
too and keeps for other things, does not, where the rows of its left matrix are read as they lie: y and ∂x. For ∂W the
smaller of the two is turned over first, which pays where the product is large. It makes code for every size it sees,
which takes half a millisecond, so that small products stay with MKL.

Who computes depends on the processor and on sizes, never on what was timed: a run that is resumed computes the same.

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
from ensue.kernels.threads import LANES, reachable, run

LARGE = 1 << 27
"""Products and sums, M · D · N, from which on it pays."""
LARGE_TURNED = 3 << 27
"""The same where a matrix has to be turned over first."""
MULTIPLE = 64
"""What numbers of rows are rounded up to a multiple of, at most; see ``spare``."""


@cache
def _amd() -> bool:
    """Whether this is a processor on which MKL is the slower."""
    try:
        return "AuthenticAMD" in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def _by_onednn(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN is to compute x Wᵀ."""
    return bool(
        x.numel() * len(weight) >= LARGE
        and x.device.type == "cpu"
        and x.dtype == torch.float32 == weight.dtype
        and x.is_contiguous()
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and torch.backends.mkldnn.enabled
        and _amd()
    )


def spare(rows: int) -> int:
    """How many rows to add to so many, where that is free to choose: to the next multiple of a sixteenth of the power
    of two below, or of 64.

    oneDNN's code for each number of rows it meets is kept, half a megabyte a product, among blocks that are freed and
    asked for again: a Transformer that met a new number in every batch had three times the memory after 200 of them.
    """
    return -rows % min(MULTIPLE, 1 << max(0, rows.bit_length() - 5))


def reference(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b, (M, D), (N, D), (N,) → (M, N); outside autograd, as all here but ``linear``."""
    return x @ weight.T if bias is None else torch.addmm(bias, x, weight.T)


def onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The same; W may lie the other way round."""
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return y


KERNELS = {"reference": reference, "onednn": onednn}


def times(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b by whoever is faster."""
    return KERNELS["onednn" if _by_onednn(x, weight) else "reference"](x, weight, bias)


def turned(x: Tensor) -> Tensor:
    """xᵀ as a matrix of its own, (M, D) → (D, M)."""
    if not reachable(x) or not x.is_contiguous() or min(x.shape) < LANES:
        return x.T.contiguous()
    from ensue.kernels import tiles as matrices  # numba takes a while to import

    y = x.new_empty(x.shape[1], x.shape[0])
    run(matrices.turn_over, *x.shape, x, y)
    return y


def summed_reference(above: Tensor, x: Tensor) -> Tensor:
    """∂W = ∂yᵀ x, (M, N), (M, D) → (N, D)."""
    return above.T @ x


def summed_onednn(above: Tensor, x: Tensor) -> Tensor:
    """The same; the smaller matrix is turned over, and with x the result too."""
    if above.shape[1] < x.shape[1]:
        return onednn(turned(above), x.T)
    return turned(onednn(turned(x), above.T))


SUMMED_KERNELS = {"reference": summed_reference, "onednn": summed_onednn}


def summed(above: Tensor, x: Tensor) -> Tensor:
    """∂W = ∂yᵀ x by whoever is faster."""
    able = above.numel() * x.shape[1] >= LARGE_TURNED and above.is_contiguous() and _by_onednn(x, above.T)
    return SUMMED_KERNELS["onednn" if able else "reference"](above, x)


def linear(layer: nn.Module, x: Tensor) -> Tensor:
    """A layer's outputs, (…, D) → (…, N): of a plain linear one by ``times`` in both directions, else as it is."""
    if (
        type(layer) is nn.Linear
        and layer.bias is not None
        and not (layer._forward_hooks or layer._forward_pre_hooks)
        and x.numel() * layer.out_features >= LARGE
        and plain(x, layer.weight, layer.bias)
        and _by_onednn(x, layer.weight)
    ):
        flat = x.view(-1, x.shape[-1])
        y: Tensor = _Linear.apply(flat, layer.weight, layer.bias)  # type: ignore[no-untyped-call]
        return y.view(*x.shape[:-1], -1)
    result: Tensor = layer(x)
    return result


class _Linear(torch.autograd.Function):
    """x Wᵀ + b on matrices."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """y."""
        ctx.save_for_backward(x, weight, bias)
        return times(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> Any:
        """∂x, ∂W, ∂b."""
        x, weight, bias = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient of a gradient is asked for: let autograd see the operations
            return differentiable(F.linear, (x, weight, bias), ctx.needs_input_grad, above)
        by_x, by_weight, by_bias = ctx.needs_input_grad
        return (
            times(above[0].contiguous(), weight.T) if by_x else None,
            summed(above[0], x) if by_weight else None,
            above[0].sum(0) if by_bias else None,
        )
