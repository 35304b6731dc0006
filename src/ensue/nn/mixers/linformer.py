"""Linformer: keys and values projected along time, from n positions to k (Wang et al., 2020).

    head_i = softmax(Q_i (E_i K_i)ᵀ / √d) (F_i V_i),     E_i, F_i: k × n

Attention then has k columns however long the text is: O(n · k). A projected column mixes all positions, so Linformer
reads in both directions only; E and F have a column for each position of the context, so no row may be longer. A
shorter row uses their first columns. With k = n and E = F = identity it is full attention.

``share`` says which projections are the same, as in section 4 of the paper: ``none`` (E and F of each key–value head),
``heads`` (an E and an F), ``kv`` (E = F), ``layer`` (E = F, the same in all layers that share one of this rank).

The weights that are shown are those that tokens have through the projection, softmax(Q (E K)ᵀ / √d) F. They need not be
positive, nor sum to one.

Legend: B rows, T tokens, H heads, G key–value heads, d head width, n context, k rank.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ensue.core.errors import InputError, unknown_name
from ensue.kernels.attention import attend_cached, attention_weights, shared_heads
from ensue.kernels.matmul import linear
from ensue.nn.layout import PADDED, Layout
from ensue.nn.mixers.full import SelfAttention
from ensue.nn.mixers.mixer import Mixed, Mixer, MixerConfig

SHARING = ("none", "heads", "kv", "layer")
"""Which projections are the same."""


class Linformer(SelfAttention):
    """Softmax attention to k projected keys and values."""

    caps = False
    directions = ("both",)
    lengths = ("rank",)
    paper = "Wang et al., 2020"
    complexity = "O(n · rank)"
    decoding = "none: it reads in both directions only"

    def __init__(self, config: MixerConfig, *, rank: int = 0, share: str = "heads") -> None:
        """``rank`` is k; 0 means a quarter of the context, at most 256."""
        super().__init__(config)
        if rank < 0:
            raise InputError(f"attention = linformer: rank = {rank} must be 0 or more")
        if share not in SHARING:
            raise unknown_name("share of attention 'linformer'", share, SHARING)
        if not config.context:
            raise InputError(
                "attention = linformer needs a model with a context, the number of columns that it projects"
            )
        if config.score_bias is not None:
            raise InputError(
                "attention = linformer: projected keys have no positions, so it cannot use positions=alibi"
            )
        self.packed, self.context = False, config.context
        self.rank = rank or min(256, max(1, config.context // 4))
        shape = (self.kv_heads if share == "none" else 1, self.rank, self.context)
        if share == "layer":
            self.project_keys = config.shared.setdefault(("linformer", shape), _projection(shape))
        else:
            self.project_keys = _projection(shape)  # E
        self.project_values = self.project_keys if share in ("kv", "layer") else _projection(shape)  # F

    def forward(self, x: Tensor, state: Any = None, layout: Layout = PADDED, weights: bool = False) -> Mixed:
        """Attend from x (B, T, D) to projected keys and values."""
        T = x.shape[1]
        if self.context < T:
            what = f"attention = linformer reads at most {self.context} tokens, its context, not {T}"
            raise InputError(what, hint="use shorter rows, or train with a larger context")
        steps = torch.arange(T, device=x.device)
        positions = steps[None] if layout.positions is None else layout.positions
        query, key, value = self._heads(self._rotated(self._projected(x), positions, layout))
        if layout.lengths is not None:
            padding = (steps >= layout.lengths[:, None])[:, None, :, None]
            key, value = (part.masked_fill(padding, 0.0) for part in (key, value))
        key = self.project_keys[:, :, :T] @ key  # (B, G, k, d)
        value = self.project_values[:, :, :T] @ value
        y = attend_cached(query, key, value, None, None, self.dropout if self.training else 0.0)
        seen = self._implied(query, key, layout.lengths) if weights else None
        return Mixed(linear(self.out, y), None, seen)

    def _implied(self, query: Tensor, key: Tensor, lengths: Tensor | None) -> Tensor:
        """softmax(Q (E K)ᵀ / √d) F, (B, H, T, T)."""
        T = query.shape[2]
        F = shared_heads(self.project_values[:, :, :T].expand(1, self.kv_heads, -1, -1), self.heads)
        seen = attention_weights(query, key) @ F
        if lengths is None:
            return seen
        return seen.masked_fill((torch.arange(T, device=seen.device) >= lengths[:, None])[:, None, None], 0.0)

    def at(
        self, index: Tensor, here: Tensor, x: Tensor, layout: Layout, weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        return Mixer.at(self, index, here, x, layout, weights)


def _projection(shape: tuple[int, int, int]) -> nn.Parameter:
    """(1 or G, k, n). Sums of n positions are as large as one of them at first."""
    return nn.Parameter(torch.randn(shape) / shape[2] ** 0.5)
