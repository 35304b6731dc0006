"""Attention whose scores are not divided by √d, with a bias for each distance (T5; Raffel et al., 2020).

    Attention(Q, K, V) = softmax(Q Kᵀ + b_{t − s}) V

The bias is a table of distances (H, T + S − 1), from 1 − S to T − 1, and never a matrix (H, T, S) where the loops of
``ensue.kernels.blocked_attention`` can run: they add a row of the table to a block of scores, and sum up its gradient
along the diagonals.

Legend: B rows, T queries, S keys, H heads, G key–value heads (0: H), d head width, D = H·d.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ensue.kernels.autograd_guards import differentiable, plain
from ensue.kernels.blocked_attention import MAX_TIME, flat, loops
from ensue.kernels.blocked_attention import mask as dropout_mask
from ensue.kernels.dropout import dropout as drop
from ensue.kernels.dropout import limit, new_seed
from ensue.kernels.kernel import Fast, Kernel
from ensue.kernels.packing import AttentionRows
from ensue.kernels.short_attention import Parts, addresses, split, width
from ensue.kernels.threads import LANES, loopable, run


def bias_of(table: Tensor, times: int, keys: int) -> Tensor:
    """The bias of each query and key, (H, T, S), of a table of distances (H, T + S − 1).

    >>> bias_of(torch.tensor([[-1, 0, 1]]), 2, 2).tolist()
    [[[0, -1], [1, 0]]]
    """
    assert table.shape[1] == times + keys - 1
    return table.unfold(1, keys, 1).flip(-1)


def _seen(times: int, keys: int, lengths: Tensor | None, causal: bool, device: torch.device) -> Tensor | None:
    """Which keys queries see, (1 or B, 1, T, S); None for all."""
    mask = None
    if lengths is not None:
        mask = (torch.arange(keys, device=device) < lengths[:, None])[:, None, None]
    if causal:
        earlier = torch.ones(times, keys, dtype=torch.bool, device=device).tril()[None, None]
        mask = earlier if mask is None else mask & earlier
    return mask


def _reference(
    parts: Parts,
    heads: int,
    table: Tensor | None,
    lengths: Tensor | None = None,
    *,
    causal: bool = False,
    dropout: float = 0.0,
    kv_heads: int = 0,
) -> Tensor:
    return equation(parts, table, heads, lengths, causal, partial(drop, p=dropout) if dropout else None, kv_heads)


def equation(
    parts: Parts,
    table: Tensor | None,
    heads: int,
    lengths: Tensor | None,
    causal: bool,
    dropped: Any,
    kv_heads: int = 0,
) -> Tensor:
    """The equation; ``dropped`` maps weights (B, H, T, S) to those after dropout. A query that sees no key gets 0."""
    query, key, value = (_of_heads(one, heads) for one in split(parts, heads, kv_heads))
    scores = query @ key.transpose(-2, -1)
    if table is not None:
        scores = scores + bias_of(table, query.shape[2], key.shape[2])
    mask = _seen(query.shape[2], key.shape[2], lengths, causal, query.device)
    if mask is None:
        weights = scores.softmax(-1)
    else:
        weights = scores.masked_fill(~mask, float("-inf")).softmax(-1).masked_fill(~mask, 0.0)
    y = (weights if dropped is None else dropped(weights)) @ value
    return y.transpose(1, 2).flatten(2)


def _of_heads(x: Tensor, heads: int) -> Tensor:
    """Keys or values of G heads repeated for H, (B, G, S, d) → (B, H, S, d)."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], dim=1)


def _blocked(
    parts: Parts,
    heads: int,
    table: Tensor | None,
    lengths: Tensor | None = None,
    *,
    causal: bool = False,
    dropout: float = 0.0,
    kv_heads: int = 0,
) -> Tensor:
    (B, T), S = parts[0].shape[:2], parts[-1].shape[1]
    off, seed = (limit(dropout), new_seed()) if dropout else (0, 0)
    rows = AttentionRows.padded(B, T, S, lengths)
    table = None if table is None else table.contiguous()
    y: Tensor = _Relative.apply((heads, kv_heads or heads), rows, causal, (off, seed), table, *parts)  # type: ignore[no-untyped-call]
    return y


def _can_run_blocked(
    parts: Parts,
    heads: int,
    table: Tensor | None,
    lengths: Tensor | None = None,
    *,
    causal: bool = False,
    dropout: float = 0.0,
    kv_heads: int = 0,
) -> bool:
    tables = () if table is None else (table,)
    return (
        torch.is_grad_enabled()
        and all(part.numel() and part.shape[1] <= MAX_TIME for part in parts)
        and width(parts, heads, kv_heads) // heads % LANES == 0
        and loopable(*parts, *tables)
        and plain(*parts, *tables)
        and all(part.stride(-1) == 1 and part.stride(0) == part.shape[1] * part.stride(1) for part in parts)
    )


