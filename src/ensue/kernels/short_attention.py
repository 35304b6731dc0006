"""Attention within short rows, as sentences are, with a gradient of its own.

    P = softmax(Q Kᵀ / √d),  Y = P V
    ∂V = Pᵀ ∂Y,  ∂P = ∂Y Vᵀ,  ∂S = P ∘ (∂P − Σ_s P ∘ ∂P) / √d,  ∂Q = ∂S K,  ∂K = ∂Sᵀ Q

Torch's kernel never stores P, which pays where rows are long. Where they are short P is small, and keeping it saves
computing it again; a head's matrices then never leave the cache. Queries, keys and values that were projected side by
side are read there, and their gradients are written side by side; keys and values that several query heads share are
never repeated. Rows are consecutive, padded to one length or not.

Legend: B rows, T queries, S keys, M tokens of all rows, H heads, G key–value heads (0: H), d head width, D = H·d.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ensue.kernels.autograd_guards import differentiable, plain
from ensue.kernels.dropout import dropout as drop
from ensue.kernels.loops import Loops
from ensue.kernels.packing import AttentionRows
from ensue.kernels.threads import LANES, ROWS, loopable, run

loops = Loops("ensue.kernels.short_attention_loops")

SHORT = 64
"""The most queries and the most keys: beyond, torch's kernel is as fast."""

Parts = tuple[Tensor, ...]
"""Queries, keys and values in their order as they were projected, (3D,), or (D, 2D), or (D, D, D), of padded rows
(B, T or S, …) or of packed ones (M, …); with G key–value heads these are G·d wide, not D."""


def width(parts: Parts, heads: int = 1, kv_heads: int = 0) -> int:
    """D."""
    return sum(int(part.shape[-1]) for part in parts) // (heads + 2 * (kv_heads or heads)) * heads


def split(parts: Parts, heads: int, kv_heads: int = 0) -> list[Tensor]:
    """Q (B, H, T, d), K and V (B, G, S, d) of padded rows."""
    d, counts = width(parts, heads, kv_heads) // heads, (heads, *[kv_heads or heads] * 2)
    each = zip(apart(parts, heads, kv_heads), counts)
    return [one.view(*one.shape[:2], count, d).transpose(1, 2) for one, count in each]


def apart(parts: Parts, heads: int = 1, kv_heads: int = 0) -> list[Tensor]:
    """Queries (…, D), keys and values (…, G·d)."""
    D = width(parts, heads, kv_heads)
    shared = D // heads * (kv_heads or heads)
    sizes = {1: ([D, shared, shared],), 2: ([D], [shared, shared]), 3: ([D], [shared], [shared])}[len(parts)]
    return [one for part, own in zip(parts, sizes) for one in torch.split(part, own, dim=-1)]


def fits(parts: Parts, heads: int, kv_heads: int = 0) -> bool:
    """True if the loops can read these padded rows (B, T or S, …), and are faster."""
    return able(heads, width(parts, heads, kv_heads), [part.shape[1] for part in parts], *parts) and all(
        part.stride(-1) == 1 and part.stride(0) == part.shape[1] * part.stride(1) for part in parts
    )


def able(heads: int, width: int, times: list[int], *tensors: Tensor) -> bool:
    """True under plain autograd for short rows that have at least a tile of queries and of keys, and for heads that are
    whole tiles wide.
    """
    return (
        torch.is_grad_enabled()
        and all(one.numel() for one in tensors)
        and loopable(*tensors)
        and plain(*tensors)
        and all(ROWS <= time <= SHORT for time in times)
        and width // heads % LANES == 0
    )


def attend(parts: Parts, heads: int, sizes: Tensor | None = None, causal: bool = False, kv_heads: int = 0) -> Tensor:
    """softmax(Q Kᵀ / √d) V of padded rows, (B, T, D).

    Row b sees its first ``sizes[b]`` keys; with ``causal`` no token sees one after it.
    """
    (B, T), S = parts[0].shape[:2], parts[-1].shape[1]
    rows = AttentionRows.padded(B, T, S, sizes)
    y = packed(tuple(part.flatten(0, 1) for part in parts), heads, rows, causal, kv_heads)
    return y.view(B, T, -1)


