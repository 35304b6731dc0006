"""Routing Transformer: attention within clusters that k-means finds among queries and keys (Roy et al., 2021).

    q = LayerNorm(x W_Q),   k = LayerNorm(x W_K),   v = x W_V                        norms without scale and bias
    Q_c, K_c = the ``window`` queries and keys nearest to centroid μ_c               by q · μ_c and k · μ_c
    y_i = mean over the c with i ∈ Q_c of Σ_{j ∈ K_c} softmax_j(q_i · k_j / √d) v_j W_O
    μ_c ← unit length of λ μ_c + (1 − λ) Σ of q and k nearest to μ_c (unit length)   after each update in training

In the first updates λ is smaller, t / (t + 1) after update t, so that centroids find their tokens from the start: they
are drawn at random, and with λ = 0.999 a short training would end before they moved. Sums have unit length, as in the
authors' code; the paper adds them as they are. That code also adds a commitment loss to the model's, 10⁻⁴ times the
mean squared distance of tokens from their centroids, which the paper does not have. It is left out: its gradient is
about 10⁻⁵ of that of the model's loss.

All vectors are equally long, so what is near a centroid has large scores with what else is near it. Clusters are
balanced: each takes as many tokens, some tokens are in several, and one that is in none gets 0. With √n clusters time
is O(n √n).

Causal: queries are keys too, as in the paper. There the choice of a cluster's nearest tokens depends on later ones, so
here a token is in the cluster of its nearest centroid and sees the last ``window`` tokens of it; itself only if it sees
nothing else (``ensue.nn.mixers.buckets``). Rotary positions are applied before the clusters are chosen.

Legend: B rows, T tokens, H heads, C clusters, w window, d head width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.core.errors import InputError
from ensue.kernels.attention import attend_cached, attention_weights, shared_heads
from ensue.kernels.bucket_attention import Near
from ensue.nn.layout import Layout
from ensue.nn.mixers.buckets import BucketAttention
from ensue.nn.mixers.mixer import MixerConfig

CONTEXT = 256
"""The context that clusters are made for, where it is unknown."""


class Routing(BucketAttention):
    """Softmax attention within clusters of queries and keys, found by k-means while training."""

    lengths = ("clusters", "window")
    paper = "Roy et al., 2021"
    complexity = "O(n √n)"
    decoding = "O(window), and n comparisons"

    def __init__(self, config: MixerConfig, *, clusters: int = 0, window: int = 0, decay: float = 0.999) -> None:
        """``clusters`` 0 means √context, ``window`` 0 means context / clusters; ``decay`` is λ."""
        plain = partial(nn.LayerNorm, elementwise_affine=False)
        super().__init__(replace(config, qk_norm=partial(_both, config.qk_norm, plain) if config.qk_norm else plain))
        if clusters < 0 or window < 0 or not 0 <= decay <= 1:
            what = f"clusters = {clusters} and window = {window} must be 0 or more, decay = {decay} from 0 to 1"
            raise InputError(f"attention = routing: {what}")
        context = config.context or CONTEXT
        self.clusters = clusters or max(1, round(math.sqrt(context)))
        self.window, self.decay = window or math.ceil(context / self.clusters), decay
        self.near = Near(self.window, config.causal)
        self.added: Callable[[Tensor], Tensor] | None = None
        """Sums over all ranks that have rows of the batch; None for one rank."""
        if self.causal:
            self.share(config)
        with torch.device("cpu"):  # also for a model that is built without storage
            draw = torch.randn(self.heads, self.clusters, self.head_width)
            self.register_buffer("centroids", F.normalize(draw, dim=-1))
            self.register_buffer("sums", torch.zeros_like(draw), persistent=False)

    def keys_of(self, query: Tensor) -> Tensor:
        """q itself, which has a norm."""
        return query

    @torch.no_grad()
    def buckets_of(self, query: Tensor, layout: Layout) -> Tensor:
        """The nearest centroid of each token, (B, H, 1, T)."""
        nearest = (query @ self.get_buffer("centroids").to(query.dtype).mT).argmax(-1)
        self._gather((query,), (nearest,), layout)
        return nearest[:, :, None]

    @torch.no_grad()
    def _near_centroids(self, x: Tensor) -> Tensor:
        """μ_c · x, (B, H, T, d) → (B, H, C, T)."""
        near: Tensor = self.get_buffer("centroids").to(x.dtype) @ x.mT
        return near

    @torch.no_grad()
    def _gather(self, parts: Sequence[Tensor], nearest: Iterable[Tensor], layout: Layout) -> None:
        """In training, add tokens (B, H, T, d) to the sums of their nearest centroids (B, H, T)."""
        if not self.training or not parts[0].numel():
            return
        sums, fresh = self.get_buffer("sums"), torch.zeros_like(self.get_buffer("sums"))
        heads = self.clusters * torch.arange(self.heads, device=sums.device)[:, None]
        for x, cluster in zip(parts, nearest, strict=True):
            x = x.to(sums.dtype)
            if layout.lengths is not None:
                x = x * (torch.arange(x.shape[2], device=x.device) < layout.lengths[:, None])[:, None, :, None]
            fresh.flatten(0, 1).index_add_(0, (cluster + heads).flatten(), x.flatten(0, 2))
        sums += fresh if self.added is None else self.added(fresh)

    @torch.no_grad()
    def after_update(self, updates: int) -> None:
        """Move centroids towards the mean of what was nearest to them since the last update."""
        centroids, sums = self.get_buffer("centroids"), self.get_buffer("sums")
        decay = min(self.decay, updates / (updates + 1))
        moved = F.normalize(decay * centroids + (1 - decay) * F.normalize(sums, dim=-1), dim=-1)
        used = (sums.norm(dim=-1, keepdim=True) > 0) & moved.isfinite().all(-1, keepdim=True)
        centroids.copy_(moved.where(used, centroids))
        sums.zero_()

    def both_ways(self, x: Tensor, layout: Layout, weights: bool) -> tuple[Tensor, Tensor | None]:
        """Each centroid takes its nearest queries and keys."""
        B, T, _ = x.shape
        steps = torch.arange(T, device=x.device)
        positions = steps[None] if layout.positions is None else layout.positions
        query, key, value = self._heads(self._rotated(self._projected(x), positions, layout))
        key, value = (shared_heads(part, self.heads) for part in (key, value))
        near = (self._near_centroids(query), self._near_centroids(key))
        self._gather((query, key), (part.max(2).indices for part in near), layout)
        chosen = [self._chosen(part, layout) for part in near]  # (B, H, C, w) each
        q, k, v = (_pick(part, index) for part, index in zip((query, key, value), (chosen[0], chosen[1], chosen[1])))
        real = None if layout.lengths is None else steps < layout.lengths.clamp(min=1)[:, None]  # (B, T)
        mask = None if real is None else _pick(real[:, None, :, None].expand(-1, self.heads, -1, -1), chosen[1])
        mask = None if mask is None else mask.transpose(-2, -1)  # (B · H, C, 1, w)
        bias = self._bias(*chosen)
        y = attend_cached(q, k, v, mask, bias, self._rate)  # (B · H, w, C · d)
        y = y.view(*y.shape[:2], self.clusters, -1).transpose(1, 2).flatten(0, 2)
        rows = (chosen[0].flatten(2) + T * torch.arange(B * self.heads, device=x.device).view(B, -1, 1)).flatten()
        times = torch.zeros(B * self.heads * T, 1, dtype=y.dtype, device=y.device)
        times = times.index_add_(0, rows, torch.ones_like(y[:, :1])).clamp_(min=1)
        total = torch.zeros_like(query.reshape(-1, y.shape[1])).index_add(0, rows, y)
        found = (total / times).view(B, self.heads, T, -1)
        return found, self._seen_in_clusters(query, key, chosen, real) if weights else None

    def _chosen(self, near: Tensor, layout: Layout) -> Tensor:
        """The w tokens nearest to each centroid, (B, H, C, T) → (B, H, C, w); padding only if there are fewer."""
        if layout.lengths is not None:
            padding = torch.arange(near.shape[3], device=near.device) >= layout.lengths.clamp(min=1)[:, None]
            near = near.masked_fill(padding[:, None, None], float("-inf"))
        return near.topk(min(self.window, near.shape[3]), dim=-1, sorted=False).indices

    def _bias(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """A linear bias of scores between chosen positions, (B · H, C, w, w)."""
        if self.slopes is None:
            return None
        apart = (queries[..., :, None] - keys[..., None, :]).abs()
        return (-self.slopes[:, None, None, None] * apart).flatten(0, 1)

    def _seen_in_clusters(self, query: Tensor, key: Tensor, chosen: list[Tensor], real: Tensor | None) -> Tensor:
        """The weights of all tokens, (B, H, T, T), by one cluster after the other."""
        steps = torch.arange(key.shape[2], device=key.device)[None]
        bias = None if self.score_bias is None else self.score_bias(steps, steps)
        total = times = torch.zeros_like(query[..., :1])
        for cluster in range(self.clusters):
            inside = [
                torch.zeros_like(query[..., 0], dtype=torch.bool).scatter(2, index[:, :, cluster], True)
                for index in chosen
            ]
            inside[1] = inside[1] if real is None else inside[1] & real[:, None]
            part = inside[0][..., None] & inside[1][..., None, :]
            total, times = total + attention_weights(query, key, part, bias), times + inside[0][..., None]
        return total / times.clamp(min=1)


def _both(first: Callable[[int], nn.Module], second: Callable[[int], nn.Module], width: int) -> nn.Module:
    """Two norms, one after the other."""
    return nn.Sequential(first(width), second(width))


def _pick(x: Tensor, index: Tensor) -> Tensor:
    """Tokens x (B, H, T, d) at ``index`` (B, H, C, w) → (B · H, C, w, d)."""
    B, H, T, d = x.shape
    rows = index.flatten(2) + T * torch.arange(B * H, device=x.device).view(B, H, 1)
    return x.reshape(-1, d).index_select(0, rows.flatten()).view(B * H, *index.shape[2:], d)
