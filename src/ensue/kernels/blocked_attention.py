"""Attention within rows of any length, a block of queries at a time, with a gradient of its own.

    P = softmax(Q Kᵀ / √d),  Y = (P ∘ m) V                                  m the mask of dropout, where there is some
    ∂V = (P ∘ m)ᵀ ∂Y,  ∂P = (∂Y Vᵀ) ∘ m,  ∂S = P ∘ (∂P − Σ_s P ∘ ∂P) / √d,  ∂Q = ∂S K,  ∂K = ∂Sᵀ Q

The weights of a block are small enough to stay in the cache and are never written to memory: the backward pass computes
them again, and so it does the mask (see ensue.kernels.elementwise_loops). Queries, keys and values that were projected
side by side are read there, and their gradients are written side by side; keys and values that several query heads
share are never repeated.

Legend: B rows, T queries, S keys, M tokens of all rows, H heads, G key–value heads (0: H), d head width, D = H·d.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ensue.kernels.autograd_guards import differentiable, plain
from ensue.kernels.dropout import limit, new_seed
from ensue.kernels.loops import Loops
from ensue.kernels.packing import AttentionRows
from ensue.kernels.short_attention import Parts, addresses, split, width
from ensue.kernels.threads import LANES, loopable, run

loops = Loops("ensue.kernels.blocked_attention_loops")

MAX_TIME = 4096
"""The most queries and the most keys: beyond, a head's keys and values leave the cache."""


def fits(parts: Parts, heads: int, kv_heads: int = 0, span: int = 0) -> bool:
    """True if the loops can read these padded rows (B, T or S, …), and are faster."""
    return (
        (torch.is_grad_enabled() or span > 0)
        and all(part.numel() and (part.shape[1] <= MAX_TIME or span) for part in parts)
        and width(parts, heads, kv_heads) // heads % LANES == 0
        and loopable(*parts)
        and plain(*parts)
        and all(part.stride(-1) == 1 and part.stride(0) == part.shape[1] * part.stride(1) for part in parts)
    )


def skips(x: Tensor, head_width: int) -> bool:
    """True if the loops can read heads of this width projected from x (B, T, …), and skip keys outside a span."""
    return bool(x.numel()) and head_width % LANES == 0 and loopable(x) and plain(x)


def attend(
    parts: Parts,
    heads: int,
    sizes: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    kv_heads: int = 0,
    span: int = 0,
) -> Tensor:
    """softmax(Q Kᵀ / √d) V of padded rows, (B, T, D), each weight dropped with probability ``dropout``.

    Row b sees its first ``sizes[b]`` keys; with ``causal`` no token sees one after it, and with a ``span`` none that is
    ``span`` or more positions before it or after it.
    """
    (B, T), S = parts[0].shape[:2], parts[-1].shape[1]
    off, seed = (limit(dropout), new_seed()) if dropout else (0, 0)
    rows = AttentionRows.padded(B, T, S, sizes)
    y: Tensor = _Blocked.apply((heads, kv_heads or heads), rows, (causal, span), off, seed, *parts)  # type: ignore[no-untyped-call]
    return y


def reference(
    parts: Parts,
    heads: int,
    rows: AttentionRows,
    causal: bool,
    off: int,
    seed: int,
    kv_heads: int = 0,
    span: int = 0,
) -> Tensor:
    """The equation in plain operations; a query that sees no key gets zeros."""
    each = split(parts, heads, kv_heads)
    query, key, value = (
        one if one.shape[1] == heads else one.repeat_interleave(heads // kv_heads, 1) for one in each
    )  # (B, H, T or S, d)
    T, S = query.shape[2], key.shape[2]
    masked = torch.arange(S) >= rows.table[:, 4, None, None, None]
    if causal:
        masked = masked | torch.ones(T, S, dtype=torch.bool).triu(1)
    if span:
        masked = masked | ((torch.arange(T)[:, None] - torch.arange(S)).abs() >= span)
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    weights = scores.masked_fill(masked, float("-inf")).softmax(-1).masked_fill(masked, 0.0)
    if off:
        weights = weights * mask(weights, off, seed)
    y: Tensor = (weights @ value).transpose(1, 2).flatten(2)
    return y


def mask(weights: Tensor, off: int, seed: int) -> Tensor:
    """m / (1 − p) of a seed for weights (B, H, T, S), the same each time."""
    B, H, T, S = weights.shape
    kept = torch.empty(weights.shape, dtype=torch.float32)
    run(loops.block_masks, B * T, B, H, T, S, seed, off, kept)
    return kept


class _Blocked(torch.autograd.Function):
    """A compiled loop for each direction, on padded rows."""

    @staticmethod
    def forward(
        ctx: Any,
        shared: tuple[int, int],
        rows: AttentionRows,
        near: tuple[bool, int],
        off: int,
        seed: int,
        *parts: Tensor,
    ) -> Tensor:
        """Y; ``shared`` are H and G, ``near`` are causal and span."""
        (B, T), D, heads = parts[0].shape[:2], width(parts, *shared), shared[0]
        y = parts[0].new_empty(B, T, D)
        fixed = (B, heads, D // heads, shared[1], int(near[0]), near[1], rows.queries, rows.keys, seed, off, rows.table)
        run(loops.attend_blocks, B * T, *fixed, *addresses(flat(parts), *shared), y, D, 0, 0)
        ctx.save_for_backward(*parts)
        ctx.shared, ctx.rows, ctx.rest = shared, rows, (near, off, seed)
        return y

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> Any:
        """The gradient of each part."""
        parts, rows, (near, off, seed) = ctx.saved_tensors, ctx.rows, ctx.rest
        needed, (heads, kv_heads) = ctx.needs_input_grad[5:], ctx.shared
        if torch.is_grad_enabled():  # a gradient of this gradient is needed: autograd must see the operations

            def equation(*own: Tensor) -> Tensor:
                return reference(own, heads, rows, near[0], off, seed, kv_heads, near[1])

            return *[None] * 5, *differentiable(equation, parts, needed, above)
        by_y, grads = above[0].contiguous(), tuple(part.new_empty(part.shape) for part in parts)
        (B, T), D = parts[0].shape[:2], by_y.shape[2]
        fixed = (B, heads, D // heads, kv_heads, int(near[0]), near[1], rows.queries, rows.keys, seed, off, rows.table)
        arrays = (*addresses(flat(parts), heads, kv_heads), by_y, D, *addresses(flat(grads), heads, kv_heads))
        run(loops.attend_blocks_backward, B * T, *fixed, *arrays, 0, 0, 0)
        return *[None] * 5, *(grad if need else None for grad, need in zip(grads, needed))


def flat(parts: Parts) -> Parts:
    """Padded rows one after the other, (B, T or S, …) → (M, …)."""
    return tuple(part.flatten(0, 1) for part in parts)
