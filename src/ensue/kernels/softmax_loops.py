"""Softmax: of columns of attention scores, forward and backward, of one row of scores, and of rows of logits.

Legend: S keys, T queries; M rows, C columns.
"""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic

from ensue.kernels.compile import loop, next_chunk, pointer
from ensue.kernels.simd import INT32, INT64, INTS, LANES, Vectors, constant
from ensue.kernels.threads import PART

LOWEST = np.finfo(np.float32).min


@intrinsic  # type: ignore[untyped-decorator]
def softmax_columns(context: Any, scores: Any, size: Any, column: Any, first: Any, causal: Any, scale: Any) -> Any:
    """The softmax of LANES columns of scores (S, T) from ``column`` on, over their first ``size`` rows, in place.

    Scores are multiplied by ``scale``, which has log₂ e in it. With ``causal`` 1, not 0, column t sees rows up to
    ``first`` + t.
    """

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        v = Vectors(builder)
        scores, stride = cgutils.unpack_tuple(builder, arguments[0])
        size, column, first, causal = arguments[1:5]
        scale, base = v.broadcast(arguments[5]), builder.add(scores, builder.mul(column, INT64(4)))
        columns = builder.add(v.broadcast(builder.trunc(builder.add(column, first), INT32)), INTS(list(range(LANES))))
        top, total = v.variable(-math.inf), v.variable(0.0)

        def seen(s: Any) -> Any:
            row = v.broadcast(builder.trunc(builder.mul(s, causal), INT32))
            visible = builder.icmp_signed(">=", columns, row)
            return builder.select(visible, v.load(base, (stride, s)), constant(-math.inf))

        with cgutils.for_range(builder, size) as row:
            builder.store(v.maximum(seen(row.index), builder.load(top)), top)
        with cgutils.for_range(builder, size) as row:
            power = v.exp2(v.mul(builder.fsub(seen(row.index), builder.load(top)), scale))
            v.store(power, base, (stride, row.index))
            builder.store(v.add(builder.load(total), power), total)
        share = builder.fdiv(constant(1.0), builder.load(total))
        with cgutils.for_range(builder, size) as row:
            v.store(v.mul(v.load(base, (stride, row.index)), share), base, (stride, row.index))
        return context.get_dummy_value()

    return types.void(scores, size, column, first, causal, scale), make


@intrinsic  # type: ignore[untyped-decorator]
def softmax_columns_backward(context: Any, weights: Any, by: Any, size: Any, column: Any, scale: Any) -> Any:
    """∂S = P ∘ (∂P − Σ P ∘ ∂P) · scale of LANES columns from ``column`` on, written over ∂P."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (p, p_row), (by, by_row) = (cgutils.unpack_tuple(builder, one) for one in arguments[:2])
        v, size, column = Vectors(builder), arguments[2], arguments[3]
        scale = v.broadcast(arguments[4])
        p, by = (builder.add(one, builder.mul(column, INT64(4))) for one in (p, by))
        total = v.variable(0.0)
        with cgutils.for_range(builder, size) as row:
            share = v.mul(v.load(p, (p_row, row.index)), v.load(by, (by_row, row.index)))
            builder.store(v.add(builder.load(total), share), total)
        with cgutils.for_range(builder, size) as row:
            rest = builder.fsub(v.load(by, (by_row, row.index)), builder.load(total))
            v.store(v.mul(v.mul(rest, v.load(p, (p_row, row.index))), scale), by, (by_row, row.index))
        return context.get_dummy_value()

    return types.void(weights, by, size, column, scale), make


@intrinsic  # type: ignore[untyped-decorator]
def softmax_row(context: Any, scores: Any, size: Any, scale: Any) -> Any:
    """2^(scale · (x − max x)) of ``size`` floats, in place, and their sum. Floats after them, up to whole lanes, become
    0."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        scores, size, scale = arguments
        v = Vectors(builder)
        steps = builder.udiv(builder.add(size, INT64(LANES - 1)), INT64(LANES))
        scale, last = v.broadcast(scale), v.broadcast(builder.trunc(size, INT32))
        top, total = v.variable(-math.inf), v.variable(0.0)

        def seen(step: Any) -> Any:
            first = v.broadcast(builder.trunc(builder.mul(step, INT64(LANES)), INT32))
            real = builder.icmp_signed("<", builder.add(first, INTS(list(range(LANES)))), last)
            return builder.select(real, v.load(scores, (INT64(LANES), step)), constant(-math.inf))

        with cgutils.for_range(builder, steps) as step:
            builder.store(v.maximum(seen(step.index), builder.load(top)), top)
        best = v.reduce_max(builder.load(top))
        with cgutils.for_range(builder, steps) as step:
            power = v.exp2(v.mul(builder.fsub(seen(step.index), best), scale))
            v.store(power, scores, (INT64(LANES), step.index))
            builder.store(v.add(builder.load(total), power), total)
        return v.reduce_sum(builder.load(total))

    return types.float32(scores, size, scale), make


