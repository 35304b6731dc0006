"""Multi-head attention from a decoder to an encoded source (Vaswani et al., 2017).

    head_i      = softmax(Q_i K_iᵀ / √d) V_i,   Q = x W_Q,  K = h W_K,  V = h W_V
    Cross(x, h) = Concat(head_1 … head_H) W_O

Keys and values of a source are computed once a sentence, whatever the number of its hypotheses.

Legend: B rows, T target tokens, N sentences, k rows of each, S source tokens, H heads, d head width, D = H·d.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from ensue.kernels.attention import attend, attend_cached, attend_packed, attention_weights
from ensue.kernels.matmul import linear
from ensue.kernels.packing import AttentionRows
from ensue.nn.source import Source


class Memory(NamedTuple):
    """What the cross-attentions of a trunk attend to."""

    layers: tuple[tuple[Tensor, ...], ...]
    """For each block keys and values (N, H, S, d); of packed rows both side by side (M, 2D)."""
    source: Source | AttentionRows
    """Which sentence each row belongs to; of packed rows, where queries and keys of each are."""


class CrossAttention(nn.Module):
    """Concat(softmax(Q_i K_iᵀ / √d) V_i) W_O, Q from a decoder, K and V from a source."""

    entries: ClassVar[tuple[str, ...]] = ("remember",)
    """Submodules that are called from outside a block, beside ``forward``."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0, bias: bool = True, head_width: int = 0) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        inner = heads * head_width or width
        self.query = nn.Linear(width, inner, bias=bias)  # W_Q
        self.remember = nn.Linear(width, 2 * inner, bias=bias)  # W_K, W_V side by side
        self.out = nn.Linear(inner, width, bias=bias)  # W_O

    def memory(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of a source (N, S, D), each (N, H, S, d)."""
        key, value = (self._heads(part) for part in linear(self.remember, source).chunk(2, dim=-1))
        return key, value

    def forward(
        self, x: Tensor, memory: tuple[Tensor, ...], source: Source | AttentionRows, weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from x (B, T, D), or packed rows (M, D), to the source; weights are (B, H, T, S)."""
        if isinstance(source, AttentionRows):
            y = attend_packed((linear(self.query, x), *memory), self.heads, source)
            return linear(self.out, y), None
        query, (key, value) = source.fold(linear(self.query, x)), memory  # (N, k·T, D)
        mask, dropout = source.mask(key.shape[2]), self.dropout if self.training else 0.0
        mask = None if mask is None else mask[:, None, None]
        if torch.is_grad_enabled():
            parts = (query, *(one.transpose(1, 2).flatten(2) for one in memory))
            y = self._attend(parts, source.lengths if source.ragged else None, dropout)
        else:  # keys and values need not be copied
            y = attend_cached(self._scaled(query), key, value, mask, None, dropout)
        seen = source.unfold(attention_weights(self._scaled(query), key, mask), dim=2) if weights else None
        return linear(self.out, y.reshape(*x.shape[:-1], query.shape[-1])), seen

    def _attend(self, parts: tuple[Tensor, ...], lengths: Tensor | None, dropout: float) -> Tensor:
        """Attend among queries, keys and values of padded rows."""
        return attend(parts, self.heads, lengths, dropout=dropout)

    def _scaled(self, query: Tensor) -> Tensor:
        """Queries (N, T, D) by heads (N, H, T, d), such that the kernels' division by √d gives the scores."""
        return self._heads(query)

    def _heads(self, x: Tensor) -> Tensor:
        """(B, T, D) → (B, H, T, d)."""
        return x.view(*x.shape[:-1], self.heads, x.shape[-1] // self.heads).transpose(1, 2)
