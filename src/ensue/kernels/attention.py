"""Scaled dot-product attention: the equation, and what computes it.

    Attention(Q, K, V) = softmax(Q Kᵀ / √d + b) V          row-wise softmax; (T × d)(d × S)(S × d)

``attend`` takes queries, keys and values as they were projected, ``attend_packed`` those of packed rows, and
``attend_cached`` takes keys and values from a cache. b is an additive score bias, or nothing. Scores may have a cap c:
c · tanh(Q Kᵀ / (c √d)) in place of Q Kᵀ / √d.

Legend: B rows, T queries, S keys, M tokens of all rows, H heads, G key–value heads (G divides H), d head width,
D = H·d.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from ensue.kernels import blocked_attention, short_attention
from ensue.kernels.autograd_guards import plain
from ensue.kernels.cap import capped
from ensue.kernels.dropout import dropout as drop
from ensue.kernels.dropout import mask as dropout_mask
from ensue.kernels.kernel import Fast, Kernel
from ensue.kernels.packing import AttentionRows, Packing
from ensue.kernels.short_attention import Parts, split

SCORES_AT_ONCE = 1 << 24
"""Maximum number of capped scores in memory at once (64 MB in float32), outside autograd."""


def attention_weights(
    query: Tensor, key: Tensor, mask: Tensor | None = None, bias: Tensor | None = None, cap: float = 0.0
) -> Tensor:
    """softmax(Q Kᵀ / √d + b), (B, H, T, d), (B, G, S, d) → (B, H, T, S). A query that may see no key has weights 0.

    With a ``cap`` c above 0 it is softmax(c tanh(Q Kᵀ / (c √d)) + b).
    """
    key = shared_heads(key, query.shape[1])
    scores = capped(query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1]), cap)
    if bias is not None:
        scores = scores + bias
    if mask is None:
        return scores.softmax(dim=-1)
    return scores.masked_fill(~mask, float("-inf")).softmax(dim=-1).masked_fill(~mask, 0.0)


def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    """softmax(Q Kᵀ / √d) V in plain operations."""
    return attention_weights(query, key, mask) @ shared_heads(value, query.shape[1])


def shared_heads(x: Tensor, heads: int) -> Tensor:
    """Keys or values of G heads repeated for H query heads, (B, G, S, d) → (B, H, S, d)."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], dim=1)


def _key_mask(key: Tensor, lengths: Tensor | None) -> Tensor | None:
    """True for the first ``lengths[b]`` keys of each row, (B, 1, 1, S)."""
    if lengths is None:
        return None
    return (torch.arange(key.shape[2], device=key.device) < lengths[:, None])[:, None, None]


def _near_mask(query: Tensor, key: Tensor, causal: bool, span: int) -> Tensor | None:
    """True for keys within the span, where there is one, and not after the query, where it is causal, (T, S)."""
    if not causal and not span:
        return None
    near = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=key.device)
    near = near.triu(1 - span) if span else near
    return near.tril() if causal else near.tril(span - 1)


def _reference(
    parts: Parts,
    heads: int,
    lengths: Tensor | None = None,
    *,
    causal: bool = False,
    dropout: float = 0.0,
    kv_heads: int = 0,
    span: int = 0,
) -> Tensor:
    query, key, value = split(parts, heads, kv_heads)
    mask, near = _key_mask(key, lengths), _near_mask(query, key, causal, span)
    mask = near if mask is None else mask if near is None else mask & near
    weights = attention_weights(query, key, mask)
    y = (drop(weights, dropout) if dropout else weights) @ shared_heads(value, heads)
    return y.transpose(1, 2).flatten(2)


def _short(
    parts: Parts,
    heads: int,
    lengths: Tensor | None = None,
    *,
    causal: bool = False,
    dropout: float = 0.0,
    kv_heads: int = 0,
    span: int = 0,
) -> Tensor:
    return short_attention.attend(parts, heads, lengths, causal, kv_heads)


def _can_run_short(
    parts: Parts,
    heads: int,
    lengths: Tensor | None = None,
    *,
    causal: bool = False,
    dropout: float = 0.0,
    kv_heads: int = 0,
    span: int = 0,
) -> bool:
    return not dropout and not span and short_attention.fits(parts, heads, kv_heads)


