"""Batch normalisation of vectors (Ioffe and Szegedy, 2015).

    y = γ ∘ (x − μ) / √(σ² + ε) + β

In training μ and σ² are those of the batch, and otherwise their running means with momentum m; the first 1 / m batches
are averaged with equal weights, so the initial values have no effect. A batch of one row uses the running means too.
With several ranks μ and σ² are over the rows of all ranks.

Legend: B rows, D width.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Moments = Callable[[Tensor], tuple[Tensor, Tensor, int]]
"""Computes the mean (D,) and the variance (D,) over the rows of all ranks, and their number."""


class BatchNorm(nn.Module):
    """Batch normalisation of (B, D)."""

    def __init__(self, width: int, momentum: float = 0.1, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("variance", torch.ones(width))
        self.register_buffer("seen", torch.zeros(1))  # batches seen; a float, so that checkpoints can be averaged
        self.momentum, self.epsilon = momentum, epsilon
        self.moments: Moments | None = None
        """Set if other ranks hold rows of the same batch."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, D) → (B, D)."""
        if self.training and self.moments is not None:
            return self._of_all(x, *self.moments(x))
        mean, variance = self.get_buffer("mean"), self.get_buffer("variance")
        learns, share = self.training and len(x) > 1, self.momentum
        if learns:
            seen = self.get_buffer("seen").add_(1)
            share = max(share, 1 / float(seen))
        return F.batch_norm(x, mean, variance, self.weight, self.bias, learns, share, self.epsilon)

    def _of_all(self, x: Tensor, mean: Tensor, variance: Tensor, count: int) -> Tensor:
        """Normalise with the moments of all ranks' rows."""
        running = self.get_buffer("mean"), self.get_buffer("variance")
        if count > 1:
            share = max(self.momentum, 1 / float(self.get_buffer("seen").add_(1)))
            running[0].lerp_(mean.detach(), share)
            running[1].lerp_(variance.detach() * (count / (count - 1)), share)
        else:
            mean, variance = running
        return (x - mean) * torch.rsqrt(variance + self.epsilon) * self.weight + self.bias
