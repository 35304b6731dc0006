"""Attention within buckets: tokens are sorted by bucket, cut into chunks, and attend to near chunks only.

    a_ij = softmax_j(q_i · k_j / √d + log N_ij − 10⁵ [i = j]),        y_i = Σ_j a_ij v_j

N_ij is the number of rounds in which i sees j. Each round has its own buckets, and sorts tokens by bucket, then by
position; s_i is where token i stands then. Token i sees j if both are in one bucket and

    0 ≤ s_i − s_j < C                                   causal: the last C tokens of the bucket
    ⌊s_i / C⌋ − 1 ≤ ⌊s_j / C⌋ ≤ ⌊s_i / C⌋ + after       in both directions: chunks of C tokens

The term −10⁵ is for queries that are keys too: a token sees itself only if it sees nothing else (Kitaev et al., 2020).
Rounds are computed one after the other and combined by their logsumexp z_r, y = Σ_r exp(z_r − z) y_r, which is the
same. Time and memory are O(R T C); the backward pass computes scores again, a few chunks at a time.

Legend: B rows, H heads, R rounds, T tokens, C tokens of a chunk, N chunks of all rows, heads and rounds, d head width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ensue.kernels.autograd_guards import differentiable, plain
from ensue.kernels.dropout import dropout as drop
from ensue.kernels.kernel import Fast, Kernel

SELF, HIDDEN = 1e5, 1e9
"""How much less the score is of a token with itself, and of one that is not seen."""
LOG2E = math.log2(math.e)
"""Scores are multiplied by it where powers of 2 are computed instead of those of e, which takes a fifth of the time."""
PIECE = 1 << 17
"""Scores per piece of work, so that they stay in the cache of a core."""
LAST = 1 << 30
"""The bucket of padding, which is sorted to the end."""


@dataclass(frozen=True)
class Near:
    """Which chunks of the sorted tokens a token sees."""

    chunk: int
    """C, the tokens of a chunk."""
    causal: bool
    """Whether a token sees the last C tokens of its bucket up to itself; else its own chunk and the one before it."""
    after: int = 0
    """How many chunks after its own it sees too; 0 if causal."""

    @property
    def keys(self) -> int:
        """How many keys a chunk of queries may see."""
        return (2 + self.after) * self.chunk

    def bias(self, like: Tensor) -> Tensor:
        """What is added to the scores of each chunk, whatever its buckets are, (C, keys)."""
        step = torch.arange(self.chunk, device=like.device)
        apart = step[:, None] + self.chunk - torch.arange(self.keys, device=like.device)  # s_i − s_j
        fixed = torch.zeros_like(apart, dtype=like.dtype).masked_fill(apart == 0, -SELF)
        return fixed.masked_fill((apart < 0) | (apart >= self.chunk), -HIDDEN) if self.causal else fixed


@dataclass(frozen=True)
class Order:
    """Tokens of all rows, heads and rounds, sorted; one chunk before them and ``after`` behind them are nobody's."""

    index: Tensor
    """Which token stands there, of (B · H · T)."""
    code: Tensor
    """A number for its row, head, round and bucket, another one than that of what stands near; a float, since those are
    compared faster. The last chunk of a row may end with nobody's too."""
    position: Tensor
    """Its position in its row."""
    undo: Tensor
    """(B · H · R · T,), where each token stands, counted from the first chunk of tokens."""
    chunks: int
    """N."""


