"""Layout: where the tokens of a batch lie.

A batch is padded, (B, T, D) with the number of real tokens of each row, or packed, (M, D) with rows one after the other
(``ensue.kernels.packing``). Layers get one ``Layout`` that says which, and at which positions its tokens stand.

Legend: B rows, T tokens of the longest row, M tokens of all rows, K positions of a row that are picked.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from torch import Tensor

from ensue.kernels.autograd_guards import visible
from ensue.kernels.packing import AttentionRows, Packing

Value = TypeVar("Value")


@dataclass(frozen=True)
class Layout:
    """Lengths, positions and packing of a batch."""

    lengths: Tensor | None = None
    """(B,), the real tokens of each row; None: all of them."""
    positions: Tensor | None = None
    """(1 or B, T), the positions of tokens in their texts; (M,) of packed ones. None: the mixer's own state knows."""
    packing: Packing | None = None
    """How rows lie one after the other; None: they are padded."""
    _kept: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What layers computed from the positions."""

    @staticmethod
    def packed(lengths: Tensor | None, packing: Packing) -> Layout:
        """The layout of packed rows, each at positions 0, 1, …"""
        return Layout(lengths, packing.positions, packing)

    @cached_property
    def rows(self) -> AttentionRows:
        """Queries and keys of packed rows, as kernels take them."""
        assert self.packing is not None
        lengths = self.packing.restore(self.packing.counts) if self.lengths is None else self.lengths
        return AttentionRows.of(self.packing, self.packing, lengths)

    def at(self, positions: Tensor) -> Layout:
        """The same with positions."""
        return replace(self, positions=positions)

    def once(self, key: Hashable, compute: Callable[[], Value]) -> Value:
        """What ``compute`` makes of the positions: the first layer that asks computes it, those after it share it."""
        if visible():  # a compiler has to see where a value comes from
            return compute()
        if key not in self._kept:
            self._kept[key] = compute()
        value: Value = self._kept[key]
        return value

    def pad(self, x: Tensor) -> tuple[Tensor, Layout]:
        """Packed tokens (M, D) as padded ones (B, T, D), and their layout."""
        assert self.packing is not None
        return self.packing.unpack(x), Layout(self.lengths)

    def pick(self, x: Tensor, index: Tensor) -> Tensor:
        """Tokens at ``index`` (B, K) of each row, → (B, K, D); packed rows come in the packed order."""
        if self.packing is not None:
            return self.packing.pick(x, index)
        return x.gather(1, index[..., None].expand(-1, -1, x.shape[-1]))


PADDED = Layout()
"""Rows without padding, whose positions their state knows."""
