"""A few rows times weights that lie in panels, for recurrent layers: each step multiplies the same weights again.

A panel is PANEL columns of a matrix, row after row, so that a step reads weights in a line. A tile of up to 12 rows by
PANEL columns is summed up in registers (see ensue.kernels.simd).

Legend: a matrix is a pair (address, row stride in floats).
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ensue.kernels.compile import inner
from ensue.kernels.simd import FLOAT, INT64, LANES, Vectors

PANEL = 2 * LANES
"""Columns of a panel."""


def _tile(rows: int) -> Any:
    """A tile of a product: (rows, count) times a panel (count, PANEL)."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (to, to_row), (left, left_row) = (cgutils.unpack_tuple(builder, one) for one in arguments[:2])
        panel, last, count = arguments[2:]
        v, starts = Vectors(builder), []
        for r in range(rows):
            there = builder.select(builder.icmp_signed("<", INT64(r), last), INT64(r), last)
            starts.append(builder.add(left, builder.mul(builder.mul(there, left_row), INT64(4))))
        sums = [[v.variable(0.0) for _ in range(2)] for _ in range(rows)]
        with cgutils.for_range(builder, count) as step:
            weights = [v.load(panel, (INT64(PANEL), step.index), (INT64(LANES), INT64(half))) for half in range(2)]
            for start, totals in zip(starts, sums):
                x = v.broadcast(builder.load(v.at(FLOAT, start, (INT64(1), step.index))))
                for weight, total in zip(weights, totals):
                    builder.store(v.add(builder.load(total), v.mul(x, weight)), total)
        for r, totals in enumerate(sums):
            for half, total in enumerate(totals):
                v.store(builder.load(total), to, (to_row, INT64(r)), (INT64(LANES), INT64(half)))
        return context.get_dummy_value()

    return make


@intrinsic  # type: ignore[untyped-decorator]
def tile_of_12(context: Any, to: Any, left: Any, panel: Any, last: Any, count: Any) -> Any:
    """12 rows; rows after number ``last`` are read from it instead. ``count`` is the inner dimension."""
    return types.void(to, left, panel, last, count), _tile(12)


@intrinsic  # type: ignore[untyped-decorator]
def tile_of_8(context: Any, to: Any, left: Any, panel: Any, last: Any, count: Any) -> Any:
    """The same for 8 rows."""
    return types.void(to, left, panel, last, count), _tile(8)


@intrinsic  # type: ignore[untyped-decorator]
def tile_of_4(context: Any, to: Any, left: Any, panel: Any, last: Any, count: Any) -> Any:
    """The same for 4 rows."""
    return types.void(to, left, panel, last, count), _tile(4)


@inner
def multiply(to: Any, left: Any, panel: int, rows: int, count: int) -> None:
    """Rows (rows, count) times a panel (count, PANEL); up to three rows of ``to`` after the last are written too."""
    r = 0
    while r < rows:
        there, x = (to[0] + 4 * r * to[1], to[1]), (left[0] + 4 * r * left[1], left[1])
        if rows - r > 8:
            tile_of_12(there, x, panel, rows - r - 1, count)
            r += 12
        elif rows - r > 4:
            tile_of_8(there, x, panel, rows - r - 1, count)
            r += 8
        else:
            tile_of_4(there, x, panel, rows - r - 1, count)
            r += 4
