"""Batch normalisation of vectors (Ioffe and Szegedy, 2015).

    y = γ ∘ (x − μ) / √(σ² + ε) + β

μ and σ² are those of the batch as it learns, and running means of them in use; a batch of one has neither, so it takes
the running ones too.

Legend: B rows, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class BatchNorm(nn.Module):
    """Every unit with mean 0 and variance 1 over the rows, then scaled and shifted."""

    def __init__(self, width: int, momentum: float = 0.1, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("variance", torch.ones(width))
        self.momentum, self.epsilon = momentum, epsilon

    def forward(self, x: Tensor) -> Tensor:
        """(B, D) → (B, D)."""
        mean, variance = self.get_buffer("mean"), self.get_buffer("variance")
        learns = self.training and len(x) > 1
        return F.batch_norm(x, mean, variance, self.weight, self.bias, learns, self.momentum, self.epsilon)
