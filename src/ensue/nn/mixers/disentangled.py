"""Disentangled attention: content and position are compared apart (DeBERTa; He et al., 2021).

    Q, K, V = x W_Q, x W_K, x W_V                        content
    R^K, R^Q = P W_K', P W_Q'                            position: P has 2k vectors, the same in all layers
    A_ij = Q_i·K_j + Q_i·R^K_δ(i−j) + K_j·R^Q_δ(i−j)     content by content, content by position, position by content
    y_i  = softmax_j(A_ij / √(3 d)) V W_O
    δ(n) = min(max(n + k, 0), 2k − 1)                    distances from k on are one

``disentangled`` is the first version. In the third term the paper has δ(j − i), its authors' code and this one have
δ(i − j), which gives the learned vectors another order. ``disentangled-shared`` is that of versions 2 and 3: positions
are projected as content is, W_K' = W_K and W_Q' = W_Q, P has a layer norm, and distances share vectors, the more the
longer they are (b buckets, m the longest distance):

    δ(n) = n + b                                                            where |n| ≤ b / 2
    δ(n) = sign(n) (⌈log(2|n| / b) / log(2 (m − 1) / b) · (b / 2 − 1)⌉ + b / 2) + b   beyond, at most 2b − 1

Legend: B rows, T tokens, K positions of a row that are asked for, H heads, G key–value heads, D width, d head width,
N = 2T − 1 distances.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor, nn

from ensue.core.errors import InputError
from ensue.kernels.attention import shared_heads
from ensue.kernels.disentangled_attention import Parts, Positions, disentangled_attention, disentangled_weights
from ensue.kernels.dropout import dropout as drop
from ensue.kernels.int8 import part
from ensue.kernels.matmul import linear
from ensue.nn.dropout import Dropout
from ensue.nn.layout import PADDED, Layout
from ensue.nn.mixers.full import SelfAttention
from ensue.nn.mixers.mixer import Mixed, MixerConfig

LONGEST = 512
"""k where neither an option nor the context says."""


class Distances(nn.Module):
    """P: a vector for each distance, (2k, D)."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(count, width) * 0.02)

    def forward(self, rows: Tensor) -> Tensor:
        """Vectors of some distances, (N,) → (N, D)."""
        return self.weight.index_select(0, rows)


