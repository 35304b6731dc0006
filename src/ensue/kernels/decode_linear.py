"""Linear layers of a tape: parts of outputs are taken, multiplied by ensue.kernels.decode_matmul, and finished in one
pass.

    y_r = f(s_r s_j Σ_i Ŵ_ji x̂_ri + b_j),   s_r = s_j = 1 where nothing is in eight bits

They are compiled into ensue.kernels.decode_loops. Legend: R rows.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from ensue.kernels import decode_program as layout
from ensue.kernels.compile import call, inner, next_chunk, pointer
from ensue.kernels.decode_matmul import (
    BESIDE,
    BOTH,
    HIGH,
    NEAR,
    PANEL,
    PANELS,
    SOME,
    TALL,
    eighths_of_many,
    eighths_of_one,
    eighths_of_some,
    many_rows,
    one_row,
    some_rows,
    sum_of,
)
from ensue.kernels.simd import INDEX, LANES, NUMBER, SHORT, VECTOR, WHOLE, Vectors, constant
from ensue.kernels.tiles import transpose_tile

WIDTH, PART, FEW = 24, 32, 16
assert (layout.WIDTH, layout.PART, layout.ROWS[0]) == (WIDTH, PART, FEW)  # kept on disk too
assert PART % (PANELS * PANEL) == 0 and PART % max(BESIDE.values()) == 0
LAST = LANES - 1
ACROSS = PART + LANES
"""How far rows of sums are apart."""
one_vector, two_vectors, three_vectors, four_vectors, five_vectors = many_rows
OUTPUTS, MOST = tuple(BESIDE.get(vectors, 0) for vectors in range(6)), max(BESIDE)

Floats = NDArray[np.float32]
f32 = np.float32


def _activated(v: Vectors, u: Any, kind: Any) -> Any:
    """f(u): 1 the tanh form of GELU, 2 relu, else u.

    ½ u (1 + tanh w) = u / (1 + e^{−2w}),  w = √(2/π) (u + 0.044715 u³); e is only ever raised to what is not positive.
    """
    b, zero, one = v.builder, constant(0.0), constant(1.0)
    found = v.held(0.0)
    b.store(u, found)
    with b.if_then(b.icmp_signed("==", kind, WHOLE(1))):
        cube = v.times(v.times(u, u), v.times(u, constant(0.044715)))
        w = v.times(v.add(u, cube), constant(2 * math.sqrt(2 / math.pi) / math.log(2)))
        positive = b.fcmp_ordered(">=", w, zero)
        power = v.power_of_two(b.select(positive, b.fsub(zero, w), w))
        share = b.fdiv(b.select(positive, one, power), v.add(one, power))
        b.store(v.times(u, share), found)
    with b.if_then(b.icmp_signed("==", kind, WHOLE(2))):
        b.store(b.select(b.fcmp_ordered("<", u, zero), zero, u), found)  # NaN stays
    return b.load(found)


@intrinsic  # type: ignore[untyped-decorator]
def finish(context: Any, to: Any, sums: Any, rows: Any, given: Any, kind: Any, add: Any) -> Any:
    """y_r = f(s_r s_j Σ_r + b_j), or y_r plus that, of all outputs of a part.

    ``to`` and ``sums`` are addresses and how far rows are apart; ``given`` the addresses of s_j, s_r and b_j, 0 where
    there are none.
    """

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (to, to_row), (sums, sums_row) = (cgutils.unpack_tuple(builder, one) for one in arguments[:2])
        rows, _, kind, add = arguments[2:]
        scale, sizes, bias = cgutils.unpack_tuple(builder, arguments[3])
        v, places = Vectors(builder), [(WHOLE(LANES), WHOLE(p)) for p in range(PART // LANES)]
        scales, shifts = [v.held(1.0) for _ in places], [v.held(0.0) for _ in places]
        for address, held in ((scale, scales), (bias, shifts)):
            with builder.if_then(builder.icmp_signed("!=", address, WHOLE(0))):
                for place, room in zip(places, held):
                    builder.store(v.load(address, place), room)
        eight, adds = (builder.icmp_signed("!=", one, WHOLE(0)) for one in (scale, add))
        size = cgutils.alloca_once(builder, NUMBER)
        builder.store(NUMBER(1.0), size)
        with cgutils.for_range(builder, rows) as r:
            with builder.if_then(eight):
                builder.store(builder.load(v.at(NUMBER, sizes, (WHOLE(1), r.index)), align=4), size)
            by = v.all(builder.load(size))
            for place, scaled, shift in zip(places, scales, shifts):
                total = v.times(v.load(sums, (sums_row, r.index), place), v.times(builder.load(scaled), by))
                found = v.held(0.0)
                builder.store(_activated(v, v.add(total, builder.load(shift)), kind), found)
                with builder.if_then(adds):
                    builder.store(v.add(builder.load(found), v.load(to, (to_row, r.index), place)), found)
                v.store(builder.load(found), to, (to_row, r.index), place)
        return context.get_dummy_value()

    return types.void(to, sums, rows, given, kind, add), make


@intrinsic  # type: ignore[untyped-decorator]
def halved(context: Any, into: Any, x: Any, count: Any, most: Any) -> Any:
    """x̂ = x / s in sixteen bits, s = max|x| / most; s, which is no number where one of x is none."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        into, x, count, most = arguments
        v = Vectors(builder)
        steps, whole = builder.udiv(count, WHOLE(LANES)), ir.VectorType(ir.IntType(16), LANES)
        top, broken = v.held(1e-30), v.held(0.0)
        with cgutils.for_range(builder, steps) as step:
            own = v.load(x, (WHOLE(LANES), step.index))
            size = builder.select(builder.fcmp_ordered("<", own, constant(0.0)), builder.fneg(own), own)
            builder.store(v.larger(size, builder.load(top)), top)
            builder.store(builder.fadd(builder.load(broken), builder.fmul(own, constant(0.0))), broken)
        largest = v.largest(builder.load(top))
        most = v.all(builder.sitofp(most, NUMBER))
        by = builder.fdiv(most, largest)
        near = builder.module.declare_intrinsic(f"llvm.rint.v{LANES}f32", (), ir.FunctionType(VECTOR, [VECTOR]))
        with cgutils.for_range(builder, steps) as step:
            own = builder.call(near, [builder.fmul(v.load(x, (WHOLE(LANES), step.index)), by)])
            there = builder.add(into, builder.mul(step.index, WHOLE(2 * LANES)))
            numbers = builder.trunc(builder.fptosi(own, INDEX), whole)
            builder.store(numbers, builder.inttoptr(there, whole.as_pointer()), align=2)
        size = builder.extract_element(builder.fdiv(largest, most), SHORT(0))
        return builder.fadd(size, sum_of(v, builder.load(broken)))

    return types.float32(into, x, count, most), make