def _blocked(
    parts: Parts,
    heads: int,
    lengths: Tensor | None = None,
    *,
    causal: bool = False,
    dropout: float = 0.0,
    kv_heads: int = 0,
    span: int = 0,
) -> Tensor:
    return blocked_attention.attend(parts, heads, lengths, causal, dropout, kv_heads, span)


def _can_run_blocked(
    parts: Parts,
    heads: int,
    lengths: Tensor | None = None,
    *,
    causal: bool = False,
    dropout: float = 0.0,
    kv_heads: int = 0,
    span: int = 0,
) -> bool:
    return blocked_attention.fits(parts, heads, kv_heads, span)


def _cheap_dropout(
    parts: Parts,
    heads: int,
    lengths: Tensor | None = None,
    *,
    causal: bool = False,
    dropout: float = 0.0,
    kv_heads: int = 0,
    span: int = 0,
) -> Tensor:
    """Plain operations and a cheap mask: torch's kernel too computes dropped weights one by one, and draws for each."""
    query, key, value = (shared_heads(one, heads) for one in split(parts, heads, kv_heads))
    mask = _key_mask(key, lengths)
    scores = (query / math.sqrt(query.shape[-1])) @ key.transpose(-2, -1)
    if mask is not None:
        with torch.no_grad():  # a masked score has weight 0, and so has its gradient
            scores.masked_fill_(~mask, float("-inf"))
    weights = scores.softmax(dim=-1)
    return ((weights * dropout_mask(weights, dropout)) @ value).transpose(1, 2).flatten(2)


def _can_drop_cheaply(
    parts: Parts,
    heads: int,
    lengths: Tensor | None = None,
    *,
    causal: bool = False,
    dropout: float = 0.0,
    kv_heads: int = 0,
    span: int = 0,
) -> bool:
    return dropout > 0 and not causal and not span and parts[0].device.type == "cpu" and plain(*parts)


def _scaled_dot_product(
    parts: Parts,
    heads: int,
    lengths: Tensor | None = None,
    *,
    causal: bool = False,
    dropout: float = 0.0,
    kv_heads: int = 0,
    span: int = 0,
) -> Tensor:
    """Torch's own kernel."""
    query, key, value = (shared_heads(one, heads) for one in split(parts, heads, kv_heads))
    mask = _key_mask(key, lengths)
    if span or (causal and mask is not None):
        near = _near_mask(query, key, causal, span)
        mask = near if mask is None or near is None else mask & near
    alone = causal and mask is None and bool(query.shape[2] > 1)  # a tensor while it is traced
    return F.scaled_dot_product_attention(query, key, value, mask, dropout, alone).transpose(1, 2).flatten(2)


def _always(
    parts: Parts,
    heads: int,
    lengths: Tensor | None = None,
    *,
    causal: bool = False,
    dropout: float = 0.0,
    kv_heads: int = 0,
    span: int = 0,
) -> bool:
    return True


attend = Kernel(
    "attention",
    _reference,
    Fast("short", _short, _can_run_short),
    Fast("blocked", _blocked, _can_run_blocked),
    Fast("cheap_dropout", _cheap_dropout, _can_drop_cheaply),
    Fast("scaled_dot_product", _scaled_dot_product, _always),
)
"""Attention among projected queries, keys and values of padded rows → (B, T, D).

(parts, heads, lengths=None, *, causal=False, dropout=0.0, kv_heads=0, span=0): row b sees its first ``lengths[b]``
keys; with ``causal`` no query sees a later key, and with a ``span`` none that is ``span`` or more positions away; each
weight is dropped with probability ``dropout``; groups of query heads share one of ``kv_heads`` heads of keys and
values (0: each has its own).
"""


