"""The two-layer network of a Transformer block, the same at every position.

    FFN(x) = W_2 f(W_1 x + b_1) + b_2                                    D → 4D → D

Legend: D width.
"""

from __future__ import annotations

from torch import Tensor, nn

from ensue.kernels.feed_forward import ACTIVATIONS, feed_forward
from ensue.kernels.int8 import QuantisedLinear

__all__ = ["ACTIVATIONS", "FeedForward"]


class FeedForward(nn.Module):
    """FFN(x) = W_2 f(W_1 x + b_1) + b_2; f is one of ``ACTIVATIONS``."""

    def __init__(self, width: int, inner: int, activation: str = "gelu", bias: bool = True) -> None:
        super().__init__()
        self.activation = activation
        self.up: nn.Linear | QuantisedLinear = nn.Linear(width, inner, bias)  # W_1, b_1
        self.down: nn.Linear | QuantisedLinear = nn.Linear(inner, width, bias)  # W_2, b_2

    def forward(self, x: Tensor) -> Tensor:
        """(…, D) → (…, D)."""
        return feed_forward(x, self.up, self.down, self.activation)
