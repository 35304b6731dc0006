"""Small matrices in a core's cache, compiled like ensue.kernels.elementwise_loops: their products and turning them
over; and turning
over one of any size.

A product is made in pieces, ROWS by LANES numbers, whose sums stay in registers (see ensue.kernels.simd).

Legend: a matrix is an address and how far its rows are apart, in numbers; one on the left of a product also says how
far its columns are apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from ensue.kernels.compile import inner, loop, next_chunk
from ensue.kernels.simd import INDEX, LANES, NUMBER, ROWS, WHOLE, Vectors

Floats = NDArray[np.float32]


def _tile(context: Any, builder: Any, arguments: Any, adds: bool) -> Any:
    """A piece of a product of matrices, ROWS by LANES, written over what is there, or added to it."""
    (to, to_row), (left, left_row, left_step), (right, right_row) = (
        cgutils.unpack_tuple(builder, one) for one in arguments[:3]
    )
    v = Vectors(builder)
    sums = [v.held(0.0) for _ in range(ROWS)]
    if adds:
        for r, held in enumerate(sums):
            builder.store(v.load(to, (to_row, WHOLE(r))), held)
    with cgutils.for_range(builder, arguments[3]) as step:
        row = v.load(right, (right_row, step.index))
        for r, held in enumerate(sums):
            one = builder.load(v.at(NUMBER, left, (left_row, WHOLE(r)), (left_step, step.index)))
            builder.store(v.add(builder.load(held), v.times(v.all(one), row)), held)
    for r, held in enumerate(sums):
        v.store(builder.load(held), to, (to_row, WHOLE(r)))
    return context.get_dummy_value()


@intrinsic  # type: ignore[untyped-decorator]
def tile(context: Any, to: Any, left: Any, right: Any, count: Any) -> Any:
    """A piece of a product of matrices, ROWS by LANES; the left one also says how far its columns are apart."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _tile(context, builder, arguments, adds=False)

    return types.void(to, left, right, count), make


@intrinsic  # type: ignore[untyped-decorator]
def tile_added(context: Any, to: Any, left: Any, right: Any, count: Any) -> Any:
    """The same, added to what is there."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _tile(context, builder, arguments, adds=True)

    return types.void(to, left, right, count), make


@inner
def product(to: Any, left: Any, right: Any, rows: int, columns: int, count: int) -> None:
    """A B, (rows, count) (count, columns), tile by tile; the last tile of rows may do some of them again."""
    for first in range(0, rows, ROWS):
        r = min(first, rows - ROWS)
        for c in range(0, columns, LANES):
            tile(
                (to[0] + 4 * (r * to[1] + c), to[1]),
                (left[0] + 4 * r * left[1], left[1], left[2]),
                (right[0] + 4 * c, right[1]),
                count,
            )


@inner
def address(x: Floats) -> Any:
    """An array as what ``product`` takes."""
    return np.int64(x.ctypes.data), np.int64(x.shape[1])


@inner
def along(x: Any) -> Any:
    """A matrix on the left of a product."""
    return x[0], x[1], np.int64(1)


@inner
def across(x: Any) -> Any:
    """A matrix transposed over, on the left of a product."""
    return x[0], np.int64(1), x[1]


@inner
def product_added(to: Any, left: Any, right: Any, rows: int, columns: int, count: int) -> None:
    """A B added to what is there; all three are whole tiles."""
    for r in range(0, rows, ROWS):
        for c in range(0, columns, LANES):
            tile_added(
                (to[0] + 4 * (r * to[1] + c), to[1]),
                (left[0] + 4 * r * left[1], left[1], left[2]),
                (right[0] + 4 * c, right[1]),
                count,
            )


@inner
def rounded(count: int) -> int:
    """``count`` rounded up to whole tiles."""
    return (count + ROWS - 1) // ROWS * ROWS


@inner
def lanes(time: int) -> int:
    """``time`` rounded up to whole lanes."""
    return (time + LANES - 1) // LANES * LANES


@intrinsic  # type: ignore[untyped-decorator]
def transpose_tile(context: Any, to: Any, x: Any, last: Any) -> Any:
    """xᵀ of LANES by LANES numbers; of a matrix with fewer rows the last, number ``last``, is taken again.

    Putting numbers of the first and the second half of the rows by turns side by side, log₂ LANES times, turns it over.
    """

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (to, to_row), (x, x_row) = (cgutils.unpack_tuple(builder, one) for one in arguments[:2])
        v, half = Vectors(builder), LANES // 2
        rows = []
        for r in range(LANES):
            there = builder.icmp_signed("<", WHOLE(r), arguments[2])
            rows.append(v.load(x, (x_row, builder.select(there, WHOLE(r), arguments[2]))))
        sides = [INDEX([lane // 2 + first + lane % 2 * LANES for lane in range(LANES)]) for first in (0, half)]
        for _ in range(LANES.bit_length() - 1):
            pairs = zip(rows[:half], rows[half:])
            rows = [builder.shuffle_vector(one, other, side) for one, other in pairs for side in sides]
        for r, row in enumerate(rows):
            v.store(row, to, (to_row, WHOLE(r)))
        return context.get_dummy_value()

    return types.void(to, x, last), make


@inner
def transpose(x: Any, into: Floats, time: int) -> None:
    """xᵀ of (T, d), into (d, T rounded up to lanes); what is beyond T is nobody's."""
    to = address(into)
    for t in range(0, time, LANES):
        for i in range(0, len(into), LANES):
            transpose_tile((to[0] + 4 * (i * to[1] + t), to[1]), (x[0] + 4 * (t * x[1] + i), x[1]), time - 1 - t)


@loop
def transpose_matrix(a: Any) -> None:
    """xᵀ of (M, D), LANES columns at a time; no side is shorter than LANES, and the last squares overlap others."""
    M, D, x, to = a[1], a[2], a[3], a[4]
    part = next_chunk(a)
    while part * LANES < D:
        i = min(part * LANES, D - LANES)
        for first in range(0, M, LANES):
            t = min(first, M - LANES)
            transpose_tile((to + 4 * (i * M + t), M), (x + 4 * (t * D + i), D), np.int64(LANES - 1))
        part = next_chunk(a)