def packed(parts: Parts, heads: int, rows: AttentionRows, causal: bool = False, kv_heads: int = 0) -> Tensor:
    """The same of packed rows, (M, D)."""
    result: Tensor = _Short.apply(heads, kv_heads or heads, rows, causal, *parts)  # type: ignore[no-untyped-call]
    return result


def equation(
    parts: Parts, heads: int, rows: AttentionRows, causal: bool = False, dropout: float = 0.0, kv_heads: int = 0
) -> Tensor:
    """Attention within packed rows in plain operations, row by row; a query that sees no key gets zeros."""
    d = width(parts, heads, kv_heads) // heads
    each = (one.view(len(one), one.shape[-1] // d, d).transpose(0, 1) for one in apart(parts, heads, kv_heads))
    query, key, value = (one if len(one) == heads else one.repeat_interleave(heads // len(one), 0) for one in each)
    found = []
    for begin, T, begin_keys, S, seen, _ in rows.table.tolist():
        q, k, v = query[:, begin : begin + T], *(one[:, begin_keys : begin_keys + S] for one in (key, value))
        masked = (torch.arange(S) >= seen).expand(T, S)
        if causal:
            masked = masked | torch.ones(T, S, dtype=torch.bool).triu(1)
        scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
        weights = scores.masked_fill(masked, float("-inf")).softmax(-1).masked_fill(masked, 0.0)
        found.append((begin, (drop(weights, dropout) if dropout else weights) @ v))
    ordered = [y for _, y in sorted(found, key=lambda one: one[0])]
    return torch.cat(ordered, dim=1).transpose(0, 1).flatten(1)


def addresses(parts: Parts, heads: int, kv_heads: int) -> list[Tensor | int]:
    """Q, K and V, each with the distance between its tokens."""
    return [field for one in apart(parts, heads, kv_heads) for field in (one, one.stride(0))]


class _Short(torch.autograd.Function):
    """A compiled loop for each direction."""

    @staticmethod
    def forward(ctx: Any, heads: int, kv_heads: int, rows: AttentionRows, causal: bool, *parts: Tensor) -> Tensor:
        """Y."""
        D = width(parts, heads, kv_heads)
        y, weights = parts[0].new_empty(len(parts[0]), D), parts[0].new_empty(heads * rows.weights)
        arrays = (rows.queries, rows.table, *addresses(parts, heads, kv_heads), y, D, weights)
        run(loops.attend, len(y), len(rows.table), heads, D // heads, kv_heads, int(causal), *arrays)
        ctx.save_for_backward(weights, *parts)
        ctx.heads, ctx.rows, ctx.causal = (heads, kv_heads), rows, causal
        return y

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> Any:
        """The gradient of each part."""
        weights, *parts = ctx.saved_tensors
        (heads, kv_heads), rows, needed = ctx.heads, ctx.rows, ctx.needs_input_grad[4:]
        if torch.is_grad_enabled():  # a gradient of this gradient is needed: autograd must see the operations

            def plainly(*own: Tensor) -> Tensor:
                return equation(own, heads, rows, ctx.causal, kv_heads=kv_heads)

            return *[None] * 4, *differentiable(plainly, parts, needed, above)
        by_y, grads = above[0].contiguous(), tuple(part.new_empty(part.shape) for part in parts)
        D = by_y.shape[1]
        projected, gradients = (addresses(one, heads, kv_heads) for one in (tuple(parts), grads))
        fixed = (len(rows.table), heads, D // heads, kv_heads, rows.queries, rows.keys, rows.table)
        run(loops.attend_backward, len(by_y), *fixed, *projected, by_y, D, *gradients, weights)
        return *[None] * 4, *(grad if need else None for grad, need in zip(grads, needed))