@intrinsic  # type: ignore[untyped-decorator]
def cap_row(context: Any, scores: Any, size: Any, scale: Any, bound: Any) -> Any:
    """bound · tanh(x · scale · (ln 2) / 2) of ``size`` floats, in place; floats after them, up to whole lanes, change
    too.

    tanh(u) = ±(1 − 2^(−s)) / (1 + 2^(−s)), s = 2 |u| / ln 2: such powers never overflow.
    """

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        scores, size, scale, bound = arguments
        v, one = Vectors(builder), constant(1.0)
        scale, bound = v.broadcast(scale), v.broadcast(bound)
        steps = builder.udiv(builder.add(size, INT64(LANES - 1)), INT64(LANES))
        with cgutils.for_range(builder, steps) as step:
            x = v.load(scores, (INT64(LANES), step.index))
            above = builder.fcmp_ordered(">", x, constant(0.0))
            power = v.exp2(v.mul(builder.select(above, builder.fneg(x), x), scale))
            y = v.mul(bound, builder.fdiv(builder.fsub(one, power), v.add(one, power)))
            v.store(builder.select(above, y, builder.fneg(y)), scores, (INT64(LANES), step.index))
        return context.get_dummy_value()

    return types.void(scores, size, scale, bound), make


@intrinsic  # type: ignore[untyped-decorator]
def max_of_vectors(context: Any, base: Any, count: Any) -> Any:
    """The largest element of ``count`` consecutive vectors."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        v, top = Vectors(builder), Vectors(builder).variable(-math.inf)
        with cgutils.for_range(builder, arguments[1]) as step:
            builder.store(v.maximum(v.load(arguments[0], (INT64(LANES), step.index)), builder.load(top)), top)
        return v.first(v.reduce_max(builder.load(top)))

    return types.float32(base, count), make


@intrinsic  # type: ignore[untyped-decorator]
def exp_of_vectors(context: Any, base: Any, count: Any, top: Any) -> Any:
    """exp(z − top) of ``count`` consecutive vectors, in place, and their sum."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        v, total, top = Vectors(builder), Vectors(builder).variable(0.0), Vectors(builder).broadcast(arguments[2])
        with cgutils.for_range(builder, arguments[1]) as step:
            z = builder.fsub(v.load(arguments[0], (INT64(LANES), step.index)), top)
            power = v.exp2(v.mul(z, constant(1 / math.log(2))))
            v.store(power, arguments[0], (INT64(LANES), step.index))
            builder.store(v.add(builder.load(total), power), total)
        lanes = [builder.extract_element(builder.load(total), INT32(lane)) for lane in range(LANES)]
        return reduce(v.add, lanes)

    return types.float32(base, count, top), make


@loop
def exp_rows(a: Any) -> None:
    """exp(z − max z) of each row of z (M, C), in place; max z and the sum, (M,) each."""
    M, C = a[1], a[2]
    z = carray(pointer(a[3]), (M, C), np.float32)
    tops, sums = carray(pointer(a[4]), (M,), np.float32), carray(pointer(a[5]), (M,), np.float32)
    whole = C // LANES
    start = next_chunk(a) * PART
    while start < M:
        for r in range(start, min(start + PART, M)):
            row = np.int64(a[3] + 4 * r * C)
            top = max(max_of_vectors(row, whole), LOWEST)  # a row of −∞ stays −∞
            for i in range(whole * LANES, C):
                top = z[r, i] if z[r, i] > top else top
            total = exp_of_vectors(row, whole, top)
            for i in range(whole * LANES, C):
                z[r, i] = np.exp(z[r, i] - top)
                total += z[r, i]
            tops[r], sums[r] = top, total
        start = next_chunk(a) * PART