def attend_cached(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    bias: Tensor | None = None,
    dropout: float = 0.0,
    cap: float = 0.0,
) -> Tensor:
    """Attention from queries (B, H, T, d) to keys and values (B, G, S, d) under a mask (…, T, S) → (B, T, D)."""
    if cap:
        return _attend_capped(query, keys, values, mask, bias, dropout, cap)
    if bias is not None:
        mask = bias if mask is None else bias.masked_fill(~mask, float("-inf"))
    shared = keys.shape[1] != query.shape[1]
    y = F.scaled_dot_product_attention(query, keys, values, mask, dropout, enable_gqa=shared)
    return y.transpose(1, 2).flatten(2)


def _attend_capped(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
    dropout: float,
    cap: float,
) -> Tensor:
    """``attend_cached`` with a cap, some queries at a time; torch's kernel has none."""
    B, H, T, _ = query.shape
    values, step = shared_heads(values, H), max(1, SCORES_AT_ONCE // max(1, B * H * keys.shape[2]))
    found = []
    for at in range(0, T, step):
        here = slice(at, at + step)
        seen, added = (None if one is None else one[..., here, :] for one in (mask, bias))
        weights = attention_weights(query[:, :, here], keys, seen, added, cap)
        found.append((drop(weights, dropout) if dropout else weights) @ values)
    return torch.cat(found, dim=2).transpose(1, 2).flatten(2)


def _packed_reference(
    parts: Parts, heads: int, rows: AttentionRows, *, causal: bool = False, dropout: float = 0.0
) -> Tensor:
    return short_attention.equation(parts, heads, rows, causal, dropout)


def _packed_short(
    parts: Parts, heads: int, rows: AttentionRows, *, causal: bool = False, dropout: float = 0.0
) -> Tensor:
    return short_attention.packed(parts, heads, rows, causal)


def _can_run_packed_short(
    parts: Parts, heads: int, rows: AttentionRows, *, causal: bool = False, dropout: float = 0.0
) -> bool:
    times = [rows.least]  # a packing may lengthen its last row beyond what is short
    able = not dropout and short_attention.able(heads, short_attention.width(parts), times, *parts)
    return able and all(one.stride(-1) == 1 for one in parts)


def _grouped(parts: Parts, heads: int, rows: AttentionRows, *, causal: bool = False, dropout: float = 0.0) -> Tensor:
    """Torch's kernel on the rows of one length at a time, which are a plain view."""
    (projected,) = parts
    D = projected.shape[1] // 3
    y = projected.new_empty(len(projected), D)
    start = 0
    for count, time in rows.groups:
        stop = start + count * time
        q, k, v = projected[start:stop].view(count, time, 3, heads, D // heads).permute(2, 0, 3, 1, 4)
        found = F.scaled_dot_product_attention(q, k, v, None, dropout, causal and time > 1)
        y[start:stop] = found.transpose(1, 2).reshape(stop - start, D)
        start = stop
    return y


def _can_group(parts: Parts, heads: int, rows: AttentionRows, *, causal: bool = False, dropout: float = 0.0) -> bool:
    return len(parts) == 1 and bool(rows.groups) and not torch.is_grad_enabled()


attend_packed = Kernel(
    "packed_attention",
    _packed_reference,
    Fast("short", _packed_short, _can_run_packed_short),
    Fast("grouped", _grouped, _can_group),
)
"""Attention of packed rows, (M, …) → (M, D): (parts, heads, rows, *, causal=False, dropout=0.0).

``rows`` says which keys each row of queries sees.
"""


def attend_packed_from(query: Tensor, projected: Tensor, heads: int, packing: Packing, dropout: float) -> Tensor:
    """Attention from some queries of each row (B, K, D) to its packed keys and values (M, 2D) → (B, K, D)."""
    y = torch.empty_like(query)
    D = query.shape[-1]
    row = start = 0
    for count, time in packing.groups:
        stop, own = start + count * time, query[row : row + count]
        k, v = projected[start:stop].view(count, time, 2, heads, D // heads).permute(2, 0, 3, 1, 4)
        q = own.view(*own.shape[:2], heads, D // heads).transpose(1, 2)
        found = F.scaled_dot_product_attention(q, k, v, None, dropout)
        y[row : row + count] = found.transpose(1, 2).reshape(own.shape)
        row, start = row + count, stop
    return y
