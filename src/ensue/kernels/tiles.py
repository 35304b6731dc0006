"""Multiplying and transposing small matrices that are in a core's cache.

A product is computed in tiles of ROWS by LANES floats, whose sums stay in registers (see ensue.kernels.simd).

Legend: a matrix is a pair (address, row stride in floats); the left operand of a product is a triple that also has the
column stride.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from ensue.kernels.compile import inner, loop, next_chunk
from ensue.kernels.simd import FLOAT, INT64, INTS, LANES, ROWS, Vectors

Floats = NDArray[np.float32]


def _tile(context: Any, builder: Any, arguments: Any, adds: bool) -> Any:
    """One tile of a product, which overwrites the result or is added to it."""
    (to, to_row), (left, left_row, left_step), (right, right_row) = (
        cgutils.unpack_tuple(builder, one) for one in arguments[:3]
    )
    v = Vectors(builder)
    sums = [v.variable(0.0) for _ in range(ROWS)]
    if adds:
        for r, total in enumerate(sums):
            builder.store(v.load(to, (to_row, INT64(r))), total)
    with cgutils.for_range(builder, arguments[3]) as step:
        row = v.load(right, (right_row, step.index))
        for r, total in enumerate(sums):
            x = builder.load(v.at(FLOAT, left, (left_row, INT64(r)), (left_step, step.index)))
            builder.store(v.add(builder.load(total), v.mul(v.broadcast(x), row)), total)
    for r, total in enumerate(sums):
        v.store(builder.load(total), to, (to_row, INT64(r)))
    return context.get_dummy_value()


@intrinsic  # type: ignore[untyped-decorator]
def matmul_tile(context: Any, to: Any, left: Any, right: Any, count: Any) -> Any:
    """A tile of A B, ROWS by LANES; ``count`` is the inner dimension."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _tile(context, builder, arguments, adds=False)

    return types.void(to, left, right, count), make


@intrinsic  # type: ignore[untyped-decorator]
def matmul_tile_add(context: Any, to: Any, left: Any, right: Any, count: Any) -> Any:
    """The same, added to the result."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _tile(context, builder, arguments, adds=True)

    return types.void(to, left, right, count), make


@inner
def matmul(to: Any, left: Any, right: Any, rows: int, columns: int, count: int) -> None:
    """A B, (rows, count) (count, columns), of at least ROWS rows; the last tile may compute some rows again."""
    for first in range(0, rows, ROWS):
        r = min(first, rows - ROWS)
        for c in range(0, columns, LANES):
            matmul_tile(
                (to[0] + 4 * (r * to[1] + c), to[1]),
                (left[0] + 4 * r * left[1], left[1], left[2]),
                (right[0] + 4 * c, right[1]),
                count,
            )


@inner
def matmul_add(to: Any, left: Any, right: Any, rows: int, columns: int, count: int) -> None:
    """A B, added to the result; all three matrices are whole tiles."""
    for r in range(0, rows, ROWS):
        for c in range(0, columns, LANES):
            matmul_tile_add(
                (to[0] + 4 * (r * to[1] + c), to[1]),
                (left[0] + 4 * r * left[1], left[1], left[2]),
                (right[0] + 4 * c, right[1]),
                count,
            )


@inner
def matrix(x: Floats) -> Any:
    """An array as a matrix."""
    return np.int64(x.ctypes.data), np.int64(x.shape[1])


@inner
def as_left(x: Any) -> Any:
    """A matrix as the left operand."""
    return x[0], x[1], np.int64(1)


@inner
def as_left_transposed(x: Any) -> Any:
    """A matrix, transposed, as the left operand."""
    return x[0], np.int64(1), x[1]


@inner
def whole_rows(count: int) -> int:
    """``count`` rounded up to a multiple of ROWS."""
    return (count + ROWS - 1) // ROWS * ROWS


@inner
def whole_lanes(count: int) -> int:
    """``count`` rounded up to a multiple of LANES."""
    return (count + LANES - 1) // LANES * LANES


@intrinsic  # type: ignore[untyped-decorator]
def transpose_tile(context: Any, to: Any, x: Any, last: Any) -> Any:
    """xᵀ of LANES by LANES floats; rows after number ``last`` are read from it instead.

    Interleaving the first and the second half of the rows, log₂ LANES times, transposes the tile.
    """

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (to, to_row), (x, x_row) = (cgutils.unpack_tuple(builder, one) for one in arguments[:2])
        v, half = Vectors(builder), LANES // 2
        rows = []
        for r in range(LANES):
            there = builder.icmp_signed("<", INT64(r), arguments[2])
            rows.append(v.load(x, (x_row, builder.select(there, INT64(r), arguments[2]))))
        sides = [INTS([lane // 2 + first + lane % 2 * LANES for lane in range(LANES)]) for first in (0, half)]
        for _ in range(LANES.bit_length() - 1):
            pairs = zip(rows[:half], rows[half:])
            rows = [builder.shuffle_vector(one, other, side) for one, other in pairs for side in sides]
        for r, row in enumerate(rows):
            v.store(row, to, (to_row, INT64(r)))
        return context.get_dummy_value()

    return types.void(to, x, last), make


@inner
def transpose(x: Any, into: Floats, time: int) -> None:
    """xᵀ of (T, d), into (d, T rounded up to whole lanes); columns beyond T are undefined."""
    to = matrix(into)
    for t in range(0, time, LANES):
        for i in range(0, len(into), LANES):
            transpose_tile((to[0] + 4 * (i * to[1] + t), to[1]), (x[0] + 4 * (t * x[1] + i), x[1]), time - 1 - t)


@loop
def transpose_matrix(a: Any) -> None:
    """xᵀ of (M, D), LANES columns at a time; M, D ≥ LANES, and the last tiles overlap others."""
    M, D, x, to = a[1], a[2], a[3], a[4]
    chunk = next_chunk(a)
    while chunk * LANES < D:
        i = min(chunk * LANES, D - LANES)
        for first in range(0, M, LANES):
            t = min(first, M - LANES)
            transpose_tile((to + 4 * (i * M + t), M), (x + 4 * (t * D + i), D), np.int64(LANES - 1))
        chunk = next_chunk(a)