@inner
def taken(left: int) -> int:
    """How many of so many vectors of rows are computed side by side: none is to be left alone."""
    if MOST == 1 or left <= MOST:
        return min(left, MOST)
    return 3 if left == 6 else 4


@inner
def prepared(i: Any, rows: int, high: int, second: int, own: int, shared: int, barrier: int) -> Any:
    """What a product is given in place of x, and where the sizes of its rows are.

    In eight bits that is x̂, which each thread makes of a few rows for itself, so that nobody has to wait; else, of many
    rows, x turned over, (in, R).
    """
    inputs, eight, given, most = i[2], i[7] != 0, i[9], i[11]
    many = rows > FEW
    place = shared if many else own
    sizes, x = carray(pointer(place), (high,), np.float32), place + 4 * high
    if eight:
        r = next_chunk(second) if many else 0
        while r < rows:
            sizes[r] = halved(x + 2 * r * inputs, given + 4 * r * inputs, inputs, most)
            r = next_chunk(second) if many else r + 1
    elif many:
        c = next_chunk(second) * LANES
        while c < inputs:
            for r in range(0, high, LANES):
                transpose_tile((x + 4 * (c * high + r), high), (given + 4 * (r * inputs + c), inputs), LAST)
            c = next_chunk(second) * LANES
    else:
        x = given
    if many:
        call(barrier)
    return x, place


@inner
def of_few(to: int, weights: int, x: int, rows: int, inputs: int, outputs: int, at: Any) -> None:
    """Σ_i W_ji x_ri of the outputs of a part, a few rows at once and the rest one by one.

    A tile that would reach beyond the last output begins sooner, and does some again.
    """
    start, stop = at
    r = 0
    while r + BOTH <= rows:
        for first in range(start, stop, TALL):
            j = min(first, outputs - TALL)
            here, there, own = to + 4 * (r * ACROSS + j - start), weights + 4 * j * inputs, x + 4 * r * inputs
            some_rows(here, ACROSS, there, inputs, own, inputs)
        r += BOTH
    while r < rows:
        for first in range(start, stop, LANES):
            j = min(first, outputs - LANES)
            here, there, own = to + 4 * (r * ACROSS + j - start), weights + 4 * j * inputs, x + 4 * r * inputs
            one_row(here, ACROSS, there, inputs, own, inputs)
        r += 1