def sort_tokens(bucket: Tensor, real: Tensor | None, near: Near, dtype: torch.dtype) -> Order:
    """The order of buckets (B, H, R, T); what is not ``real`` (B, T) is sorted to the end of its row."""
    if real is not None:
        bucket = bucket.masked_fill(~real[:, None, None], LAST)
    rows, T = bucket.shape[0] * bucket.shape[1] * bucket.shape[2], bucket.shape[3]
    sorted_, order = bucket.reshape(rows, T).sort(dim=-1, stable=True)
    row, spare = torch.arange(rows, device=bucket.device)[:, None], -T % near.chunk
    sorted_ = F.pad(F.pad(sorted_, (1, 0), value=-1), (0, spare), value=-1)  # a row starts with something new
    code = (sorted_.diff() != 0).flatten().cumsum(0) % (1 << 22) + 1
    undo = torch.empty_like(order).scatter_(1, order, torch.arange(T, device=row.device).expand_as(order))
    undo += row * (T + spare)
    around = (near.chunk, near.after * near.chunk)
    index = F.pad(F.pad(order + row // bucket.shape[2] * T, (0, spare)).flatten(), around)
    exact = torch.promote_types(dtype, torch.float32)  # bfloat16 has the same number for many buckets and positions
    position = F.pad(F.pad(order, (0, spare)).flatten(), around).to(exact)
    return Order(index, F.pad(code, around).to(exact), position, undo.flatten(), rows * (T + spare) // near.chunk)


class _Chunks:
    """Scores of some chunks, from ``first`` to before ``last``."""

    def __init__(self, order: Order, near: Near, first: int, last: int) -> None:
        C = near.chunk
        self.count, self.near = last - first, near
        self.queries = slice((first + 1) * C, (last + 1) * C)
        self.keys = slice(first * C, (last + 1 + near.after) * C)
        self.order = order

    def of_queries(self, x: Tensor) -> Tensor:
        """(L, …) → (n, C, …)."""
        return x[self.queries].view(self.count, self.near.chunk, *x.shape[1:])

    def of_keys(self, x: Tensor) -> Tensor:
        """(L, …) → (n, keys, …), a view with overlaps."""
        return self.overlapping(x[self.keys])

    def overlapping(self, x: Tensor) -> Tensor:
        """(…) of all keys → (n, keys, …), a view with overlaps."""
        step = x.stride(0)
        return x.as_strided(
            (self.count, self.near.keys, *x.shape[1:]), (self.near.chunk * step, *x.stride()), x.storage_offset()
        )

    def picked(self, query: Tensor, *keys: Tensor) -> tuple[Tensor, ...]:
        """Queries (n, C, d) and keys or values (n, keys, d) of flat ones (B · H · T, d)."""
        index = self.order.index
        near = (self.overlapping(x.index_select(0, index[self.keys])) for x in keys)
        return query[index[self.queries]].view(self.count, self.near.chunk, -1), *near

    def mask(self, scores: Tensor, fixed: Tensor, slopes: Tensor | None) -> Tensor:
        """Scores (n, C, keys), in place: less for a token itself, and almost −∞ for what is not seen."""
        if slopes is not None:
            apart = self.of_queries(self.order.position)[:, :, None] - self.of_keys(self.order.position)[:, None]
            scores -= apart.abs_().mul_(self.of_queries(slopes)[:, :1, None])
        code, hidden = self.order.code, torch.empty_like(scores)
        torch.ne(self.of_queries(code)[:, :, None], self.of_keys(code)[:, None], out=hidden)
        return scores.add_(hidden, alpha=-HIDDEN).add_(fixed)


def _reference(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bucket: Tensor,
    near: Near,
    real: Tensor | None = None,
    slopes: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """All chunks at once, in plain operations."""
    if not query.numel():
        return query + key + value
    near = _fitting(near, query.shape[2])
    order = sort_tokens(bucket, real, near, query.dtype)
    all_ = _Chunks(order, near, 0, order.chunks)
    flat = [x.flatten(0, 2) for x in (query, key, value)]
    q, k, v = all_.picked(*flat)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    bias = all_.mask(torch.zeros_like(scores), near.bias(q), _slope_of_each(slopes, order, near, bucket))
    scores = scores + bias
    z = scores.logsumexp(-1, keepdim=True)
    weights = (scores - z).exp()
    y = (drop(weights, dropout) if dropout else weights) @ v
    B, H, R, T = bucket.shape
    y = y.flatten(0, 1)[order.undo].view(B, H, R, T, -1)
    return (z.flatten()[order.undo].view(B, H, R, T, 1).softmax(2) * y).sum(2)


def _fitting(near: Near, time: int) -> Near:
    """The same with a chunk of at most T tokens, which see each other."""
    return near if near.chunk <= max(1, time) else Near(max(1, time), near.causal, near.after)


def _slope_of_each(
    slopes: Tensor | None, order: Order, near: Near, bucket: Tensor, factor: float = 1.0
) -> Tensor | None:
    """The slope (H,) of a head, times ``factor``, for each of the sorted tokens."""
    if slopes is None:
        return None
    B, _, R, _ = bucket.shape
    each = (factor * slopes.flatten())[None, :, None].expand(B, -1, R).reshape(-1)
    each = each.repeat_interleave(order.chunks * near.chunk // len(each))
    return F.pad(each, (near.chunk, near.after * near.chunk))


def _own_backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bucket: Tensor,
    near: Near,
    real: Tensor | None = None,
    slopes: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    y: Tensor = _Buckets.apply(query, key, value, bucket, near, real, slopes)  # type: ignore[no-untyped-call]
    return y


def _has_own_backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bucket: Tensor,
    near: Near,
    real: Tensor | None = None,
    slopes: Tensor | None = None,
    dropout: float = 0.0,
) -> bool:
    return not dropout and query.numel() > 0 and plain(query, key, value)


bucket_attention = Kernel("bucket_attention", _reference, Fast("own_backward", _own_backward, _has_own_backward))
"""Attention of tokens to near ones of their bucket → (B, H, T, d).

(query, key, value (B, H, T, d), bucket (B, H, R, T), near, real (B, T) or None, slopes (H,) of a linear bias or None,
dropout=0.0). Padding, where ``real`` is false, sees and is seen by padding only.
"""


class _Buckets(torch.autograd.Function):
    """A few chunks at a time, in the forward and in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bucket: Tensor,
        near: Near,
        real: Tensor | None,
        slopes: Tensor | None,
    ) -> Tensor:
        """The mean over rounds of what each of them finds, weighted by exp(z_r)."""
        B, H, R, T = bucket.shape
        ctx.near, ctx.given = near, (bucket, real, slopes)
        near = _fitting(near, T)
        order = sort_tokens(bucket, real, near, query.dtype)
        slope, fixed = _slope_of_each(slopes, order, near, bucket, LOG2E), near.bias(query)
        scaled = query.flatten(0, 2) * (LOG2E / math.sqrt(query.shape[-1]))
        flat_k, flat_v = key.flatten(0, 2), value.flatten(0, 2)
        y, z = query.new_empty(order.chunks, near.chunk, query.shape[-1]), query.new_empty(order.chunks, near.chunk, 1)
        for first, last in _pieces(order, near):
            piece = _Chunks(order, near, first, last)
            q, k, v = piece.picked(scaled, flat_k, flat_v)
            scores = piece.mask(q @ k.transpose(-2, -1), fixed, slope)
            largest = scores.amax(-1, keepdim=True)
            total = scores.sub_(largest).exp2_().sum(-1, keepdim=True)
            torch.bmm(scores, v, out=y[first:last])
            y[first:last] /= total
            torch.add(largest, total.log2_(), out=z[first:last])
        ctx.order, ctx.share = order, None
        if R > 1:
            share = z.view(-1, 1).index_select(0, order.undo).view(B * H, R, T, 1).mul_(1 / LOG2E).softmax(1)
            found = y.view(-1, y.shape[-1]).index_select(0, order.undo).view(B * H, R, T, -1)
            ctx.share = share.flatten(0, 2)
            result = (found * share).sum(1)
        else:
            result = y.view(-1, y.shape[-1]).index_select(0, order.undo)
        result = result.view(query.shape)
        ctx.save_for_backward(query, key, value, result, z)
        return result

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> Any:
        """The gradients of queries, keys and values."""
        query, key, value, y, z = ctx.saved_tensors
        bucket, real, slopes = ctx.given
        if torch.is_grad_enabled():  # a gradient of this gradient is needed: autograd must see the operations

            def equation(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
                return _reference(q, k, v, bucket, ctx.near, real, slopes)

            found = differentiable(equation, (query, key, value), ctx.needs_input_grad[:3], above)
            return *found, None, None, None, None
        B, H, R, T = bucket.shape
        near, order, d = _fitting(ctx.near, T), ctx.order, query.shape[-1]
        slope, fixed = _slope_of_each(slopes, order, near, bucket, LOG2E), near.bias(query)
        scaled, scale = query.flatten(0, 2) * (LOG2E / math.sqrt(d)), 1 / math.sqrt(d)
        flat_k, flat_v, by_y = key.flatten(0, 2), value.flatten(0, 2), above[0].flatten(0, 2)
        inner = (above[0] * y).sum(-1).flatten()
        by_query = query.new_empty(order.chunks, near.chunk, d)
        by_key, by_value = (query.new_zeros(order.chunks + 1 + near.after, near.chunk, d) for _ in range(2))
        share = None
        if ctx.share is not None:
            share = query.new_zeros(order.chunks * near.chunk, 1).index_copy_(0, order.undo, ctx.share).view_as(z)
        for first, last in _pieces(order, near):
            piece = _Chunks(order, near, first, last)
            q, k, v = piece.picked(scaled, flat_k, flat_v)
            weights = piece.mask(q @ k.transpose(-2, -1), fixed, slope).sub_(z[first:last]).exp2_()
            if share is not None:
                weights *= share[first:last]
            here = order.index[piece.queries]
            g = by_y.index_select(0, here).view_as(q)
            by_scores = (g @ v.transpose(-2, -1)).sub_(inner[here].view(*q.shape[:2], 1)).mul_(weights)
            torch.bmm(by_scores, k, out=by_query[first:last])
            for total, left, right in ((by_key, by_scores, q), (by_value, weights, g)):
                parts = (left.transpose(-2, -1) @ right).view(last - first, -1, near.chunk, d)
                for number in range(parts.shape[1]):
                    total[first + number : last + number] += parts[:, number]
        by_query *= scale
        by_key *= 1 / LOG2E
        near_keys = slice(1, 1 + order.chunks)
        sorted_back = (
            x.reshape(-1, d).index_select(0, order.undo).view(B, H, R, T, d)
            for x in (by_query, by_key[near_keys], by_value[near_keys])
        )
        return *(x[:, :, 0] if R == 1 else x.sum(2) for x in sorted_back), None, None, None, None


def _pieces(order: Order, near: Near) -> list[tuple[int, int]]:
    """Bounds of a few chunks each."""
    each = max(1, PIECE // (near.chunk * near.keys))
    return [(first, min(order.chunks, first + each)) for first in range(0, order.chunks, each)]


def count_seen(bucket: Tensor, near: Near, real: Tensor | None = None) -> Tensor:
    """N_ij, in how many rounds i sees j, of buckets (B, H, R, T) → (B, H, T, T): for views of short texts."""
    T = bucket.shape[3]
    near = _fitting(near, T)
    if real is not None:
        bucket = bucket.masked_fill(~real[:, None, None], LAST)
    steps = torch.arange(T, device=bucket.device)
    order = bucket.sort(dim=-1, stable=True).indices
    rank = torch.empty_like(order).scatter_(3, order, steps.expand_as(order))
    if near.causal:
        apart = rank[..., :, None] - rank[..., None, :]
        seen = (apart >= 0) & (apart < near.chunk)
    else:
        apart = (rank // near.chunk)[..., :, None] - (rank // near.chunk)[..., None, :]
        seen = (apart >= -near.after) & (apart <= 1)
    return (seen & (bucket[..., :, None] == bucket[..., None, :])).sum(2)


def bucket_weights(query: Tensor, key: Tensor, counts: Tensor, bias: Tensor | None = None) -> Tensor:
    """a_ij = softmax_j(q_i · k_j / √d + b_ij + log N_ij − 10⁵ [i = j]) of as many keys as queries; 0 without keys."""
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1]) + counts.to(query.dtype).log()
    scores = scores if bias is None else scores + bias
    scores = scores - SELF * torch.eye(scores.shape[-1], dtype=scores.dtype, device=scores.device)
    return scores.softmax(-1)
