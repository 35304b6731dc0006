"""Attention within buckets: what ``reformer`` and the causal ``routing`` share.

A mixer puts each token into a bucket by its content, once in each of R rounds. Queries and keys are one projection, so
that tokens which would attend to each other are in one bucket:

    q = x W_Q,   k = keys of q,   v = x W_V,   bucket = buckets of q
    y_i = Σ_j a_ij v_j W_O          (``ensue.kernels.bucket_attention``)

Causal: token t sees the last C tokens of its buckets, itself included. Which ones these are does not depend on later
tokens. The state is keys and values so far, and the buckets they are in: one more token looks for its last C columns.

Legend: B rows, T new tokens, S columns of the cache, H heads, G value heads, R rounds, C tokens of a bucket that are
seen, d head width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ensue.core.errors import InputError
from ensue.kernels.attention import attend_cached, shared_heads
from ensue.kernels.bucket_attention import SELF, Near, bucket_attention, bucket_weights, count_seen
from ensue.kernels.matmul import linear
from ensue.nn.key_value_cache import KeyValueCache
from ensue.nn.layout import PADDED, Layout
from ensue.nn.mixers.full import SelfAttention
from ensue.nn.mixers.mixer import Mixed, Mixer, MixerConfig
from ensue.nn.positions import LinearBias
from ensue.nn.state import State, zeros_beside


@dataclass(frozen=True)
class BucketState(State):
    """Keys and values so far, and in which buckets they are."""

    cache: KeyValueCache  # (B, H, S, d)
    buckets: KeyValueCache  # keys (B, H, S, R), and no values

    @property
    def count(self) -> int:
        """B."""
        return self.cache.count

    def first(self, tokens: int, of: int) -> BucketState | None:
        """The same after fewer tokens of one row."""
        cache, buckets = self.cache.first(tokens, of), self.buckets.first(tokens, of)
        return None if cache is None or buckets is None else BucketState(cache, buckets)


class BucketAttention(SelfAttention):
    """Softmax attention to tokens of the same bucket; subclasses say which buckets those are."""

    caps = False
    rounds = 1
    """R, in how many ways tokens are put into buckets."""
    near: Near
    """Which tokens of a bucket are seen; a subclass sets it."""

    def __init__(self, config: MixerConfig) -> None:
        super().__init__(config)
        if config.score_bias is not None and not isinstance(config.score_bias, LinearBias):
            raise InputError("attention within buckets cannot use these positions", hint="use positions=rotary")
        self.packed = False

    def share(self, config: MixerConfig) -> None:
        """Let queries be keys too: one projection instead of two. With key–value heads, values are shared by heads."""
        self.sizes = [self.sizes[0], 0, self.sizes[2]]
        self.project = nn.Linear(config.width, sum(self.sizes), bias=config.bias or config.qkv_bias)  # W_Q, W_V
        self.norm_key = None

    def keys_of(self, query: Tensor) -> Tensor:
        """Keys of shared queries, (B, H, T, d) → (B, H, T, d)."""
        raise TypeError(f"{type(self).__name__} has no keys_of")

    def buckets_of(self, query: Tensor, layout: Layout) -> Tensor:
        """The buckets of shared queries, (B, H, T, d) → (B, H, R, T) whole numbers from 0."""
        raise TypeError(f"{type(self).__name__} has no buckets_of")

    @property
    def slopes(self) -> Tensor | None:
        """(H,), how fast a linear bias of scores falls; None without one."""
        return None if self.score_bias is None else self.score_bias.get_buffer("slopes").flatten()

    def start(self, rows: int) -> BucketState | None:  # type: ignore[override]
        """Empty caches; none in both directions."""
        if not self.causal:
            return None
        empty = zeros_beside(self.out, rows, self.heads, 0, self.head_width)
        empty = empty if self.cache_dtype is None else empty.to(self.cache_dtype)
        lengths = torch.zeros(rows, dtype=torch.long, device=empty.device)
        index = torch.zeros(rows, self.heads, 0, self.rounds, dtype=torch.int32, device=empty.device)
        return BucketState(KeyValueCache(empty, empty, lengths), KeyValueCache(index, index[..., :0], lengths))

    def forward(  # type: ignore[override]
        self, x: Tensor, state: BucketState | None = None, layout: Layout = PADDED, weights: bool = False
    ) -> Mixed:
        """Mix x (B, T, D)."""
        if self.causal:
            state = state or self.start(len(x))
            assert state is not None
            return self._after(x, state, layout, weights)
        y, seen = self.both_ways(x, layout, weights)
        return Mixed(linear(self.out, y.transpose(1, 2).flatten(2)), None, seen)

    def both_ways(self, x: Tensor, layout: Layout, weights: bool) -> tuple[Tensor, Tensor | None]:
        """Attend in both directions: (B, H, T, d), and weights if asked for."""
        steps = torch.arange(x.shape[1], device=x.device)
        query, value = self._shared(x, steps[None], layout)
        key, bucket = self.keys_of(query), self.buckets_of(query, layout)
        real = None if layout.lengths is None else steps < layout.lengths[:, None]
        y = bucket_attention(query, key, value, bucket, self.near, real, self.slopes, self._rate)
        return y, self._weights(query, key, bucket, real) if weights else None

    @property
    def _rate(self) -> float:
        return self.dropout if self.training else 0.0

    def _shared(self, x: Tensor, positions: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        """Queries that are keys too and values, (B, H, T, d) both."""
        projected = linear(self.project, x)
        if self.norm_query is not None:
            query, value = torch.split(projected, [self.sizes[0], self.sizes[2]], -1)
            query = self.norm_query(query.reshape(*query.shape[:-1], self.heads, self.head_width)).flatten(-2)
            projected = torch.cat([query, value], -1)
        positions = positions if layout.positions is None else layout.positions
        query, _, value = self._heads(self._rotated(projected, positions, layout))
        return query, shared_heads(value, self.heads)

    def _after(self, x: Tensor, state: BucketState, layout: Layout, weights: bool) -> Mixed:
        """Attend to the last tokens of each bucket, in the cache and in x."""
        past, known, T = state.cache.separate(), state.buckets.separate(), x.shape[1]
        columns = past.positions(T)  # (1 or B, T), where the new tokens are written
        query, value = self._shared(x, columns, layout)
        key, bucket = self.keys_of(query), self.buckets_of(query, layout)
        numbers = bucket.transpose(2, 3).int()
        after = BucketState(
            past.append(key, value, layout.lengths), known.append(numbers, numbers[..., :0], layout.lengths)
        )
        if past.fresh:
            real = None if layout.lengths is None else torch.arange(T, device=x.device) < layout.lengths[:, None]
            y = bucket_attention(query, key, value, bucket, self.near, real, self.slopes, self._rate)
        elif T == 1:
            y = self._step(query, bucket, columns, after)
        else:
            y = self._among(query, columns, after)
        seen = self._seen(query, columns, after) if weights else None
        return Mixed(linear(self.out, y.transpose(1, 2).flatten(2)), after, seen)

    def _step(self, query: Tensor, bucket: Tensor, column: Tensor, state: BucketState) -> Tensor:
        """Attend from one token of each row, in ``column`` (1 or B, 1), to the last C columns of its buckets."""
        cache, numbers = state.cache, state.buckets.written_keys  # (B, H, S, R)
        columns = torch.arange(cache.written, device=query.device)
        same = (numbers == bucket.transpose(2, 3)) & (columns <= column)[:, None, :, None]
        last = columns[:, None].where(same, -1).topk(min(self.near.chunk, cache.written), dim=2).values
        last = last.flatten(2)  # (B, H, C · R), −1 where there are fewer
        index = last.clamp(min=0)[..., None].expand(-1, -1, -1, self.head_width)
        keys, values = (x.gather(2, index).to(query.dtype) for x in (cache.written_keys, cache.written_values))
        apart = column[:, None] - last
        bias = (apart == 0) * -SELF if self.slopes is None else (apart == 0) * -SELF - self.slopes[:, None] * apart
        mask = last >= 0
        mask = mask | ~mask.any(-1, keepdim=True)  # padding sees something too, or it would be NaN
        y = attend_cached(query, keys, values, mask[:, :, None], bias[:, :, None].to(query.dtype), self._rate)
        return y.view(*y.shape[:2], self.heads, -1).transpose(1, 2)

    def _among(self, query: Tensor, columns: Tensor, state: BucketState) -> Tensor:
        """Attend from several tokens after others, by the chunks of all tokens: (B, H, T, d)."""
        placed, keys, bucket, real = self._columns(query, columns, state)
        values = state.cache.written_values.to(query.dtype)
        y = bucket_attention(placed, keys, values, bucket, self.near, real, self.slopes, self._rate)
        index = columns.clamp(max=y.shape[2] - 1)[:, None, :, None]
        return y.gather(2, index.expand(*query.shape[:3], y.shape[3]))

    def _columns(
        self, query: Tensor, columns: Tensor, state: BucketState
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Queries in the columns of the cache (B, H, S, d), keys, buckets (B, H, R, S), and which columns are real."""
        cache, size = state.cache, state.cache.written
        placed = query.new_zeros(*query.shape[:2], size + query.shape[2], query.shape[3])
        placed = placed.scatter(2, columns[:, None, :, None].expand_as(query), query)[:, :, :size]
        real = None if cache.even else torch.arange(size, device=query.device) < cache.lengths[:, None]
        bucket = state.buckets.written_keys.transpose(2, 3).long()
        return placed, cache.written_keys.to(query.dtype), bucket, real

    def _seen(self, query: Tensor, columns: Tensor, state: BucketState) -> Tensor:
        """The weights of new tokens, (B, H, T, S)."""
        found = self._weights(*self._columns(query, columns, state))
        index = columns.clamp(max=found.shape[2] - 1)[:, None, :, None]
        return found.gather(2, index.expand(*query.shape[:3], found.shape[3]))

    def _weights(self, query: Tensor, key: Tensor, bucket: Tensor, real: Tensor | None) -> Tensor:
        """a_ij of all tokens, (B, H, S, S)."""
        steps = torch.arange(key.shape[2], device=key.device)[None]
        bias = None if self.score_bias is None else self.score_bias(steps, steps)
        return bucket_weights(query, key, count_seen(bucket, self.near, real), bias)

    def at(
        self, index: Tensor, here: Tensor, x: Tensor, layout: Layout, weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        return Mixer.at(self, index, here, x, layout, weights)
