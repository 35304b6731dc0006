"""Attention whose pattern depends on positions only, in blocks: local, strided, fixed, global and random keys.

    Y = (softmax(Q Kᵀ / √d + b) ∘ m) V        over the keys of all parts of a pattern; m the mask of dropout

Queries and keys lie in blocks of L positions. A part of a pattern names the keys that each block of queries sees:

    Near       the block at a distance            Common    positions that all blocks see
    Drawn      blocks from a table                Residue   the same offset in all blocks

The scores of all parts stand side by side, so there is one softmax. They are computed for a few blocks of queries at a
time and again in the backward pass, so that memory grows with the number of tokens and not with that of the scores:

    ∂V = (P ∘ m)ᵀ ∂Y,   ∂S = P ∘ ((∂Y Vᵀ) ∘ m − Σ ∂Y ∘ Y),   ∂Q = ∂S K / √d,   ∂K = ∂Sᵀ Q / √d

Legend: N blocks of queries, W blocks of keys, R rows × heads, L positions of a block, d head width, K keys of a part,
g blocks from a to b that are computed at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from ensue.kernels.autograd_guards import differentiable, plain
from ensue.kernels.dropout import mask as dropout_mask
from ensue.kernels.dropout import new_seed
from ensue.kernels.kernel import Fast, Kernel

SCORES = 1 << 20
"""Scores that are computed at once."""
Bias = Callable[[Tensor, Tensor], Tensor]
"""Maps positions of queries (X, T) and keys (X, S) to a bias of scores (X, H, T, S)."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """Keys that blocks of queries see. A subclass says where they are among the blocks of keys (W, R, L, d)."""

    first: int
    """Number of the first block of queries, where the first block of keys is 0."""
    within: Tensor | None = None
    """Broadcasts to (R, L, K): True where queries at an offset of any block don't see a key; None: nowhere."""
    absent: Tensor | None = None
    """(N, 1 or R, 1, K), True where a block of queries sees no such key; None: nowhere."""
    by_row: ClassVar[bool] = False
    """Whether heads see different keys."""

    def width(self, size: int, b: int) -> int:
        """K, of queries in blocks of ``size`` positions before b."""
        return size

    def gather(self, x: Tensor, a: int, b: int) -> Tensor:
        """The keys of the blocks a … b − 1 of queries, (g, R, K, d)."""
        raise TypeError(f"{type(self).__name__} has no gather")

    def scatter(self, x: Tensor, change: Tensor, a: int, b: int) -> None:
        """Add a change of these keys, (g, R, K, d), to x."""
        raise TypeError(f"{type(self).__name__} has no scatter")

    def scores(self, query: Tensor, x: Tensor, a: int, b: int) -> Tensor:
        """Q Kᵀ, (g, R, L, d) → (g, R, L, K)."""
        return query @ self.gather(x, a, b).transpose(-2, -1)

    def read(self, weights: Tensor, x: Tensor, a: int, b: int) -> Tensor:
        """P V, (g, R, L, K) → (g, R, L, d)."""
        return weights @ self.gather(x, a, b)

    def add(self, x: Tensor, weights: Tensor, query: Tensor, a: int, b: int) -> None:
        """Add Pᵀ Q to x: the gradient of ``scores`` and ``read`` with respect to keys and values."""
        self.scatter(x, weights.transpose(-2, -1) @ query, a, b)

    def hide(self, scores: Tensor, a: int, b: int) -> None:
        """Mask the scores (g, R, L, K) of what is not seen, in place."""
        nothing = torch.finfo(scores.dtype).min / 4  # not −∞: padding may see nothing at all
        if self.within is not None:
            scores.add_(self.within[..., : scores.shape[-1]].to(scores.dtype), alpha=nothing)
        if self.absent is not None:
            scores.add_(self.absent[a:b, ..., : scores.shape[-1]].to(scores.dtype), alpha=nothing)

    def bias(self, bias: Bias, query: Tensor, blocks: int, a: int, b: int) -> Tensor:
        """The bias of the scores of queries (g, R, L, d) and ``blocks`` of keys, (g, R, L, K)."""
        R, L = query.shape[1:3]
        each = R if self.by_row else 1
        places = torch.arange(blocks * L, device=query.device).view(blocks, 1, L, 1)
        queries = places[self.first + a : self.first + b].view(b - a, 1, L).expand(-1, each, -1)
        keys = self.gather(places.expand(-1, each, -1, -1).contiguous(), a, b)[..., 0]
        found = bias(queries.flatten(0, 1), keys.flatten(0, 1))  # (g·(1 or R), H, L, K)
        H = found.shape[1]
        if each > 1:  # each row of keys with the head it belongs to
            found = found.view(b - a, R // H, H, *found.shape[1:]).diagonal(dim1=2, dim2=3).movedim(-1, 2)
            return found.flatten(1, 2)
        return found.repeat(1, R // H, 1, 1)


@dataclass(frozen=True, kw_only=True)
class Near(Part):
    """The block of keys at a distance from the block of queries. Where there is none, it has to be ``absent``."""

    distance: int

    def _range(self, x: Tensor, a: int, b: int) -> tuple[int, int]:
        """The blocks of x, of which some may not be there."""
        return self.first + self.distance + a, self.first + self.distance + b

    def gather(self, x: Tensor, a: int, b: int) -> Tensor:
        start, stop = self._range(x, a, b)
        inside = x[max(start, 0) : max(stop, 0)]
        before = min(max(-start, 0), b - a)
        after = b - a - before - len(inside)
        return F.pad(inside, (0, 0) * 3 + (before, after)) if before or after else inside

    def scatter(self, x: Tensor, change: Tensor, a: int, b: int) -> None:
        start, stop = self._range(x, a, b)
        inside = x[max(start, 0) : max(stop, 0)]
        before = min(max(-start, 0), b - a)
        inside.add_(change[before : before + len(inside)])


@dataclass(frozen=True, kw_only=True)
class Drawn(Part):
    """Blocks of keys from a table (N, R, r)."""

    table: Tensor
    by_row = True

    def width(self, size: int, b: int) -> int:
        return self.table.shape[2] * size

    def _index(self, x: Tensor, a: int, b: int) -> Tensor:
        """Rows of x as (W·R, L·d)."""
        rows = torch.arange(x.shape[1], device=x.device)[:, None]
        return (self.table[a:b] * x.shape[1] + rows).flatten()

    def gather(self, x: Tensor, a: int, b: int) -> Tensor:
        found = x.reshape(-1, x.shape[2] * x.shape[3]).index_select(0, self._index(x, a, b))
        return found.view(b - a, x.shape[1], -1, x.shape[3])

    def scatter(self, x: Tensor, change: Tensor, a: int, b: int) -> None:
        index = self._index(x, a, b)
        x.view(-1, x.shape[2] * x.shape[3]).index_add_(0, index, change.reshape(len(index), -1))


@dataclass(frozen=True, kw_only=True)
class Common(Part):
    """The last ``count`` positions of ``blocks`` blocks of keys, which all queries see.

    With ``earlier`` only those before their own block are computed.
    """

    blocks: int
    count: int
    earlier: bool = False

    def end(self, b: int) -> int:
        """How many blocks of keys the queries before b see."""
        return max(0, min(self.blocks, self.first + b - 1)) if self.earlier else self.blocks

    def width(self, size: int, b: int) -> int:
        return self.end(b) * self.count

    def _slice(self, x: Tensor, b: int) -> Tensor:
        """(R, blocks, count, d)."""
        return x[: self.end(b), :, x.shape[2] - self.count :].transpose(0, 1)

    def gather(self, x: Tensor, a: int, b: int) -> Tensor:
        return self._slice(x, b).flatten(1, 2).expand(b - a, -1, -1, -1)

    def scatter(self, x: Tensor, change: Tensor, a: int, b: int) -> None:
        own = self._slice(x, b)
        own.add_(change.sum(0).view(own.shape))


@dataclass(frozen=True, kw_only=True)
class Residue(Common):
    """The query's own offset in ``blocks`` blocks of keys. With ``count`` 1 a block has one such key."""

    count: int = 1

    def _of(self, x: Tensor, b: int) -> Tensor:
        """(R, L, K, d)."""
        return x[: self.end(b)].permute(1, 2, 0, 3)

    def scores(self, query: Tensor, x: Tensor, a: int, b: int) -> Tensor:
        return (query.permute(1, 2, 0, 3) @ self._of(x, b).transpose(-2, -1)).permute(2, 0, 1, 3)

    def read(self, weights: Tensor, x: Tensor, a: int, b: int) -> Tensor:
        return (weights.permute(1, 2, 0, 3) @ self._of(x, b)).permute(2, 0, 1, 3)

    def add(self, x: Tensor, weights: Tensor, query: Tensor, a: int, b: int) -> None:
        self._of(x, b).add_(weights.permute(1, 2, 3, 0) @ query.permute(1, 2, 0, 3))

    def bias(self, bias: Bias, query: Tensor, blocks: int, a: int, b: int) -> Tensor:
        starts = torch.arange(blocks, device=query.device) * query.shape[2]
        found = bias(starts[None, self.first + a : self.first + b], starts[None, : self.end(b)])  # (1, H, g, K)
        return found.repeat(1, query.shape[1] // found.shape[1], 1, 1).permute(2, 1, 0, 3)


def _scores(query: Tensor, keys: Tensor, parts: Sequence[Part], bias: Bias | None, a: int, b: int) -> Tensor:
    """The scores of all parts side by side, (g, R, L, ΣK)."""
    found = []
    for part in parts:
        scores = part.scores(query, keys, a, b)
        if bias is not None:
            scores = scores + part.bias(bias, query, len(keys), a, b).to(scores.dtype)
        part.hide(scores, a, b)
        found.append(scores)
    return torch.cat(found, -1) if len(found) > 1 else found[0]


def _widths(parts: Sequence[Part], size: int, b: int) -> list[int]:
    """K of each part."""
    return [part.width(size, b) for part in parts]


def _read(weights: Tensor, values: Tensor, parts: Sequence[Part], a: int, b: int) -> Tensor:
    """P V, where the weights of all parts stand side by side, (g, R, L, d)."""
    apart = torch.split(weights, _widths(parts, weights.shape[2], b), -1)
    first, *rest = (part.read(own, values, a, b) for part, own in zip(parts, apart, strict=True))
    return sum(rest, start=first)


def _groups(query: Tensor, parts: Sequence[Part]) -> Iterator[tuple[int, int]]:
    """Blocks of queries a … b − 1 that are computed at once."""
    N, R, L = query.shape[:3]
    step = max(1, SCORES // max(1, R * L * sum(_widths(parts, L, N))))
    return ((a, min(a + step, N)) for a in range(0, N, step))


def _kept(weights: Tensor, dropout: float, seed: int, a: int) -> Tensor:
    """The mask of dropout of the blocks from a on, the same each time."""
    return dropout_mask(weights, dropout, seed ^ a).to(weights.device)


def _equation(
    query: Tensor, keys: Tensor, values: Tensor, parts: Sequence[Part], bias: Bias | None, dropout: float, seed: int
) -> Tensor:
    """In plain operations, with the dropout of a seed."""
    query, found = query / math.sqrt(query.shape[-1]), []
    for a, b in _groups(query, parts):
        weights = _scores(query[a:b], keys, parts, bias, a, b).softmax(-1)
        if dropout:
            weights = weights * _kept(weights, dropout, seed, a)
        found.append(_read(weights, values, parts, a, b))
    return torch.cat(found)


def _reference(
    query: Tensor, keys: Tensor, values: Tensor, parts: Sequence[Part], bias: Bias | None = None, dropout: float = 0.0
) -> Tensor:
    return _equation(query, keys, values, parts, bias, dropout, new_seed() if dropout else 0)


def _own_backward(
    query: Tensor, keys: Tensor, values: Tensor, parts: Sequence[Part], bias: Bias | None = None, dropout: float = 0.0
) -> Tensor:
    seed = new_seed() if dropout else 0
    y: Tensor = _Pattern.apply(query, keys, values, parts, bias, dropout, seed)  # type: ignore[no-untyped-call]
    return y


def _has_own_backward(
    query: Tensor, keys: Tensor, values: Tensor, parts: Sequence[Part], bias: Bias | None = None, dropout: float = 0.0
) -> bool:
    return plain(query, keys, values)


attend_pattern = Kernel("pattern_attention", _reference, Fast("own_backward", _own_backward, _has_own_backward))
"""Attention of blocks of queries (N, R, L, d) to the ``parts`` of the blocks of keys and values (W, R, L, d) →
(N, R, L, d).

(query, keys, values, parts, bias=None, dropout=0.0): ``bias`` is an additive bias of scores, by positions.
"""


class _Pattern(torch.autograd.Function):
    """A few blocks of queries at a time. The backward pass computes their weights again instead of keeping them."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        parts: Sequence[Part],
        bias: Bias | None,
        dropout: float,
        seed: int,
    ) -> Tensor:
        """Y; the logarithm of each softmax's sum is kept."""
        y, sums = torch.empty_like(query), query.new_empty(*query.shape[:3], 1)
        scale = 1 / math.sqrt(query.shape[-1])
        for a, b in _groups(query, parts):
            weights = _scores(query[a:b] * scale, keys, parts, bias, a, b)
            most = weights.amax(-1, keepdim=True)
            total = weights.sub_(most).exp_().sum(-1, keepdim=True)
            torch.add(most, total.log(), out=sums[a:b])
            if dropout:
                weights.mul_(_kept(weights, dropout, seed, a))
            torch.div(_read(weights, values, parts, a, b), total, out=y[a:b])
        ctx.save_for_backward(query, keys, values, y, sums)
        ctx.rest = parts, bias, dropout, seed
        return y

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> Any:
        """The gradients of queries, keys and values."""
        query, keys, values, y, sums = ctx.saved_tensors
        parts, bias, dropout, seed = ctx.rest
        if torch.is_grad_enabled():  # a gradient of this gradient is needed: autograd must see the operations

            def equation(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
                return _equation(q, k, v, parts, bias, dropout, seed)

            return *differentiable(equation, (query, keys, values), ctx.needs_input_grad[:3], above), *[None] * 4
        by_q, by_k, by_v = torch.empty_like(query), torch.zeros_like(keys), torch.zeros_like(values)
        by_y, scale = above[0].contiguous(), 1 / math.sqrt(query.shape[-1])
        for a, b in _groups(query, parts):
            own, change = query[a:b] * scale, by_y[a:b]
            weights = _scores(own, keys, parts, bias, a, b).sub_(sums[a:b]).exp_()  # P
            by_scores = torch.cat([part.scores(change, values, a, b) for part in parts], -1)
            dropped = weights
            if dropout:
                kept = _kept(weights, dropout, seed, a)
                dropped = weights * kept
                by_scores.mul_(kept)
            by_scores.sub_((change * y[a:b]).sum(-1, keepdim=True)).mul_(weights)
            widths = _widths(parts, query.shape[2], b)
            apart = (torch.split(one, widths, -1) for one in (dropped, by_scores))
            for part, p, s in zip(parts, *apart, strict=True):
                part.add(by_v, p, change, a, b)
                part.add(by_k, s, own, a, b)
            torch.mul(_read(by_scores, keys, parts, a, b), scale, out=by_q[a:b])
        return by_q, by_k, by_v, *[None] * 4
