"""Batch normalisation of vectors (Ioffe and Szegedy, 2015).

    y = γ ∘ (x − μ) / √(σ² + ε) + β

μ and σ² are those of the batch as it learns, and running means of them in use, each batch with a weight of m, the
first 1 / m with equal ones, so that what the means began with counts for nothing. A batch of one has neither, so it
takes the running ones too.

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
        self.register_buffer("seen", torch.zeros(1))  # how many batches; a number like others, so it can be averaged
        self.momentum, self.epsilon = momentum, epsilon

    def forward(self, x: Tensor) -> Tensor:
        """(B, D) → (B, D)."""
        mean, variance = self.get_buffer("mean"), self.get_buffer("variance")
        learns, share = self.training and len(x) > 1, self.momentum
        if learns:
            seen = self.get_buffer("seen").add_(1)
            share = max(share, 1 / float(seen))
        return F.batch_norm(x, mean, variance, self.weight, self.bias, learns, share, self.epsilon)
