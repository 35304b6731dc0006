"""Matrix states as instructions of a decode program point to them.

A step reads the state S of linear attention and writes S′ to other memory, so S stays as it is: it may be shared or
belong to a graph, and a step that was interrupted can be repeated from it. While one text goes on, two memories take
turns: S″ is written where S was, which has been consumed by then, and nothing is allocated. Like caches
(ensue.kernels.decode_caches), states that are alike are kept as numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Rotation = tuple[Tensor, Tensor]
Sums = tuple[Tensor, Tensor | None]
"""S (R, H, d, d), and z (R, H, d) where there is one; float32 and contiguous."""


@dataclass(eq=False)
class MatrixView:
    """The state of a layer before a step, and where the step writes the state after it."""

    before: Sums
    after: Sums
    rotation: Rotation | None = None
    """cos and sin (R or 1, 1, d) of the rows' rotary positions."""


@dataclass(frozen=True)
class MatrixGroup:
    """Instructions that update states of one shape at the same rotary positions. It holds no states."""

    numbers: NDArray[np.int64]
    """Of the instructions."""
    addresses: NDArray[np.int64]
    """(instructions, 4): of S, S′, z and z′; 0 where there is no z."""
    shape: tuple[int, ...]
    """Of S."""
    rotation: Rotation | None
    columns: int = 0
    """Columns of a cache: there is none."""

    def rotated(self, rotation: Rotation | None) -> MatrixGroup:
        """The same states at other positions."""
        return replace(self, rotation=rotation)

    def later(self, spare: Sequence[Sums]) -> MatrixGroup:
        """The states after a step; the next one writes to ``spare``."""
        addresses = self.addresses[:, [1, 1, 3, 3]]
        addresses[:, 1::2] = [[*map(_address, one)] for one in spare]
        return replace(self, addresses=addresses, rotation=None)

    def write(self, code: NDArray[np.int64], rows: int) -> None:
        """Write the states into the instructions ``code`` of a program that runs on ``rows`` rows."""
        R, H, d, _ = self.shape
        assert rows == R and (code[self.numbers, 2:4] == (H, d)).all()
        code[self.numbers, 9:13] = self.addresses
        angles = (0, 0, 0)
        if self.rotation is not None:
            cos, sin = self.rotation
            angles = cos.data_ptr(), sin.data_ptr(), cos.shape[-1] if len(cos) > 1 else 0
        code[self.numbers, 14:17] = angles


def group_matrices(numbers: Sequence[int], views: Sequence[MatrixView]) -> list[MatrixGroup]:
    """Group what the instructions ``numbers`` update."""
    kinds: dict[tuple[int, ...], tuple[list[int], list[MatrixView]]] = {}
    for number, view in zip(numbers, views, strict=True):
        own, others = kinds.setdefault((id(view.rotation), *view.before[0].shape), ([], []))
        own.append(number)
        others.append(view)
    return [_group(own, alike) for own, alike in kinds.values()]


def new_memory(sums: Sums) -> Sums:
    """Memory for what comes after ``sums``."""
    matrix, total = (None if one is None else torch.empty_like(one) for one in sums)
    assert matrix is not None
    return matrix, total


def _address(x: Tensor | None) -> int:
    """Where a tensor is; 0 for none."""
    return 0 if x is None else x.data_ptr()


def _group(numbers: list[int], views: list[MatrixView]) -> MatrixGroup:
    addresses = []
    for view in views:
        for one in (*view.before, *view.after):
            assert one is None or (one.dtype == torch.float32 and one.is_contiguous())
        (matrix, total), (to_matrix, to_total) = view.before, view.after
        assert matrix.shape == to_matrix.shape and matrix.shape[2] == matrix.shape[3]
        assert total is None or to_total is None or total.shape == to_total.shape == matrix.shape[:3]
        addresses.append([*map(_address, (matrix, to_matrix, total, to_total))])
    shape, rotation = tuple(views[0].before[0].shape), views[0].rotation
    return MatrixGroup(np.array(numbers), np.array(addresses), shape, rotation)
