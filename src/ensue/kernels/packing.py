"""Packed rows: rows of different lengths one after the other, so that nothing is computed for padding.

    (B, T) with lengths 2 4 2   →   ● ● ● ● ● ● ● ●      rows of equal length side by side: here the first and the third
                                    └1┘ └3┘ └──2──┘

Layers that treat every position alike (embedding, norm, linear layers) see M = Σ lengths positions instead of B · T.
Attention takes the rows of one length at a time, which are a plain view and need no mask; a compiled loop takes a
``AttentionRows``, which says where each row's queries and keys are.

Legend: B rows, T tokens of the longest, M = Σ lengths, K positions of a row that are picked, D width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from ensue.kernels.matmul import spare
from ensue.kernels.threads import LANES, real_tensors


@dataclass(frozen=True)
class Packing:
    """Where each token of (B, T) lies among M."""

    shape: tuple[int, int]
    """B, T."""
    order: Tensor
    """(B,): the rows, short ones first."""
    at: Tensor
    """(B,): where each of them begins."""
    counts: Tensor
    """(B,): how many positions each of them has."""
    index: Tensor
    """(M,): the index into B · T of each packed token."""
    groups: tuple[tuple[int, int], ...]
    """The number of rows of each length, and the length."""

    @staticmethod
    def of(lengths: Tensor | None, rows: int, time: int, least: int = 1, spared: bool = False) -> Packing:
        """The packing of rows of these lengths; each keeps at least ``least`` positions.

        An empty row has to attend to something, so that is at least one. With ``spared`` the longest row is padded with
        its last token, so that few different M occur (see ``matmul.spare``).
        """
        if lengths is None:
            lengths = torch.full((rows,), time)
        counts, order = lengths.clamp(min=least, max=max(time, least)).sort(stable=True)
        if spared:
            counts[-1] += spare(int(counts.sum()))
        sizes, numbers = torch.unique_consecutive(counts, return_counts=True)
        at = counts.cumsum(0) - counts
        within = torch.arange(int(counts.sum())) - at.repeat_interleave(counts)
        index = (order * time).repeat_interleave(counts) + within.clamp(max=time - 1)
        return Packing((rows, time), order, at, counts, index, tuple(zip(numbers.tolist(), sizes.tolist())))

    @property
    def positions(self) -> Tensor:
        """(M,): the position of each token in its row."""
        return self.index % self.shape[1]

    def pack(self, x: Tensor) -> Tensor:
        """(B, T, …) → (M, …)."""
        return x.flatten(0, 1).index_select(0, self.index)

    def unpack(self, x: Tensor) -> Tensor:
        """(M, D) → (B, T, D), with zeros at padding."""
        rows, time = self.shape
        return x.new_zeros(rows * time, x.shape[1]).index_copy_(0, self.index, x).view(rows, time, -1)

    def pick(self, x: Tensor, positions: Tensor) -> Tensor:
        """(M, D) at ``positions`` (B, K) → (B, K, D), rows in the packed order."""
        index = self.at[:, None] + positions.index_select(0, self.order)
        return x.index_select(0, index.flatten()).view(*index.shape, -1)

    def restore(self, x: Tensor) -> Tensor:
        """(B, …) in the packed order → in the original order."""
        return torch.empty_like(x).index_copy_(0, self.order, x)


@dataclass(frozen=True)
class AttentionRows:
    """Rows of queries and the rows of keys that each attends to, as attention loops take them."""

    table: Tensor
    """(B, 6), int64: where a row's queries begin and how many they are, where its keys begin and how many they are, how
    many of these it sees, and how many weights the rows before it have in each head."""
    queries: int
    """The most queries of a row."""
    keys: int
    """The most keys of a row."""
    weights: int
    """How many weights of attention there are in each head."""
    least: int
    """The fewest queries or keys of a row."""
    groups: tuple[tuple[int, int], ...] = ()
    """Where rows attend to themselves and are packed: the number of rows of each length, and the length."""

    @property
    def longest(self) -> int:
        """The most queries or keys of a row."""
        return max(self.queries, self.keys)

    @staticmethod
    def of(queries: Packing, keys: Packing, lengths: Tensor) -> AttentionRows:
        """Each row of one packing attends to that of another, of which it sees the first ``lengths`` (B,) positions.

        Positions beyond the packing's time are padding and are never seen.
        """
        begin, count = queries.restore(queries.at), queries.restore(queries.counts)
        begin_keys, count_keys = keys.restore(keys.at), keys.restore(keys.counts)
        made = AttentionRows._made(begin, count, begin_keys, count_keys, lengths.clamp(max=keys.shape[1]))
        return replace(made, groups=keys.groups) if queries is keys else made

    @staticmethod
    def padded(rows: int, queries: int, keys: int, lengths: Tensor | None = None) -> AttentionRows:
        """Rows that are padded to the longest."""
        return (
            AttentionRows._whole(rows, queries, keys)
            if lengths is None
            else AttentionRows._padded(rows, queries, keys, lengths)
        )

    @staticmethod
    @lru_cache(maxsize=64)
    def _whole(rows: int, queries: int, keys: int) -> AttentionRows:
        """The same without lengths, cached: every layer of a model needs it."""
        with real_tensors():
            return AttentionRows._padded(rows, queries, keys, torch.full((rows,), keys))

    @staticmethod
    def _padded(rows: int, queries: int, keys: int, seen: Tensor) -> AttentionRows:
        row = torch.arange(rows)
        count, count_keys = torch.full((rows,), queries), torch.full((rows,), keys)
        return AttentionRows._made(row * queries, count, row * keys, count_keys, seen.long())

    @staticmethod
    def _made(begin: Tensor, count: Tensor, begin_keys: Tensor, count_keys: Tensor, seen: Tensor) -> AttentionRows:
        seen = seen.clamp(min=0).minimum(count_keys)  # loops do not check it
        weights = (count + (LANES - 1)).div(LANES, rounding_mode="floor") * LANES * count_keys
        after = weights.cumsum(0)
        table = torch.stack([begin, count, begin_keys, count_keys, seen, after - weights], dim=1)
        least = int(torch.minimum(count, count_keys).min())
        return AttentionRows(table, int(count.max()), int(count_keys.max()), int(after[-1]), least)
