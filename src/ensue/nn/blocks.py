"""Transformer blocks: attention and a two-layer network, each with a residual path and a layer norm.

LayerNorm normalises the features of one token (Ba et al., 2016), never along the sequence.
"""

from __future__ import annotations

from torch import Tensor, nn

from ensue.nn.attention import AttentionState, SelfAttention

ACTIVATIONS: dict[str, type[nn.Module]] = {"gelu": nn.GELU, "relu": nn.ReLU}


class FeedForward(nn.Module):
    """FFN(x) = W_2 f(W_1 x + b_1) + b_2, D → 4D → D, the same at every position."""

    def __init__(self, width: int, inner: int, activation: str = "gelu", dropout: float = 0.0) -> None:
        super().__init__()
        self.up = nn.Linear(width, inner)
        # GPT and GPT-2 take the tanh form of GELU (Hendrycks and Gimpel, 2016)
        self.activation = nn.GELU(approximate="tanh") if activation == "gelu" else ACTIVATIONS[activation]()
        self.down = nn.Linear(inner, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(…, D) → (…, D)."""
        y: Tensor = self.dropout(self.down(self.activation(self.up(x))))
        return y


class Block(nn.Module):
    """The parts that both orders of norm share."""

    def __init__(self, attention: SelfAttention, feed: FeedForward, width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(width)
        self.attention = attention
        self.norm_feed = nn.LayerNorm(width)
        self.feed = feed
        self.dropout = nn.Dropout(dropout)

    def start(self, rows: int) -> AttentionState:
        """The attention's empty memory."""
        return self.attention.start(rows)


class PreNormBlock(Block):
    """GPT-2's order: the residual path is never normalised, so depth trains without warm-up.

    x = x + Attention(LN(x));  x = x + FFN(LN(x))
    """

    def forward(
        self,
        x: Tensor,
        state: AttentionState | None = None,
        lengths: Tensor | None = None,
        weights: bool = False,
    ) -> tuple[Tensor, AttentionState, Tensor | None]:
        """(B, T, D) → (B, T, D)."""
        y, state, seen = self.attention(self.norm_attention(x), state, lengths, weights)
        x = x + self.dropout(y)
        return x + self.feed(self.norm_feed(x)), state, seen


class PostNormBlock(Block):
    """The order of the Transformer paper and of GPT: it needs a warm-up of the learning rate.

    x = LN(x + Attention(x));  x = LN(x + FFN(x))
    """

    def forward(
        self,
        x: Tensor,
        state: AttentionState | None = None,
        lengths: Tensor | None = None,
        weights: bool = False,
    ) -> tuple[Tensor, AttentionState, Tensor | None]:
        """(B, T, D) → (B, T, D)."""
        y, state, seen = self.attention(x, state, lengths, weights)
        x = self.norm_attention(x + self.dropout(y))
        return self.norm_feed(x + self.feed(x)), state, seen


BLOCKS: dict[str, type[Block]] = {"pre": PreNormBlock, "post": PostNormBlock}
