"""Local attention: each position sees itself and the span − 1 positions before it; in both directions also after it.

    y_t = Σ_{t − span < s ≤ t} a_ts v_s W_O          causal
    y_t = Σ_{|t − s| < span} a_ts v_s W_O            in both directions

The cache holds the last positions only, and a long text is read a span at a time, so time grows with the length of a
text and not with its square.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ensue.core.errors import InputError
from ensue.kernels.attention import attend_cached, attention_weights
from ensue.kernels.matmul import linear
from ensue.nn.key_value_cache import KeyValueCache
from ensue.nn.layout import PADDED, Layout
from ensue.nn.mixers.full import SelfAttention
from ensue.nn.mixers.mixer import Mixed, Mixer, MixerConfig


class LocalAttention(SelfAttention):
    """Softmax attention within ``span`` positions; without a span, within a quarter of the context."""

    bounded = True

    def __init__(self, config: MixerConfig, *, span: int = 0, base: float = 0.0) -> None:
        super().__init__(config, base=base)
        if span < 0:
            raise InputError(f"attention = local: span = {span} must be 0 or more")
        self.span = span or max(1, config.context // 4)
        self.packed = False

    def forward(
        self, x: Tensor, state: KeyValueCache | None = None, layout: Layout = PADDED, weights: bool = False
    ) -> Mixed:
        if x.shape[1] <= self.span or weights or not self.causal:
            return super().forward(x, state, layout, weights)
        found, after = [], state
        for start in range(0, x.shape[1], self.span):
            piece = x[:, start : start + self.span]
            lengths = None if layout.lengths is None else (layout.lengths - start).clamp(0, piece.shape[1])
            positions = None if layout.positions is None else layout.positions[:, start : start + self.span]
            y, after, _ = super().forward(piece, after, Layout(lengths, positions))
            found.append(y)
        return Mixed(torch.cat(found, dim=1), after, None)

    def _both(self, parts: tuple[Tensor, ...], layout: Layout, weights: bool) -> tuple[Tensor, Tensor | None]:
        """Attend in both directions, under a band of 2 span − 1 positions."""
        steps = torch.arange(parts[-1].shape[1], device=parts[-1].device)
        if self.rotary is not None:
            parts = (self._rotated(parts[0], steps[None], Layout()),)
        query, key, value = self._heads(*parts)
        mask = ((steps[:, None] - steps).abs() < self.span)[None, None]
        if layout.lengths is not None:  # padding sees itself, or it would be NaN
            real = (steps < layout.lengths[:, None])[:, None, None]
            mask = mask & (real | torch.eye(len(steps), dtype=torch.bool, device=steps.device))
        bias = None if self.score_bias is None else self.score_bias(steps[None], steps[None])
        dropout = self.dropout if self.training else 0.0
        y = attend_cached(query, key, value, mask, bias, dropout, self.score_cap)
        return linear(self.out, y), attention_weights(query, key, mask, bias, self.score_cap) if weights else None

    def at(
        self, index: Tensor, here: Tensor, x: Tensor, layout: Layout, weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        return Mixer.at(self, index, here, x, layout, weights)

    def _usable(self, past: KeyValueCache, time: int, layout: Layout, weights: bool) -> KeyValueCache:
        """The cache without what is further back than the span."""
        if past.used + time <= self.span:
            return super()._usable(past, time, layout, weights)
        return past.separate().last(self.span - 1)
