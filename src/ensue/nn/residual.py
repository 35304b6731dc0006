"""The end of a residual path: dropout, sum and norm."""

from __future__ import annotations

from torch import Tensor, nn

from ensue.kernels import add_norm as kernel
from ensue.nn.dropout import Dropout


def add_norm(x: Tensor, y: Tensor, dropout: Dropout, norm: nn.Module) -> Tensor:
    """norm(x + dropout(y)), (…, D) → (…, D)."""
    return kernel.add_norm(x, y, dropout.rate, norm)
