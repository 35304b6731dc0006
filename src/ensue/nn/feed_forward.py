"""The two-layer network of a Transformer block, the same at every position.

    FFN(x) = W_2 f(W_1 x + b_1) + b_2                                    D → 4D → D

T5 drops some of f(W_1 x) in training.

Legend: D width.
"""

from __future__ import annotations

from torch import Tensor, nn

from ensue.kernels.feed_forward import ACTIVATIONS, feed_forward
from ensue.kernels.int8 import QuantisedLinear
from ensue.kernels.matmul import linear
from ensue.nn.dropout import Dropout

__all__ = ["ACTIVATIONS", "FeedForward"]


class FeedForward(nn.Module):
    """FFN(x) = W_2 f(W_1 x + b_1) + b_2; f is one of ``ACTIVATIONS``."""

    def __init__(
        self, width: int, inner: int, activation: str = "gelu", bias: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.activation = activation
        self.dropout = Dropout(dropout)
        self.up: nn.Linear | QuantisedLinear = nn.Linear(width, inner, bias)  # W_1, b_1
        self.down: nn.Linear | QuantisedLinear = nn.Linear(inner, width, bias)  # W_2, b_2

    def forward(self, x: Tensor) -> Tensor:
        """(…, D) → (…, D)."""
        if self.dropout.active:
            return linear(self.down, self.dropout(ACTIVATIONS[self.activation].plain(linear(self.up, x))))
        return feed_forward(x, self.up, self.down, self.activation)
