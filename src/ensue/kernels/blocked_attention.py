"""Attention within rows of any length, a block of queries at a time, with a gradient of its own.

    P = softmax(Q Kᵀ / √d),  Y = (P ∘ m) V                                  m the mask of dropout, where there is some
    ∂V = (P ∘ m)ᵀ ∂Y,  ∂P = (∂Y Vᵀ) ∘ m,  ∂S = P ∘ (∂P − Σ_s P ∘ ∂P) / √d,  ∂Q = ∂S K,  ∂K = ∂Sᵀ Q

The weights of a block, which sees all of its keys at once, are small enough to stay in the cache and are never written
to memory: the way back makes them again, and so it does the mask (see ensue.kernels.elementwise_loops). What was
projected side by side
is read where it lies, and its gradient is written side by side.

Legend: B rows, T queries, S keys, M places of all rows, H heads, d width of a head, D = H·d.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ensue.kernels.autograd_guards import differentiable, plain
from ensue.kernels.dropout import limit, new_seed
from ensue.kernels.packing import Rows
from ensue.kernels.short_attention import Parts, places, split, width
from ensue.kernels.threads import LANES, reachable, run

LONGEST = 4096
"""The most queries and the most keys: beyond, a head's keys and values leave the cache."""


def fits(parts: Parts, heads: int) -> bool:
    """Whether the loops take padded rows (B, T or S, …) as they lie, and are faster."""
    return (
        torch.is_grad_enabled()
        and all(part.numel() and part.shape[1] <= LONGEST for part in parts)
        and width(parts) // heads % LANES == 0
        and reachable(*parts)
        and plain(*parts)
        and all(part.stride(-1) == 1 and part.stride(0) == part.shape[1] * part.stride(1) for part in parts)
    )


def attend(parts: Parts, heads: int, sizes: Tensor | None = None, causal: bool = False, dropout: float = 0.0) -> Tensor:
    """softmax(Q Kᵀ / √d) V of padded rows, (B, T, D), with a share of the weights switched off at random.

    Row b sees its first ``sizes[b]`` keys; with ``causal`` no token sees one after it.
    """
    (B, T), S = parts[0].shape[:2], parts[-1].shape[1]
    off, seed = (limit(dropout), new_seed()) if dropout else (0, 0)
    rows = Rows.padded(B, T, S, sizes)
    y: Tensor = _Blocked.apply(heads, rows, causal, off, seed, *parts)  # type: ignore[no-untyped-call]
    return y


def reference(parts: Parts, heads: int, rows: Rows, causal: bool, off: int, seed: int) -> Tensor:
    """The equation, operation by operation; who sees nothing looks nowhere."""
    query, key, value = split(parts, heads)  # (B, H, T or S, d)
    T, S = query.shape[2], key.shape[2]
    hidden = torch.arange(S) >= rows.table[:, 4, None, None, None]
    if causal:
        hidden = hidden | torch.ones(T, S, dtype=torch.bool).triu(1)
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    weights = scores.masked_fill(hidden, float("-inf")).softmax(-1).masked_fill(hidden, 0.0)
    if off:
        weights = weights * mask(weights, off, seed)
    y: Tensor = (weights @ value).transpose(1, 2).flatten(2)
    return y


def mask(weights: Tensor, off: int, seed: int) -> Tensor:
    """m / (1 − p) of a seed for weights (B, H, T, S), the same each time."""
    from ensue.kernels import blocked_attention_loops as loops  # numba takes a while to import

    B, H, T, S = weights.shape
    kept = torch.empty(weights.shape, dtype=torch.float32)
    run(loops.block_masks, B * T, B, H, T, S, seed, off, kept)
    return kept


class _Blocked(torch.autograd.Function):
    """Both ways a loop of our own, on padded rows."""

    @staticmethod
    def forward(ctx: Any, heads: int, rows: Rows, causal: bool, off: int, seed: int, *parts: Tensor) -> Tensor:
        """Y."""
        from ensue.kernels import blocked_attention_loops as loops

        (B, T), D = parts[0].shape[:2], width(parts)
        y = parts[0].new_empty(B, T, D)
        fixed = (B, heads, D // heads, int(causal), rows.queries, rows.keys, seed, off, rows.table)
        run(loops.attend_blocks, B * T, *fixed, *places(_flat(parts)), y, D)
        ctx.save_for_backward(*parts)
        ctx.heads, ctx.rows, ctx.rest = heads, rows, (causal, off, seed)
        return y

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> Any:
        """The gradient of each part."""
        from ensue.kernels import blocked_attention_loops as loops

        parts, rows, (causal, off, seed) = ctx.saved_tensors, ctx.rows, ctx.rest
        needed = ctx.needs_input_grad[5:]
        if torch.is_grad_enabled():  # the gradient of a gradient is asked for: let autograd see the operations

            def equation(*own: Tensor) -> Tensor:
                return reference(own, ctx.heads, rows, causal, off, seed)

            return *[None] * 5, *differentiable(equation, parts, needed, above)
        by_y, grads = above[0].contiguous(), tuple(part.new_empty(part.shape) for part in parts)
        (B, T), D = parts[0].shape[:2], by_y.shape[2]
        fixed = (B, ctx.heads, D // ctx.heads, int(causal), rows.queries, rows.keys, seed, off, rows.table)
        held = (*places(_flat(parts)), by_y, D, *places(_flat(grads)))
        run(loops.attend_blocks_backward, B * T, *fixed, *held)
        return *[None] * 5, *(grad if need else None for grad, need in zip(grads, needed))


def _flat(parts: Parts) -> Parts:
    """Padded rows one after the other, (B, T or S, …) → (M, …)."""
    return tuple(part.flatten(0, 1) for part in parts)
