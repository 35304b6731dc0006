"""RMSNorm: a norm without a mean and a bias (Zhang and Sennrich, 2019).

    RMSNorm(x) = x / √(mean x² + ε) ∘ γ

Legend: D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ensue.kernels.rms_norm import rms_norm


class RMSNorm(nn.RMSNorm):
    """x / √(mean x² + ε) ∘ γ over the last dimension; weights and arguments are those of ``nn.RMSNorm``."""

    def __init__(self, width: int, eps: float | None = None) -> None:
        super().__init__(width, eps)

    def forward(self, x: Tensor) -> Tensor:
        """(…, D) → (…, D)."""
        return rms_norm(x, self.weight, torch.finfo(x.dtype).eps if self.eps is None else self.eps)