@inner
def of_many(to: int, columns: Floats, weights: int, x: int, high: int, inputs: int) -> None:
    """The same of many rows and all outputs of a part, from x that is turned over; what comes out is turned back."""
    columns[:] = f32(0)
    first = np.int64(columns.ctypes.data)
    for i in range(0, inputs, NEAR):
        r, left, count = 0, high // LANES, min(NEAR, inputs - i)
        while left:
            vectors = taken(left)
            for j in range(0, PART, OUTPUTS[vectors]):
                here, there, own = first + 4 * (j * high + r), weights + 4 * (j * inputs + i), x + 4 * (i * high + r)
                if vectors == 1:
                    one_vector(here, high, there, inputs, own, count)
                elif vectors == 2:
                    two_vectors(here, high, there, inputs, own, count)
                elif vectors == 3:
                    three_vectors(here, high, there, inputs, own, count)
                elif vectors == 4:
                    four_vectors(here, high, there, inputs, own, count)
                else:
                    five_vectors(here, high, there, inputs, own, count)
            r, left = r + vectors * LANES, left - vectors
    for r in range(0, high, LANES):
        for t in range(0, PART, LANES):
            transpose_tile((to + 4 * (r * ACROSS + t), ACROSS), (first + 4 * (t * high + r), high), LAST)


@inner
def of_eighths(to: int, weights: int, x: int, rows: int, inputs: int) -> None:
    """Σ_i Ŵ_ji x̂_ri of the outputs of a part."""
    pairs, r = inputs // 2, 0
    while r + HIGH <= rows:
        for t in range(0, PART, PANELS * PANEL):
            eighths_of_many(to + 4 * (r * ACROSS + t), ACROSS, weights + t * inputs, x + 2 * r * inputs, pairs, pairs)
        r += HIGH
    while r + SOME <= rows:
        for t in range(0, PART, PANELS * PANEL):
            eighths_of_some(to + 4 * (r * ACROSS + t), ACROSS, weights + t * inputs, x + 2 * r * inputs, pairs, pairs)
        r += SOME
    while r < rows:
        for t in range(0, PART, PANEL):
            eighths_of_one(to + 4 * (r * ACROSS + t), ACROSS, weights + t * inputs, x + 2 * r * inputs, pairs, pairs)
        r += 1


@inner
def finish_last(i: Any, rows: int, found: Any, room: Floats, at: Any) -> None:
    """``finish`` of the last outputs, fewer than a part: in room for a whole one, from which they are copied."""
    (to, sizes), (start, stop) = found, at
    count, outputs = stop - start, i[3]
    y = carray(pointer(i[10]), (rows, outputs), np.float32)
    scales, shifts, mine = room[:PART], room[PART : 2 * PART], room[2 * PART :]
    for t in range(count):
        if i[7]:
            scales[t] = carray(pointer(i[7]), (outputs,), np.float32)[start + t]
        shifts[t] = carray(pointer(i[8]), (outputs,), np.float32)[start + t] if i[8] else f32(0)
    for r in range(rows):
        for t in range(count):
            mine[r * PART + t] = y[r, start + t]
    here = np.int64(mine.ctypes.data)
    given = (np.int64(scales.ctypes.data) if i[7] else 0, sizes, np.int64(shifts.ctypes.data))
    finish((here, PART), (to, ACROSS), rows, given, i[4], i[5])
    for r in range(rows):
        for t in range(count):
            y[r, start + t] = mine[r * PART + t]


@inner
def linear(i: Any, rows: int, counter: int, room: Floats, own: int, shared: int, barrier: int) -> None:
    """y = f(W x + b), or y + f(W x + b), (R, in) → (R, out); with scales W is in eight bits."""
    inputs, outputs, kind, add, weights, scale, bias, y = i[2], i[3], i[4], i[5], i[6], i[7], i[8], i[10]
    high = (rows + LANES - 1) // LANES * LANES
    sums = room[: high * ACROSS].reshape(high, ACROSS)  # a tile that begins sooner than its part needs LANES before it
    to, columns = np.int64(sums.ctypes.data) + 4 * LANES, room[high * ACROSS : high * (ACROSS + PART)]
    last = room[high * (ACROSS + PART) : high * (ACROSS + 2 * PART) + 2 * PART]
    x, sizes = prepared(i, rows, high, counter + 8 * (WIDTH - 2), own, shared, barrier)
    start = next_chunk(counter) * PART
    while start < outputs:
        stop = min(start + PART, outputs)
        if scale:
            of_eighths(to, weights + start * inputs, x, rows, inputs)
        elif rows > FEW and stop - start == PART:
            of_many(to, columns, weights + 4 * start * inputs, x, high, inputs)
        else:
            of_few(to, weights, i[9], rows, inputs, outputs, (start, stop))
        if stop - start == PART:
            given = (scale + 4 * start if scale else 0, sizes, bias + 4 * start if bias else 0)
            finish((y + 4 * start, outputs), (to, ACROSS), rows, given, kind, add)
        else:
            finish_last(i, rows, (to, sizes), last, (start, stop))
        start = next_chunk(counter) * PART
