"""Attention whose scores are sums of content by content, content by position and position by content (DeBERTa).

    A_ij = Q_i·K_j + Q_i·R^K_{i−j} + K_j·R^Q_{i−j},        y_i = Σ_j softmax_j(A_ij / √(3 d)) V_j

R^K and R^Q have a row for every distance of T positions, T − 1 first and 1 − T last, so the row of i − j is number
T − 1 − i + j. Written out, both position terms would need T · T · d numbers. But Q R^Kᵀ has all numbers of the second
term, those of query i beginning at column T − 1 − i: the term is a view of it whose rows begin one column earlier each
time. The third is such a view of K R^Qᵀ, transposed, with distances in ascending order.

The fast implementation computes some heads of a row at a time, so that what it makes of T · 2T numbers stays in the
cache, and keeps the weights alone for its backward pass, where the gradients of both terms are views in the same way.

Legend: B rows, T tokens, K positions of a row that are asked for, H heads, G key–value heads (G divides H), d head
width, D = H · d, N = 2T − 1 distances.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ensue.kernels.attention import shared_heads
from ensue.kernels.autograd_guards import differentiable, plain
from ensue.kernels.dropout import dropout as drop
from ensue.kernels.dropout import mask as dropout_mask
from ensue.kernels.kernel import Fast, Kernel
from ensue.kernels.threads import rounds

TERMS = 3
"""Terms of a score, over which its variance adds up."""
PIECE = 1 << 17
"""Scores of content by position that are computed at once, so that they stay in the cache of a core."""

Parts = tuple[Tensor, Tensor, Tensor]
"""Q (B, H, T, d), K and V (B, G, T, d)."""
Positions = tuple[Tensor, Tensor]
"""R^K (G, N, d) and R^Q (H, N, d)."""


def disentangled_weights(
    parts: Parts, positions: Positions, mask: Tensor | None, index: Tensor | None = None
) -> Tensor:
    """softmax(A / √(3 d)), (B, H, T, T); (B, H, K, T) where queries (B, H, K, d) are at positions ``index`` (B, K).

    ``mask`` is true for keys that are seen, (B, 1, 1, T).
    """
    query, H = parts[0], parts[0].shape[1]
    key, by_key, by_query = (shared_heads(one, H) for one in (parts[1], positions[0][None], positions[1][None]))
    steps = torch.arange(key.shape[2], device=key.device)
    at = steps[None] if index is None else index
    row = (steps[-1] - at[..., None] + steps)[:, None]  # (1 or B, 1, T or K, T), the row of i − j
    row = row.expand(len(query), H, -1, -1)
    scores = query @ key.transpose(-2, -1)
    scores = scores + (query @ by_key.transpose(-2, -1)).gather(-1, row)
    scores = scores + (by_query @ key.transpose(-2, -1)).gather(-2, row)  # of (B, H, N, T)
    scores = scores / math.sqrt(TERMS * query.shape[-1])
    return scores.softmax(-1) if mask is None else scores.masked_fill(~mask, float("-inf")).softmax(-1)


def _reference(parts: Parts, positions: Positions, mask: Tensor | None = None, dropout: float = 0.0) -> Tensor:
    weights = disentangled_weights(parts, positions, mask)
    y = (drop(weights, dropout) if dropout else weights) @ shared_heads(parts[2], parts[0].shape[1])
    return y.transpose(1, 2).flatten(2)


def _can_run(parts: Parts, positions: Positions, mask: Tensor | None = None, dropout: float = 0.0) -> bool:
    same = parts[0].shape == parts[1].shape and parts[0].shape[2] > 0
    return same and parts[0].device.type == "cpu" and plain(*parts, *positions)


def _in_pieces(parts: Parts, positions: Positions, mask: Tensor | None = None, dropout: float = 0.0) -> Tensor:
    y: Tensor = _InPieces.apply(mask, dropout, *parts, *positions)  # type: ignore[no-untyped-call]
    return y.transpose(1, 2).flatten(2)


disentangled_attention = Kernel("disentangled_attention", _reference, Fast("in_pieces", _in_pieces, _can_run))
"""(parts, positions, mask=None, dropout=0.0) → (B, T, D); keys where ``mask`` (B, 1, 1, T) is false are not seen."""


class _Pieces:
    """Buffers for some heads of one row, and the views of them in which distances are positions."""

    def __init__(self, like: Tensor) -> None:
        _, self.heads, self.time, _ = like.shape
        T = self.time
        self.count = min(self.heads, max(1, PIECE // (T * T)))
        shape = (self.count, T, 2 * T - 1)
        self.by_key, self.by_query = like.new_zeros(shape), like.new_zeros(shape)
        self.key_term = self._shifted(self.by_key)
        self.query_term = self._shifted(self.by_query).transpose(1, 2)

    def _shifted(self, x: Tensor) -> Tensor:
        """The numbers of row r from column T − 1 − r on, (h, T, N) → (h, T, T)."""
        T = self.time
        return x.as_strided((len(x), T, T), (T * (2 * T - 1), 2 * T - 2, 1), T - 1)

    def slices(self) -> list[slice]:
        """Which heads are computed together."""
        return [slice(at, min(at + self.count, self.heads)) for at in range(0, self.heads, self.count)]


class _InPieces(torch.autograd.Function):
    """Some heads of a row at a time."""

    @staticmethod
    def forward(
        ctx: Any,
        mask: Tensor | None,
        dropout: float,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        by_key: Tensor,
        by_query: Tensor,
    ) -> Tensor:
        """Y (B, H, T, d)."""
        ctx.scale = scale = 1 / math.sqrt(TERMS * query.shape[-1])
        pieces = _Pieces(query)
        scaled_keys, scaled_queries = by_key * scale, (by_query * scale).flip(1)
        weights = query.new_empty(*query.shape[:3], query.shape[2])
        kept = dropout_mask(weights, dropout) if dropout else None
        y = query.new_empty(query.shape)
        for b in rounds(range(len(query)), query):
            for part in rounds(pieces.slices(), query):
                n, q, k, here = part.stop - part.start, query[b, part], key[b, part], weights[b, part]
                torch.bmm(q, scaled_keys[part].transpose(1, 2), out=pieces.by_key[:n])
                torch.bmm(k, scaled_queries[part].transpose(1, 2), out=pieces.by_query[:n])
                torch.add(pieces.key_term[:n], pieces.query_term[:n], out=here)
                here.baddbmm_(q, k.transpose(1, 2), alpha=scale)
                if mask is not None:
                    here.masked_fill_(~mask[b], float("-inf"))
                torch.softmax(here, -1, out=here)
                torch.bmm(here if kept is None else here * kept[b, part], value[b, part], out=y[b, part])
        ctx.save_for_backward(mask, kept, weights, query, key, value, by_key, by_query)
        return y

    @staticmethod
    def backward(ctx: Any, above: Tensor) -> Any:
        """The gradients of the parts and of the positions."""
        mask, kept, weights, *inputs = ctx.saved_tensors
        if torch.is_grad_enabled():  # a gradient of this gradient is needed: autograd must see the operations

            def plainly(*own: Tensor) -> Tensor:
                seen = disentangled_weights(own[:3], own[3:], mask)  # type: ignore[arg-type]
                return (seen if kept is None else seen * kept) @ own[2]

            return None, None, *differentiable(plainly, inputs, ctx.needs_input_grad[2:], (above,))
        query, key, value, by_key, by_query = inputs
        scale, pieces = ctx.scale, _Pieces(query)
        scaled_keys, scaled_queries = by_key * scale, (by_query * scale).flip(1)
        of_query, of_key, of_value = (torch.empty_like(query) for _ in range(3))
        of_keys, of_queries = torch.zeros_like(scaled_keys), torch.zeros_like(scaled_queries)
        for b in rounds(range(len(query)), query):
            for part in rounds(pieces.slices(), query):
                n, q, k, here, dy = (
                    part.stop - part.start,
                    query[b, part],
                    key[b, part],
                    weights[b, part],
                    above[b, part],
                )
                drops = None if kept is None else kept[b, part]
                torch.bmm((here if drops is None else here * drops).transpose(1, 2), dy, out=of_value[b, part])
                by_weight = torch.bmm(dy, value[b, part].transpose(1, 2))
                by_weight = by_weight if drops is None else by_weight.mul_(drops)
                score = torch._softmax_backward_data(by_weight, here, -1, here.dtype)
                pieces.key_term[:n].copy_(score)
                pieces.query_term[:n].copy_(score)
                by_q, by_k = of_query[b, part], of_key[b, part]
                torch.bmm(pieces.by_key[:n], scaled_keys[part], out=by_q)
                by_q.baddbmm_(score, k, alpha=scale)
                torch.bmm(pieces.by_query[:n], scaled_queries[part], out=by_k)
                by_k.baddbmm_(score.transpose(1, 2), q, alpha=scale)
                of_keys[part].baddbmm_(pieces.by_key[:n].transpose(1, 2), q, alpha=scale)
                of_queries[part].baddbmm_(pieces.by_query[:n].transpose(1, 2), k, alpha=scale)
        return None, None, of_query, of_key, of_value, of_keys, of_queries.flip(1)