class NormedDistances(Distances):
    """LN(P)."""

    def __init__(self, count: int, width: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__(count, width)
        self.norm = norm(width)

    def forward(self, rows: Tensor) -> Tensor:
        return self.norm(super().forward(rows))  # type: ignore[no-any-return]


class DisentangledAttention(SelfAttention):
    """softmax((Q Kᵀ + Q R^Kᵀ + (K R^Qᵀ)ᵀ) / √(3 d)) V W_O, at the distances of positions."""

    caps = False
    caches = False
    directions = ("both",)
    paper = "He et al., 2021"
    complexity = "O(n²)"
    decoding = "none: it reads in both directions only"

    def __init__(self, config: MixerConfig, *, longest: int = 0) -> None:
        """``longest`` is k; 0 means the context."""
        name, own = self._name, "has relative positions of its own"
        if config.score_bias is not None or config.rope_base:
            what = f"attention = {name} {own}, so it cannot use positions=rotary or positions=alibi"
            raise InputError(what, hint="use positions=none, learned or sinusoidal")
        if longest < 0:
            raise InputError(f"attention = {name}: longest = {longest} must be 0 or more")
        super().__init__(config)
        self.packed = False
        self.longest = longest or config.context or LONGEST
        self._add_content(config)
        key: Hashable = (name, self._count, config.width)
        self.distances: Distances = config.shared.setdefault(key, self._build_distances(config))  # P
        self._add_positions(config)
        self.drop_distances = Dropout(config.dropout)

    _name = "disentangled"

    @property
    def _count(self) -> int:
        """The number of vectors in P."""
        return 2 * self.longest

    def _build_distances(self, config: MixerConfig) -> Distances:
        return Distances(self._count, config.width)

    def _add_content(self, config: MixerConfig) -> None:
        """W_Q, W_K, W_V: here keys have no bias."""
        self.project = nn.Linear(config.width, sum(self.sizes), bias=False)
        biased = config.bias or config.qkv_bias
        self.query_bias, self.value_bias = (
            nn.Parameter(torch.zeros(size)) if biased else None for size in (self.sizes[0], self.sizes[2])
        )

    def _add_positions(self, config: MixerConfig) -> None:
        """W_K', W_Q'."""
        self.position_key = nn.Linear(config.width, self.sizes[1], bias=False)
        self.position_query = nn.Linear(config.width, self.sizes[0], bias=config.bias or config.qkv_bias)

    def row(self, distance: Tensor) -> Tensor:
        """δ."""
        return (distance + self.longest).clamp(0, 2 * self.longest - 1)

    def forward(self, x: Tensor, state: Any = None, layout: Layout = PADDED, weights: bool = False) -> Mixed:
        """Attend from x (B, T, D) in both directions."""
        parts, positions, mask = self._parts(x, x), self._positions(x.shape[1]), self._mask(x, layout)
        y = disentangled_attention(parts, positions, mask, self.dropout if self.training else 0.0)
        seen = disentangled_weights(parts, positions, mask) if weights else None
        return Mixed(linear(self.out, y), None, seen)

    def at(
        self, index: Tensor, here: Tensor, x: Tensor, layout: Layout, weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from ``here`` (B, K, D) only, which stands at ``index``, to all of x."""
        parts, positions = self._parts(here, x), self._positions(x.shape[1])
        seen = disentangled_weights(parts, positions, self._mask(x, layout), index)
        kept = drop(seen, self.dropout) if self.training and self.dropout else seen
        y = (kept @ shared_heads(parts[2], self.heads)).transpose(1, 2).flatten(2)
        return linear(self.out, y), seen if weights else None

    def _parts(self, here: Tensor, x: Tensor) -> Parts:
        """Q (B, H, T or K, d) of ``here``, and K and V (B, G, T, d) of x."""
        if here is x:
            query, key, value = torch.split(linear(self.project, x), self.sizes, -1)
        else:
            query = part(self.project, here, 0, self.sizes[0])
            key, value = torch.split(part(self.project, x, self.sizes[0], sum(self.sizes)), self.sizes[1:], -1)
        query, key, value = (
            one.view(*one.shape[:2], -1, self.head_width) for one in self._with_biases(query, key, value)
        )
        query = query if self.norm_query is None else self.norm_query(query)
        key = key if self.norm_key is None else self.norm_key(key)
        return query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)

    def _with_biases(self, query: Tensor, key: Tensor, value: Tensor) -> Parts:
        if self.query_bias is None or self.value_bias is None:
            return query, key, value
        return query + self.query_bias, key, value + self.value_bias

    def _positions(self, time: int) -> Positions:
        """R^K (G, N, d) and R^Q (H, N, d), from distance T − 1 to 1 − T."""
        rows = self.row(torch.arange(time - 1, -time, -1, device=self.distances.weight.device))
        by_key, by_query = self._projected_distances(self.drop_distances(self.distances(rows)))
        by_key, by_query = (one.view(len(rows), -1, self.head_width).transpose(0, 1) for one in (by_key, by_query))
        return by_key, by_query

    def _projected_distances(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """P W_K' and P W_Q'."""
        return linear(self.position_key, vectors), linear(self.position_query, vectors)

    def _mask(self, x: Tensor, layout: Layout) -> Tensor | None:
        """True for keys that are seen, (B, 1, 1, T); an empty row must see something."""
        if layout.lengths is None:
            return None
        return (torch.arange(x.shape[1], device=x.device) < layout.lengths.clamp(min=1)[:, None])[:, None, None]


class SharedDisentangledAttention(DisentangledAttention):
    """The same, with positions that are projected as content is, normed, and in buckets."""

    paper = "He et al., 2023"
    _name = "disentangled-shared"

    def __init__(self, config: MixerConfig, *, longest: int = 0, buckets: int = 0) -> None:
        """``longest`` is m. ``buckets`` is b; 0 means none, and δ is that of ``disentangled`` with k = m."""
        if buckets < 0 or buckets == 1:
            raise InputError(f"attention = {self._name}: buckets = {buckets} must be 0, or 2 or more")
        self.buckets = buckets
        super().__init__(config, longest=longest)
        if buckets and self.longest <= buckets // 2 + 1:
            what = (
                f"attention = {self._name}: longest = {self.longest} must be above buckets / 2 + 1 = {buckets // 2 + 1}"
            )
            raise InputError(what, hint="use fewer buckets, or buckets=0")

    @property
    def _count(self) -> int:
        return 2 * (self.buckets or self.longest)

    def _build_distances(self, config: MixerConfig) -> Distances:
        return NormedDistances(self._count, config.width, config.norm)

    def _add_content(self, config: MixerConfig) -> None:
        """W_Q, W_K, W_V are those of plain attention."""

    def _add_positions(self, config: MixerConfig) -> None:
        """W_K' = W_K, W_Q' = W_Q."""

    def row(self, distance: Tensor) -> Tensor:
        if not self.buckets:
            return super().row(distance)
        half, far = self.buckets // 2, distance.abs().clamp(min=1)
        most = torch.tensor((self.longest - 1) / half, device=distance.device).log()  # in float32, as logs of distances
        log = torch.ceil(torch.log(far / half) / most * (half - 1)).long() + half
        near = torch.where(far <= half, distance, log * distance.sign())
        return (near + self.buckets).clamp(0, 2 * self.buckets - 1)

    def _with_biases(self, query: Tensor, key: Tensor, value: Tensor) -> Parts:
        return query, key, value  # they are part of the projections

    def _projected_distances(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        width = self.sizes[0]
        return part(self.project, vectors, width, width + self.sizes[1]), part(self.project, vectors, 0, width)
