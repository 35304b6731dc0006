"""Softmax, compiled like ensue.kernels.elementwise_loops: of columns of scores in the cache, both ways, and of rows of
logits.

Legend: S keys, T queries; M rows, C columns.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic

from ensue.kernels.compile import loop, next_chunk, pointer
from ensue.kernels.simd import INDEX, LANES, SHORT, WHOLE, Vectors, constant
from ensue.kernels.threads import PART

LOWEST = np.finfo(np.float32).min


@intrinsic  # type: ignore[untyped-decorator]
def soften(context: Any, scores: Any, size: Any, column: Any, first: Any, causal: Any, scale: Any) -> Any:
    """The softmax of LANES columns of scores (S, T) from ``column`` on, over their first ``size`` rows, in place.

    With ``causal`` 1, not 0, column t sees the rows up to ``first`` + t.
    """

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        v = Vectors(builder)
        scores, stride = cgutils.unpack_tuple(builder, arguments[0])
        size, column, first, causal = arguments[1:5]
        scale, base = v.all(arguments[5]), builder.add(scores, builder.mul(column, WHOLE(4)))
        columns = builder.add(v.all(builder.trunc(builder.add(column, first), SHORT)), INDEX(list(range(LANES))))
        top, total = v.held(-math.inf), v.held(0.0)

        def seen(s: Any) -> Any:
            own = v.all(builder.trunc(builder.mul(s, causal), SHORT))
            return builder.select(
                builder.icmp_signed(">=", columns, own), v.load(base, (stride, s)), constant(-math.inf)
            )

        with cgutils.for_range(builder, size) as row:
            builder.store(v.larger(seen(row.index), builder.load(top)), top)
        with cgutils.for_range(builder, size) as row:
            power = v.power_of_two(v.times(builder.fsub(seen(row.index), builder.load(top)), scale))
            v.store(power, base, (stride, row.index))
            builder.store(v.add(builder.load(total), power), total)
        share = builder.fdiv(constant(1.0), builder.load(total))
        with cgutils.for_range(builder, size) as row:
            v.store(v.times(v.load(base, (stride, row.index)), share), base, (stride, row.index))
        return context.get_dummy_value()

    return types.void(scores, size, column, first, causal, scale), make


@intrinsic  # type: ignore[untyped-decorator]
def soften_backward(context: Any, weights: Any, by: Any, size: Any, column: Any, scale: Any) -> Any:
    """∂S = P ∘ (∂P − Σ P ∘ ∂P) · scale of LANES columns from ``column`` on, written over ∂P."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (p, p_row), (by, by_row) = (cgutils.unpack_tuple(builder, one) for one in arguments[:2])
        v, size, column, scale = Vectors(builder), arguments[2], arguments[3], Vectors(builder).all(arguments[4])
        p, by = (builder.add(one, builder.mul(column, WHOLE(4))) for one in (p, by))
        total = v.held(0.0)
        with cgutils.for_range(builder, size) as row:
            share = v.times(v.load(p, (p_row, row.index)), v.load(by, (by_row, row.index)))
            builder.store(v.add(builder.load(total), share), total)
        with cgutils.for_range(builder, size) as row:
            rest = builder.fsub(v.load(by, (by_row, row.index)), builder.load(total))
            v.store(v.times(v.times(rest, v.load(p, (p_row, row.index))), scale), by, (by_row, row.index))
        return context.get_dummy_value()

    return types.void(weights, by, size, column, scale), make


@intrinsic  # type: ignore[untyped-decorator]
def largest(context: Any, base: Any, count: Any) -> Any:
    """The largest of ``count`` vectors that lie one after the other."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        v, top = Vectors(builder), Vectors(builder).held(-math.inf)
        with cgutils.for_range(builder, arguments[1]) as step:
            builder.store(v.larger(v.load(arguments[0], (WHOLE(LANES), step.index)), builder.load(top)), top)
        held = builder.load(top)
        lanes = [builder.extract_element(held, SHORT(lane)) for lane in range(LANES)]
        found = lanes[0]
        for one in lanes[1:]:
            found = v.larger(one, found)
        return found

    return types.float32(base, count), make


@intrinsic  # type: ignore[untyped-decorator]
def powers(context: Any, base: Any, count: Any, top: Any) -> Any:
    """exp(z − top) of ``count`` vectors, written over them; their sum."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        v, total, top = Vectors(builder), Vectors(builder).held(0.0), Vectors(builder).all(arguments[2])
        with cgutils.for_range(builder, arguments[1]) as step:
            z = builder.fsub(v.load(arguments[0], (WHOLE(LANES), step.index)), top)
            power = v.power_of_two(v.times(z, constant(1 / math.log(2))))
            v.store(power, arguments[0], (WHOLE(LANES), step.index))
            builder.store(v.add(builder.load(total), power), total)
        held = builder.load(total)
        found = builder.extract_element(held, SHORT(0))
        for lane in range(1, LANES):
            found = v.add(found, builder.extract_element(held, SHORT(lane)))
        return found

    return types.float32(base, count, top), make


@loop
def soften_rows(a: Any) -> None:
    """exp(z − max z) of each row of z (M, C), written over it; max z and the sum, (M,) each."""
    M, C = a[1], a[2]
    z = carray(pointer(a[3]), (M, C), np.float32)
    tops, sums = carray(pointer(a[4]), (M,), np.float32), carray(pointer(a[5]), (M,), np.float32)
    whole = C // LANES
    start = next_chunk(a) * PART
    while start < M:
        for r in range(start, min(start + PART, M)):
            row = np.int64(a[3] + 4 * r * C)
            top = max(largest(row, whole), LOWEST)  # where all are −∞ they stay it
            for i in range(whole * LANES, C):
                top = z[r, i] if z[r, i] > top else top
            total = powers(row, whole, top)
            for i in range(whole * LANES, C):
                z[r, i] = np.exp(z[r, i] - top)
                total += z[r, i]
            tops[r], sums[r] = top, total
        start = next_chunk(a) * PART
