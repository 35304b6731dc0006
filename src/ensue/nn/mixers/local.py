"""Local attention: each position sees itself and the span − 1 positions before it; in both directions also after it.

    y_t = Σ_{t − span < s ≤ t} a_ts v_s W_O          causal
    y_t = Σ_{|t − s| < span} a_ts v_s W_O            in both directions

The cache holds the last positions only, and a long text is read in blocks (``ensue.nn.mixers.pattern``), so time grows
with the length of a text and not with its square.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ensue.core.errors import InputError
from ensue.kernels.attention import attend_cached, attention_weights
from ensue.kernels.blocked_attention import skips
from ensue.kernels.matmul import linear
from ensue.kernels.pattern_attention import Part
from ensue.nn.key_value_cache import KeyValueCache
from ensue.nn.layout import Layout
from ensue.nn.mixers.full import SelfAttention
from ensue.nn.mixers.mixer import Mixed, MixerConfig
from ensue.nn.mixers.pattern import Blocks, PatternAttention

SMALLEST, LARGEST = 16, 64
"""Sizes of blocks: smaller ones are slow, and larger ones compute more scores outside the span."""


class LocalAttention(PatternAttention):
    """Softmax attention within ``span`` positions; without a span, within a quarter of the context."""

    bounded = True
    caps = True
    lengths = ("span",)
    paper = "Beltagy et al., 2020"
    complexity = "O(n · span)"
    decoding = "O(span)"

    def __init__(self, config: MixerConfig, *, span: int = 0, base: float = 0.0) -> None:
        super().__init__(config, base=base)
        if span < 0:
            raise InputError(f"attention = local: span = {span} must be 0 or more")
        self.span = span or max(1, config.context // 4)
        self.block = min(max(self.span, SMALLEST), LARGEST)
        self.near_blocks = -(-(self.span - 1) // self.block)

    def sees(self, query: Tensor, key: Tensor, head: int = 0) -> Tensor:
        apart = query[..., None] - key
        return (apart >= 0) & (apart < self.span) if self.causal else apart.abs() < self.span

    def parts(self, blocks: Blocks) -> list[Part]:
        return blocks.band(self.span - 1, 0 if self.causal else self.span - 1)

    def _causal(self, x: Tensor, past: KeyValueCache, layout: Layout, weights: bool) -> Mixed:
        """Attend to the cache and to x itself: all of it in short texts, else to what is within the span."""
        if x.shape[1] <= self.span or (self.score_cap and weights):
            return SelfAttention._causal(self, x, past, layout, weights)
        if self.score_cap:
            return self._spans(x, past, layout)
        whole = past.fresh and self.plain and skips(x, self.head_width)
        y, cache, seen = (SelfAttention if whole else PatternAttention)._causal(self, x, past, layout, weights)
        return Mixed(y, self._seen_later(cache, layout), seen)

    def _spans(self, x: Tensor, past: KeyValueCache, layout: Layout) -> Mixed:
        """Attend a span at a time, for scores with a cap, which no kernel of blocks computes."""
        found: list[Tensor] = []
        for start in range(0, x.shape[1], self.span):
            piece = x[:, start : start + self.span]
            lengths = None if layout.lengths is None else (layout.lengths - start).clamp(0, piece.shape[1])
            positions = None if layout.positions is None else layout.positions[:, start : start + self.span]
            y, past, _ = SelfAttention._causal(self, piece, past, Layout(lengths, positions), False)
            found.append(y)
        return Mixed(torch.cat(found, dim=1), past, None)

    def _both(self, parts: tuple[Tensor, ...], layout: Layout, weights: bool) -> tuple[Tensor, Tensor | None]:
        """Attend in both directions; scores with a cap under a mask, as no kernel of blocks computes them."""
        if self.plain and skips(parts[0], self.head_width):
            y, _ = SelfAttention._both(self, parts, layout, False)
            return y, super()._both(parts, layout, True)[1] if weights else None
        if not self.score_cap:
            return super()._both(parts, layout, weights)
        steps = torch.arange(parts[0].shape[1], device=parts[0].device)
        positions = steps[None] if layout.positions is None else layout.positions
        query, key, value = self._heads(self._rotated(parts[0], positions, layout))
        mask = self.sees(steps, steps)[None, None]
        if layout.lengths is not None:  # padding sees itself, or it would be NaN
            real = (steps < layout.lengths[:, None])[:, None, None]
            mask = mask & (real | torch.eye(len(steps), dtype=torch.bool, device=steps.device))
        bias = None if self.score_bias is None else self.score_bias(steps[None], steps[None])
        y = attend_cached(query, key, value, mask, bias, self.dropout if self.training else 0.0, self.score_cap)
        return linear(self.out, y), attention_weights(query, key, mask, bias, self.score_cap) if weights else None

    def _usable(self, past: KeyValueCache, time: int, layout: Layout, weights: bool) -> KeyValueCache:
        """The cache without what is further back than the span."""
        if past.used + time <= self.span:
            return SelfAttention._usable(self, past, time, layout, weights)
        return self._seen_later(past.separate(), layout)

    def _seen_later(self, cache: KeyValueCache, layout: Layout) -> KeyValueCache:
        """The cache without what no later position sees.

        All is kept where the cache alone knows the positions by which keys are rotated: it counts its tokens.
        """
        counts = layout.positions is None and self.rotary is not None
        return cache if counts else cache.last(self.span - 1)