def _scaled_dot_product(
    parts: Parts,
    heads: int,
    table: Tensor | None,
    lengths: Tensor | None = None,
    *,
    causal: bool = False,
    dropout: float = 0.0,
    kv_heads: int = 0,
) -> Tensor:
    """Torch's own kernel, with a matrix of biases."""
    query, key, value = (_of_heads(one, heads) for one in split(parts, heads, kv_heads))
    mask = _seen(query.shape[2], key.shape[2], lengths, causal, query.device)
    if table is not None:
        bias = bias_of(table, query.shape[2], key.shape[2]).to(query.dtype)
        mask = bias[None] if mask is None else bias.masked_fill(~mask, float("-inf"))
    return F.scaled_dot_product_attention(query, key, value, mask, dropout, scale=1.0).transpose(1, 2).flatten(2)


def _always(
    parts: Parts,
    heads: int,
    table: Tensor | None,
    lengths: Tensor | None = None,
    *,
    causal: bool = False,
    dropout: float = 0.0,
    kv_heads: int = 0,
) -> bool:
    return True


attend_relative = Kernel(
    "relative_attention",
    _reference,
    Fast("blocked", _blocked, _can_run_blocked),
    Fast("scaled_dot_product", _scaled_dot_product, _always),
)
"""Unscaled attention with a bias by distance among projected queries, keys and values of padded rows → (B, T, D).

(parts, heads, table, lengths=None, *, causal=False, dropout=0.0, kv_heads=0): ``table`` is (H, T + S − 1) or None; the
others are those of ``ensue.kernels.attention.attend``.
"""


class _Relative(torch.autograd.Function):
    """A compiled loop for each direction."""

    @staticmethod
    def forward(
        ctx: Any,
        shared: tuple[int, int],
        rows: AttentionRows,
        causal: bool,
        drawn: tuple[int, int],
        table: Tensor | None,
        *parts: Tensor,
    ) -> Tensor:
        """Y; ``shared`` are H and G, ``drawn`` the limit and the seed of dropout."""
        (B, T), D = parts[0].shape[:2], width(parts, *shared)
        y = parts[0].new_empty(B, T, D)
        arrays = (*addresses(flat(parts), *shared), y, D)
        run(loops.attend_blocks, B * T, *_sizes(B, D, shared, rows, causal, drawn), *arrays, 1, _address(table))
        ctx.save_for_backward(table, *parts)
        ctx.rest = shared, rows, causal, drawn
        return y

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> Any:
        """The gradients of the table and of each part."""
        (table, *parts), (shared, rows, causal, drawn) = ctx.saved_tensors, ctx.rest
        needed = ctx.needs_input_grad[4:]
        if torch.is_grad_enabled():  # a gradient of this gradient is needed: autograd must see the operations

            def again(own: Tensor | None, *given: Tensor) -> Tensor:
                off, seed = drawn
                kept = (lambda weights: weights * dropout_mask(weights, off, seed)) if off else None
                return equation(given, own, shared[0], rows.table[:, 4], causal, kept, shared[1])

            return *[None] * 4, *differentiable(again, (table, *parts), needed, above)
        by_y, grads = above[0].contiguous(), tuple(part.new_empty(part.shape) for part in parts)
        (B, T), D = parts[0].shape[:2], by_y.shape[2]
        sums = None if table is None else table.new_zeros(B, *table.shape)
        arrays = (*addresses(flat(tuple(parts)), *shared), by_y, D, *addresses(flat(grads), *shared))
        tables = (1, _address(table), _address(sums))
        run(loops.attend_blocks_backward, B * T, *_sizes(B, D, shared, rows, causal, drawn), *arrays, *tables)
        by_table = sums.sum(0) if sums is not None and needed[0] else None
        return *[None] * 4, by_table, *(grad if need else None for grad, need in zip(grads, needed[1:]))


def _sizes(
    B: int, D: int, shared: tuple[int, int], rows: AttentionRows, causal: bool, drawn: tuple[int, int]
) -> tuple[Tensor | int, ...]:
    """The first arguments of a loop."""
    (heads, kv_heads), (off, seed) = shared, drawn
    return B, heads, D // heads, kv_heads, int(causal), 0, rows.queries, rows.keys, seed, off, rows.table


def _address(table: Tensor | None) -> Tensor | int:
    """A table as a loop takes it: 0 stands for none."""
    return 0 if table is None else table
