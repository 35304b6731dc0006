"""Self-attention with a learnt bias for each bucket of distances (T5; Raffel et al., 2020).

    head_i       = softmax(Q_i K_iᵀ + b_i) V_i,   Q = x W_Q,  K = m W_K,  V = m W_V
    b_i(t, s)    = B[bucket(t − s), i]
    MultiHead(x) = Concat(head_1 … head_H) W_O

Scores are not divided by √d: weights begin that much smaller. Half of the buckets are for one distance each; the others
grow with the logarithm of the distance, up to ``distance``, and the last has all that is farther. In both directions
half of all buckets are for what comes after. The layers of a trunk share B. Nothing depends on positions alone, so a
model has no longest text.

Legend: B rows, T new tokens, S keys, H heads, d head width, D width.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor, nn

from ensue.core.errors import InputError
from ensue.kernels.attention import attend_cached, attention_weights
from ensue.kernels.matmul import linear
from ensue.kernels.relative_attention import attend_relative
from ensue.nn.cross_attention import CrossAttention
from ensue.nn.key_value_cache import KeyValueCache
from ensue.nn.layout import PADDED, Layout
from ensue.nn.mixers.full import SelfAttention
from ensue.nn.mixers.mixer import Mixed, Mixer, MixerConfig


def bucket_of(distances: Tensor, buckets: int, farthest: int, both: bool) -> Tensor:
    """The bucket of distances t − s of a query from a key.

    >>> bucket_of(torch.tensor([0, 3, 8, 20, 200, -3]), 32, 128, both=False).tolist()
    [0, 3, 8, 17, 31, 0]
    >>> bucket_of(torch.tensor([0, 3, 8, 20, 200, -3]), 32, 128, both=True).tolist()
    [0, 3, 8, 10, 15, 19]
    """
    side = buckets // 2 if both else buckets
    back = distances.abs() if both else distances.clamp(min=0)
    near = side // 2
    # in float32, as the published models were trained: the border of a bucket is where that rounds it to
    far = torch.log(back.clamp(min=1).float() / near) / math.log(farthest / near) * (side - near)
    found = torch.where(back < near, back, (near + far.long()).clamp(max=side - 1))
    return torch.where(distances < 0, found + side, found) if both else found


class RelativeAttention(SelfAttention):
    """Concat(softmax(Q_i K_iᵀ + b_i) V_i) W_O."""

    caps = False
    paper = "Raffel et al., 2020"

    def __init__(self, config: MixerConfig, *, buckets: int = 32, distance: int = 128) -> None:
        """``distance`` is the farthest that buckets tell apart."""
        if config.score_bias is not None:
            raise InputError("attention = relative has a bias of its own, so it cannot use positions=alibi")
        super().__init__(replace(config, rope_base=0.0))
        side = buckets if self.causal else buckets // 2
        if side < 2 or buckets % 2:
            raise InputError(f"attention = relative: buckets = {buckets} must be even, and at least 4")
        if distance <= side // 2:
            what = f"distance = {distance} must be above {side // 2}, as many buckets have one distance each"
            raise InputError(f"attention = relative: {what}")
        self.buckets, self.distance, self.packed = buckets, distance, False
        key = "relative", self.causal, buckets, distance, self.heads
        table = nn.Parameter(torch.randn(buckets, self.heads) * config.width**-0.5)
        self.bias = config.shared.setdefault(key, table)  # B

    def forward(
        self, x: Tensor, state: KeyValueCache | None = None, layout: Layout = PADDED, weights: bool = False
    ) -> Mixed:
        """Attend from x (B, T, D) to what each position may see."""
        if not self.causal:
            projected = self._projected(x)
            y, seen = self._attend((projected,), layout.lengths, weights)
            return Mixed(linear(self.out, y), None, seen)
        past, T = state or self.start(len(x)), x.shape[1]
        assert past is not None
        if past.fresh:  # all that may be seen was projected just now
            projected = self._projected(x)
            _, key, value = self._heads(projected)
            cache = past.append(key, value, layout.lengths)
            y, seen = self._attend((projected,), None, weights)
            return Mixed(linear(self.out, y), cache, seen)
        past = past.separate()
        query, key, value = self._heads(self._projected(x))
        cache = past.append(key, value, layout.lengths)
        distances = past.positions(T)[..., None] - torch.arange(cache.written, device=x.device)  # (1 or B, T, S)
        bias = self._bias_at(distances).movedim(-1, 1)
        keys, values = (part.to(query.dtype) for part in (cache.written_keys, cache.written_values))
        mask, query = past.visible(T, cache.written), query * math.sqrt(self.head_width)
        y = attend_cached(query, keys, values, mask, bias, self.dropout if self.training else 0.0)
        return Mixed(linear(self.out, y), cache, attention_weights(query, keys, mask, bias) if weights else None)

    def at(
        self, index: Tensor, here: Tensor, x: Tensor, layout: Layout, weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        return Mixer.at(self, index, here, x, layout, weights)

    def _bias_at(self, distances: Tensor) -> Tensor:
        """b of distances, (…) → (…, H)."""
        index = bucket_of(distances, self.buckets, self.distance, not self.causal)
        return nn.functional.embedding(index, self.bias)

    def _attend(self, parts: tuple[Tensor, ...], lengths: Tensor | None, weights: bool) -> tuple[Tensor, Tensor | None]:
        """Attend among what was projected."""
        T = parts[0].shape[1]
        lengths = None if lengths is None else lengths.clamp(min=1)  # an empty row must see something
        table = self._bias_at(torch.arange(1 - T, T, device=parts[0].device)).T
        dropout = self.dropout if self.training else 0.0
        causal, kv_heads = self.causal, self.kv_heads
        y = attend_relative(parts, self.heads, table, lengths, causal=causal, dropout=dropout, kv_heads=kv_heads)
        if not weights:
            return y, None
        steps = torch.arange(T, device=y.device)
        bias, (query, key, _) = self._bias_at(steps[:, None] - steps).movedim(-1, 0)[None], self._heads(*parts)
        mask = None if lengths is None else (steps < lengths[:, None])[:, None, None]
        if self.causal:
            mask = (steps <= steps[:, None])[None, None]
        return y, attention_weights(query * math.sqrt(self.head_width), key, mask, bias)


class UnscaledCrossAttention(CrossAttention):
    """Concat(softmax(Q_i K_iᵀ) V_i) W_O, Q from a decoder, K and V from a source."""

    def _attend(self, parts: tuple[Tensor, ...], lengths: Tensor | None, dropout: float) -> Tensor:
        return attend_relative(parts, self.heads, None, lengths, dropout=dropout)

    def _scaled(self, query: Tensor) -> Tensor:
        heads = self._heads(query)
        return heads * math.sqrt(heads.shape[-1])
