"""Rows of different lengths one after the other: nothing is padded, so nothing is computed for padding.

    (B, T) with lengths 2 4 2   →   ● ● ● ● ● ● ● ●      rows of equal length side by side: here the first and the third
                                    └1┘ └3┘ └──2──┘

What is done at every place alike (embedding, norm, linear layers) sees M = Σ lengths places instead of B · T. Attention
takes the rows of one length at a time, a plain view of what lies there, and needs no mask; or, where a loop of ours
computes it, is told by ``Rows`` where each row's queries and keys are.

Legend: B rows, T tokens of the longest, M = Σ lengths, K places of a row that are asked for, D width.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from ensue.kernels.matmul import spare
from ensue.kernels.threads import LANES, with_numbers


@dataclass(frozen=True)
class Packing:
    """Where each token of (B, T) lies among M."""

    shape: tuple[int, int]
    """B, T."""
    order: Tensor
    """(B,): the rows, short ones first."""
    at: Tensor
    """(B,): where each of these begins."""
    held: Tensor
    """(B,): how many places each of these has."""
    index: Tensor
    """(M,): which of B · T a place holds."""
    groups: tuple[tuple[int, int], ...]
    """How many rows there are of each length, and the length."""

    @staticmethod
    def of(lengths: Tensor | None, rows: int, time: int, least: int = 1, spared: bool = False) -> Packing:
        """The packing of rows of these lengths; each keeps ``least`` places.

        A row of no tokens has to look somewhere, so that is one place or more. With ``spared`` the last of the longest
        rows keeps some more, which its last place fills, so that M is a number that comes again (``products.spare``).
        """
        if lengths is None:
            lengths = torch.full((rows,), time)
        held, order = lengths.clamp(min=least, max=max(time, least)).sort(stable=True)
        if spared:
            held[-1] += spare(int(held.sum()))
        sizes, counts = torch.unique_consecutive(held, return_counts=True)
        at = held.cumsum(0) - held
        within = torch.arange(int(held.sum())) - at.repeat_interleave(held)
        index = (order * time).repeat_interleave(held) + within.clamp(max=time - 1)
        return Packing((rows, time), order, at, held, index, tuple(zip(counts.tolist(), sizes.tolist())))

    @property
    def positions(self) -> Tensor:
        """(M,): the place of each token in its row."""
        return self.index % self.shape[1]

    def pack(self, x: Tensor) -> Tensor:
        """(B, T, …) → (M, …)."""
        return x.flatten(0, 1).index_select(0, self.index)

    def unpack(self, x: Tensor) -> Tensor:
        """(M, D) → (B, T, D), with zeros where nothing is."""
        rows, time = self.shape
        return x.new_zeros(rows * time, x.shape[1]).index_copy_(0, self.index, x).view(rows, time, -1)

    def pick(self, x: Tensor, places: Tensor) -> Tensor:
        """(M, D) at ``places`` (B, K) → (B, K, D), rows in the packed order."""
        index = self.at[:, None] + places.index_select(0, self.order)
        return x.index_select(0, index.flatten()).view(*index.shape, -1)

    def restore(self, x: Tensor) -> Tensor:
        """(B, …) in the packed order → in the order rows came."""
        return torch.empty_like(x).index_copy_(0, self.order, x)


@dataclass(frozen=True)
class Rows:
    """Rows of queries and the rows of keys that each looks at, as the loops of attention take them."""

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

    @property
    def longest(self) -> int:
        """The most queries or keys of a row."""
        return max(self.queries, self.keys)

    @staticmethod
    def of(queries: Packing, keys: Packing, lengths: Tensor) -> Rows:
        """Each row of one packing looks at that of another, of which it sees ``lengths`` (B,) places, perhaps none.

        What a row keeps beyond the time is spare, and nobody's to see.
        """
        begin, count = queries.restore(queries.at), queries.restore(queries.held)
        begin_keys, count_keys = keys.restore(keys.at), keys.restore(keys.held)
        return Rows._made(begin, count, begin_keys, count_keys, lengths.clamp(max=keys.shape[1]))

    @staticmethod
    def padded(rows: int, queries: int, keys: int, lengths: Tensor | None = None) -> Rows:
        """All rows are as long as the longest."""
        return Rows._whole(rows, queries, keys) if lengths is None else Rows._padded(rows, queries, keys, lengths)

    @staticmethod
    @lru_cache(maxsize=64)
    def _whole(rows: int, queries: int, keys: int) -> Rows:
        """All see everything, as every layer of a model asks for again."""
        with with_numbers():
            return Rows._padded(rows, queries, keys, torch.full((rows,), keys))

    @staticmethod
    def _padded(rows: int, queries: int, keys: int, seen: Tensor) -> Rows:
        row = torch.arange(rows)
        count, count_keys = torch.full((rows,), queries), torch.full((rows,), keys)
        return Rows._made(row * queries, count, row * keys, count_keys, seen.long())

    @staticmethod
    def _made(begin: Tensor, count: Tensor, begin_keys: Tensor, count_keys: Tensor, seen: Tensor) -> Rows:
        seen = seen.clamp(min=0).minimum(count_keys)  # a loop trusts it
        weights = (count + (LANES - 1)).div(LANES, rounding_mode="floor") * LANES * count_keys
        after = weights.cumsum(0)
        table = torch.stack([begin, count, begin_keys, count_keys, seen, after - weights], dim=1)
        least = int(torch.minimum(count, count_keys).min())
        return Rows(table, int(count.max()), int(count_keys.max()), int(after[-1]), least)
