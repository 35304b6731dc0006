"""Feed-forward networks with a gate (Shazeer, 2020).

    FFN(x) = W_2 (f(W_g x) ∘ W_1 x)          f = SiLU: SwiGLU (Llama);  f = GELU: GEGLU (Gemma)

Legend: D width, I inner width.
"""

from __future__ import annotations

from torch import Tensor, nn

from ensue.kernels.gated_feed_forward import GATES, gate, gated_feed_forward
from ensue.kernels.matmul import linear
from ensue.nn.dropout import Dropout

__all__ = ["GATES", "GatedFeedForward"]


class GatedFeedForward(nn.Module):
    """W_2 (f(W_g x) ∘ W_1 x), D → I → D, the same at every position; f is one of ``GATES``."""

    def __init__(
        self, width: int, inner: int, activation: str = "swiglu", bias: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.activation = activation
        self.dropout = Dropout(dropout)
        self.gate = nn.Linear(width, inner, bias=bias)
        self.up = nn.Linear(width, inner, bias=bias)
        self.down = nn.Linear(inner, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """(…, D) → (…, D)."""
        if self.dropout.active:
            h = gate(linear(self.gate, x), linear(self.up, x), self.activation)
            return linear(self.down, self.dropout(h))
        return gated_feed_forward(x, self.gate, self.up, self.down, self.activation)
