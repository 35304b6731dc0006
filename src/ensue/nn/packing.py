"""Rows of different lengths one after the other: nothing is padded, so nothing is computed for padding.

    (B, T) with lengths 2 4 2   →   ● ● ● ● ● ● ● ●      rows of equal length side by side: here the first and the third
                                    └1┘ └3┘ └──2──┘

What is done at every place alike (embedding, norm, linear layers) sees M = Σ lengths places instead of B · T. Attention
takes the rows of one length at a time, a plain view of what lies there, and needs no mask.

Legend: B rows, T tokens of the longest, M = Σ lengths, K places of a row that are asked for, D width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """Where each token of (B, T) lies among M."""

    shape: tuple[int, int]
    """B, T."""
    order: Tensor
    """(B,): the rows, short ones first."""
    at: Tensor
    """(B,): where each of these begins."""
    index: Tensor
    """(M,): which of B · T a place holds."""
    groups: tuple[tuple[int, int], ...]
    """How many rows there are of each length, and the length."""

    @staticmethod
    def of(lengths: Tensor | None, rows: int, time: int) -> Packing:
        """The packing of rows of these lengths; a row of no tokens keeps one, for it has to look somewhere."""
        if lengths is None:
            lengths = torch.full((rows,), time)
        held, order = lengths.clamp(min=1).sort(stable=True)
        sizes, counts = torch.unique_consecutive(held, return_counts=True)
        at = held.cumsum(0) - held
        within = torch.arange(int(held.sum())) - at.repeat_interleave(held)
        index = (order * time).repeat_interleave(held) + within
        return Packing((rows, time), order, at, index, tuple(zip(counts.tolist(), sizes.tolist())))

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
