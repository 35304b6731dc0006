"""Multi-head self-attention over every position that may be seen (Vaswani et al., 2017).

    head_i       = softmax(Q_i K_iᵀ / √d + b) V_i,   Q = x W_Q,  K = m W_K,  V = m W_V
    MultiHead(x) = Concat(head_1 … head_H) W_O

m is x and what came before it (causal), or all of x (in both directions). With fewer key–value heads than heads,
several query heads share one (grouped-query attention, Ainslie et al., 2023). The state is the keys and values so far.
b is an additive bias of scores, where the model has one; queries and keys may have a norm, head by head (Henry et al.,
2020). With a cap c the scores are c tanh(Q_i K_iᵀ / (c √d)) + b (Gemma 2).

Legend: B rows, T new tokens, S keys, H heads, G key–value heads, D width, d head width (D / H unless it is set); a
cache shared by k rows of a beam folds their queries into one row (``ensue.nn.key_value_cache``).
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ensue.core.errors import InputError, unknown_name
from ensue.kernels.attention import (
    attend,
    attend_cached,
    attend_packed,
    attend_packed_from,
    attention_weights,
)
from ensue.kernels.blocked_attention import skips
from ensue.kernels.int8 import part
from ensue.kernels.matmul import linear
from ensue.kernels.rotary import rotate
from ensue.nn.key_value_cache import SHARED, KeyValueCache
from ensue.nn.layout import PADDED, Layout
from ensue.nn.mixers.mixer import Mixed, Mixer, MixerConfig
from ensue.nn.positions import Rotary
from ensue.nn.state import zeros_beside


class SelfAttention(Mixer):
    """Concat(softmax(Q_i K_iᵀ / √d + b) V_i) W_O."""

    caps = True
    paper = "Vaswani et al., 2017"
    complexity = "O(n²)"
    decoding = "O(n)"
    caches: ClassVar[bool] = True
    """Whether its state holds keys and values, if it is causal."""
    span = 0
    """How many positions a query sees, itself included; 0 means all. ``LocalAttention`` sets it."""
    cache_dtype: torch.dtype | None = None
    """The type of cached keys and values, if it is not that of the layer; ``use_cache_type`` sets it."""

    def __init__(self, config: MixerConfig, *, base: float = 0.0) -> None:
        """``base`` is a base of rotary positions of its own, which are not stretched."""
        super().__init__()
        if base and not (config.rope_base and 1 < base < inf):
            raise InputError(f"attention: base = {base} must be above 1 and finite, and positions rotary")
        D, H = config.width, config.heads
        d = config.head_width or D // H
        self.causal, self.dropout = config.causal, config.dropout
        self.heads, self.kv_heads, self.head_width = H, config.kv_heads or H, d
        self.sizes = [H * d, self.kv_heads * d, self.kv_heads * d]
        self.project = nn.Linear(D, sum(self.sizes), bias=config.bias or config.qkv_bias)  # W_Q, W_K, W_V side by side
        self.out = nn.Linear(H * d, D, bias=config.bias)  # W_O
        self.norm_query, self.norm_key = (None if config.qk_norm is None else config.qk_norm(d) for _ in range(2))
        rotation = (base, "none") if base else (config.rope_base, config.rope_scaling)
        self.rotary = Rotary(d, *rotation) if config.rope_base else None
        self.score_bias, self.score_cap = config.score_bias, config.score_cap
        self.plain = self.score_bias is None and not self.score_cap
        """Whether scores are Q Kᵀ / √d, as all kernels compute them."""
        self.packed = self.kv_heads == H and self.rotary is None and self.plain

    def start(self, rows: int) -> KeyValueCache | None:
        """An empty cache; none in both directions."""
        if not self.causal:
            return None
        empty = zeros_beside(self.out, rows, self.kv_heads, 0, self.head_width)
        empty = empty if self.cache_dtype is None else empty.to(self.cache_dtype)
        return KeyValueCache(empty, empty, torch.zeros(rows, dtype=torch.long, device=empty.device))

    def forward(
        self, x: Tensor, state: KeyValueCache | None = None, layout: Layout = PADDED, weights: bool = False
    ) -> Mixed:
        """Attend from x (B, T, D), or packed rows (M, D), to what each position may see."""
        if layout.packing is not None:
            parts, p = (self._projected(x),), self.dropout if self.training else 0.0
            y = attend_packed(parts, self.heads, layout.rows, causal=self.causal, dropout=p)
            return Mixed(linear(self.out, y), None, None)
        if self.causal:
            return self._causal(x, state or self.start(len(x)), layout, weights)  # type: ignore[arg-type]
        y, seen = self._both((self._projected(x),), layout, weights)
        return Mixed(y, None, seen)

    def _causal(self, x: Tensor, past: KeyValueCache, layout: Layout, weights: bool) -> Mixed:
        """Attend to the cache and to x itself."""
        T, dropout = x.shape[1], self.dropout if self.training else 0.0
        past = self._usable(past, T, layout, weights)
        k = past.each
        projected = self._projected(x.reshape(x.shape[0] // k, k * T, x.shape[2]))  # (B/k, k·T, …)
        positions = past.positions(T) if layout.positions is None else layout.positions  # (1 or B, T)
        projected = self._rotated(projected, positions, layout, k)
        query, key, value = self._heads(projected)
        cache = past.append(key, value, layout.lengths)
        bias = (
            None
            if self.score_bias is None
            else self.score_bias(positions, past.key_positions(positions, cache.written))
        )
        span = self.span if self.span < T else 0
        if past.fresh and self.plain and (not span or skips(projected, self.head_width)):
            # all that may be seen was projected just now
            how: dict[str, Any] = {"dropout": dropout, "kv_heads": self.kv_heads, "span": span}
            y = attend((projected,), self.heads, causal=True, **how)
        else:
            mask = None if T == 1 and past.whole(self.span) else past.visible(T, cache.written, self.span)
            keys, values = (part.to(query.dtype) for part in (cache.written_keys, cache.written_values))
            y = attend_cached(query, keys, values, mask, bias, dropout, self.score_cap)
        seen = None
        if weights:
            mask = past.visible(T, cache.written, self.span)
            seen = attention_weights(query, cache.written_keys.to(query.dtype), mask, bias, self.score_cap)
        return Mixed(linear(self.out, y.reshape(*x.shape[:-1], self.sizes[0])), cache, seen)

    def _usable(self, past: KeyValueCache, time: int, layout: Layout, weights: bool) -> KeyValueCache:
        """The cache in a form that can take these tokens: shared between rows of a beam only for plain steps."""
        plain = layout.lengths is None and not weights and self.score_bias is None
        if past.seen is not None and (not plain or past.written + past.each * time > SHARED):
            return past.separate()
        return past

    def at(
        self, index: Tensor, here: Tensor, x: Tensor, layout: Layout, weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from some positions only; what they see is still computed for every position."""
        if self.rotary is not None or self.causal or not self.plain or self.norm_query is not None:
            return super().at(index, here, x, layout, weights)
        width = self.sizes[0]
        query, rest = part(self.project, here, 0, width), part(self.project, x, width, sum(self.sizes))
        if layout.packing is not None:
            p = self.dropout if self.training else 0.0
            return linear(self.out, attend_packed_from(query, rest, self.heads, layout.packing, p)), None
        return self._both((query, rest), layout, weights)

    def _both(self, parts: tuple[Tensor, ...], layout: Layout, weights: bool) -> tuple[Tensor, Tensor | None]:
        """Attend in both directions among what was projected."""
        lengths = None if layout.lengths is None else layout.lengths.clamp(min=1)  # an empty row must see something
        if self.rotary is not None:
            steps = torch.arange(parts[0].shape[1], device=parts[0].device)[None]
            parts = (self._rotated(parts[0], steps if layout.positions is None else layout.positions, layout),)
        query, key, value = self._heads(*parts)
        mask = bias = None
        if not self.plain or weights:
            steps = torch.arange(key.shape[2], device=key.device)
            mask = None if lengths is None else (steps < lengths[:, None])[:, None, None]
            bias = None if self.score_bias is None else self.score_bias(steps[None], steps[None])
        dropout = self.dropout if self.training else 0.0
        if self.plain:
            span = self.span if self.span < key.shape[2] else 0
            y = attend(parts, self.heads, lengths, dropout=dropout, kv_heads=self.kv_heads, span=span)
        else:
            y = attend_cached(query, key, value, mask, bias, dropout, self.score_cap)
        seen = attention_weights(query, key, mask, bias, self.score_cap) if weights else None
        return linear(self.out, y), seen

    def _projected(self, x: Tensor) -> Tensor:
        """Queries, keys and values side by side, (…, D) → (…, (H + 2 G) d); queries and keys after their norms."""
        projected = linear(self.project, x)
        if self.norm_query is None or self.norm_key is None:
            return projected
        query, key, value = torch.split(projected, self.sizes, -1)
        q, k = (one.reshape(*one.shape[:-1], -1, self.head_width) for one in (query, key))
        return torch.cat([self.norm_query(q).flatten(-2), self.norm_key(k).flatten(-2), value], -1)

    def _heads(self, *parts: Tensor) -> list[Tensor]:
        """Queries (B, H, T, d), keys and values (B, G, T, d) of what was projected."""
        first, *rest = parts
        apart = torch.split(first, self.sizes, -1) if not rest else (first, *torch.split(rest[0], self.sizes[1:], -1))
        d = self.head_width
        return [one.view(*one.shape[:-1], one.shape[-1] // d, d).transpose(1, 2) for one in apart]

    def _rotated(self, projected: Tensor, positions: Tensor, layout: Layout, each: int = 1) -> Tensor:
        """Queries and keys among what was projected (B, T, …) rotated by their positions (1 or B, T).

        ``each`` rows of a beam, folded into one, are at the same positions.
        """
        if self.rotary is None:
            return projected
        angles = partial(self.rotary, positions, projected)
        if positions is layout.positions:  # every layer's
            cos, sin = layout.once((*self.rotary.identity, projected.dtype), angles)
        else:
            cos, sin = angles()
        if each > 1:
            cos, sin = cos.repeat(1, each, 1), sin.repeat(1, each, 1)
        return rotate(projected, cos, sin, self.sizes[0] + self.sizes[1])


CACHE_TYPES: dict[str, torch.dtype | None] = {"float32": None, "bf16": torch.bfloat16}
"""Types of the key–value cache, by the names people type."""


def use_cache_type(model: nn.Module, name: str) -> int:
    """Let all attention of a model cache keys and values as ``name``; returns the number of such layers.

    bf16 takes half of the memory of float32, and half of the time to read it.
    """
    if name not in CACHE_TYPES:
        raise unknown_name("key–value cache", name, CACHE_TYPES)
    layers = [
        module for module in model.modules() if isinstance(module, SelfAttention) and module.causal and module.caches
    ]
    for layer in layers:
        layer.cache_dtype = CACHE_TYPES[name]
    return len(layers)
