"""Caches as instructions of a decode program point to them: those that are alike are described once.

The caches of a model's layers mostly differ in the addresses of keys and values alone, and from one step to the next
only in what all layers share: how many columns a row sees, and the rotation of its position. So a group of them is kept
as numbers, and writing a step's instructions touches no cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.kernels.decode_program import CacheView

CACHED = (torch.float32, torch.bfloat16)
"""Types of keys and values that a program can read."""


@dataclass(frozen=True)
class CacheGroup:
    """Instructions that attend to caches which are alike. It holds no keys or values."""

    numbers: NDArray[np.int64]
    """Of the instructions."""
    keys: NDArray[np.int64]
    values: NDArray[np.int64]
    """Addresses."""
    heads: int
    """Key–value heads of a cache."""
    columns: int
    """Capacity of a cache."""
    strides: tuple[int, int, int]
    """Distances between rows, heads and columns, in numbers."""
    short: bool
    """True for bfloat16."""
    each: int
    lengths: Tensor
    index: Tensor | None
    seen: Tensor | None
    rotation: tuple[Tensor, Tensor] | None
    """As in ``CacheView``."""

    def rotated(self, rotation: tuple[Tensor, Tensor] | None) -> CacheGroup:
        """The same caches at other positions."""
        return replace(self, rotation=rotation)

    def later(self, lengths: Tensor) -> CacheGroup:
        """The same caches when rows see other numbers of columns."""
        return replace(self, lengths=lengths, rotation=None)

    def write(self, code: NDArray[np.int64], rows: int) -> None:
        """Write the caches into the instructions ``code`` of a program that runs on ``rows`` rows."""
        assert len(self.lengths) == rows and (self.seen is None or len(self.seen) == rows)
        assert (code[self.numbers, 23] == self.heads).all()
        at, rotation = self.numbers, self.rotation
        code[at, 9], code[at, 10] = self.keys, self.values
        angles = (0, 0, 0)
        if rotation is not None:
            cos, sin = rotation
            angles = cos.data_ptr(), sin.data_ptr(), cos.shape[-1] if len(cos) > 1 else 0
        seen = (0, 0) if self.seen is None else (self.seen.data_ptr(), self.seen.shape[1])
        row, head, step = self.strides
        code[at, 11:14] = row, head, self.lengths.data_ptr()
        code[at, 15:23] = *angles, 0 if self.index is None else self.index.data_ptr(), step, self.each, *seen
        code[at, 24] = self.short


def group_caches(numbers: Sequence[int], views: Sequence[CacheView]) -> list[CacheGroup]:
    """Group what the instructions ``numbers`` attend to."""
    kinds: list[tuple[CacheView, list[int], list[CacheView]]] = []
    for number, view in zip(numbers, views, strict=True):
        for first, own, others in kinds:
            if view.alike(first):
                own.append(number)
                others.append(view)
                break
        else:
            kinds.append((view, [number], [view]))
    return [_group(first, own, others) for first, own, others in kinds]


def _group(view: CacheView, numbers: list[int], views: list[CacheView]) -> CacheGroup:
    keys, values, lengths, seen = view.keys, view.values, view.lengths, view.seen
    assert keys.stride() == values.stride() and keys.stride(-1) == 1
    assert keys.dtype == values.dtype and keys.dtype in CACHED and lengths.dtype == torch.int64
    assert lengths.is_contiguous() and (seen is None or seen.is_contiguous())
    row, head, step, _ = keys.stride()
    return CacheGroup(
        numbers=np.array(numbers),
        keys=np.array([one.keys.data_ptr() for one in views]),
        values=np.array([one.values.data_ptr() for one in views]),
        heads=keys.shape[1],
        columns=keys.shape[2],
        strides=(row, head, step),
        short=keys.dtype == torch.bfloat16,
        each=view.each,
        lengths=lengths,
        index=view.index,
        seen=seen,
        rotation=view.rotation,
    )
