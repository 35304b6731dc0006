"""What a tape is played with, compiled like ensue.nn.loops: norms, products of its rows, attention to a memory.

All threads go through the same instructions; within one each takes parts of the work until none is left, and then they
wait for each other. The products themselves are in ensue.nn.tape_products.

Legend: R rows, D width, H heads, d width of a head, S places of a memory that are seen. An instruction is WIDTH whole
numbers, addresses among them; the first is what is to be done, the second how many parts are taken already.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from ensue.nn import tape as layout
from ensue.nn.loops import ARGUMENT, pointer, take
from ensue.nn.loops import OPTIONS as USUAL
from ensue.nn.tape_products import (
    BESIDE,
    BOTH,
    HIGH,
    NEAR,
    PANEL,
    PANELS,
    SOME,
    TALL,
    alone,
    eighths_of_many,
    eighths_of_one,
    eighths_of_some,
    many_rows,
    one_row,
    some_rows,
    sum_of,
    turn_over,
)
from ensue.nn.vectors import INDEX, LANES, NUMBER, SHORT, VECTOR, WHOLE, Vectors, constant

MADE_OF = "a6746f43fdc2"
"""The files whose pieces are compiled into these loops: what is compiled is kept until this file changes."""

NORM, LINEAR, ATTEND, WIDTH = 1, 2, 3, 24
assert (NORM, LINEAR, ATTEND, WIDTH) == (layout.NORM, layout.LINEAR, layout.ATTEND, layout.WIDTH)  # kept on disk too
PART, FEW = layout.PART, layout.ROWS[0]
assert PART % (PANELS * PANEL) == 0 and PART % max(BESIDE.values()) == 0
ACROSS = PART + LANES
"""How far rows of sums are apart."""
one_vector, two_vectors, three_vectors, four_vectors, five_vectors = many_rows
OUTPUTS, MOST = tuple(BESIDE.get(vectors, 0) for vectors in range(6)), max(BESIDE)

OPTIONS = {**USUAL, "error_model": "numpy"}
"""As other loops, but what is divided by 0 is no error: a thread that left would let the others wait for ever."""

Floats = NDArray[np.float32]
f32 = np.float32
NOTHING = ir.VoidType()


def piece(function: Any) -> Any:
    """Compile a piece of the loop."""
    return numba.njit(**OPTIONS)(function)


def whole(function: Any) -> Any:
    """Compile the loop."""
    return numba.cfunc(types.void(ARGUMENT), **OPTIONS)(function)


@intrinsic  # type: ignore[untyped-decorator]
def next_part(context: Any, address: Any) -> Any:
    """The number at an address, which is one more from then on: nobody else gets it."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        there = builder.inttoptr(arguments[0], WHOLE.as_pointer())
        return builder.atomic_rmw("add", there, WHOLE(1), "seq_cst")

    return types.int64(types.int64), make


@intrinsic  # type: ignore[untyped-decorator]
def call(context: Any, address: Any) -> Any:
    """Call a C function that takes and gives nothing."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function = builder.inttoptr(arguments[0], ir.FunctionType(NOTHING, []).as_pointer())
        builder.call(function, [])
        return context.get_dummy_value()

    return types.void(types.int64), make


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
def soften(context: Any, scores: Any, size: Any, scale: Any) -> Any:
    """exp(scale · (x − max x)) of ``size`` numbers, in place; the sum. What follows, up to whole lanes, becomes 0."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        scores, size, scale = arguments
        v = Vectors(builder)
        steps = builder.udiv(builder.add(size, WHOLE(LANES - 1)), WHOLE(LANES))
        scale, last = v.all(scale), v.all(builder.trunc(size, SHORT))
        top, total = v.held(-math.inf), v.held(0.0)

        def seen(step: Any) -> Any:
            first = v.all(builder.trunc(builder.mul(step, WHOLE(LANES)), SHORT))
            real = builder.icmp_signed("<", builder.add(first, INDEX(list(range(LANES)))), last)
            return builder.select(real, v.load(scores, (WHOLE(LANES), step)), constant(-math.inf))

        with cgutils.for_range(builder, steps) as step:
            builder.store(v.larger(seen(step.index), builder.load(top)), top)
        best = v.largest(builder.load(top))
        with cgutils.for_range(builder, steps) as step:
            power = v.power_of_two(v.times(builder.fsub(seen(step.index), best), scale))
            v.store(power, scores, (WHOLE(LANES), step.index))
            builder.store(v.add(builder.load(total), power), total)
        return sum_of(v, builder.load(total))

    return types.float32(scores, size, scale), make


def _mixing(columns: int) -> Any:
    """share · Σ_n p_n v_{s_n} of so many vectors of numbers side by side; s_n are the places that are seen."""

    @intrinsic  # type: ignore[untyped-decorator]
    def mix(context: Any, to: Any, values: Any, step: Any, weights: Any, places: Any, size: Any, share: Any) -> Any:
        def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            to, values, step, weights, places, size, share = arguments
            v = Vectors(builder)
            sums = [v.held(0.0) for _ in range(columns)]
            with cgutils.for_range(builder, size) as n:
                p = v.all(builder.load(v.at(NUMBER, weights, (WHOLE(1), n.index))))
                s = builder.load(v.at(WHOLE, places, (WHOLE(2), n.index)))  # a place has the size of two numbers
                for c, held in enumerate(sums):
                    x = v.load(values, (step, s), (WHOLE(LANES), WHOLE(c)))
                    builder.store(v.add(builder.load(held), v.times(p, x)), held)
            for c, held in enumerate(sums):
                v.store(v.times(builder.load(held), v.all(share)), to, (WHOLE(LANES), WHOLE(c)))
            return context.get_dummy_value()

        return types.void(to, values, step, weights, places, size, share), make

    return mix


mix_wide, mix_one = _mixing(4), _mixing(1)


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


@piece
def norm(i: Any, rows: int, counter: int) -> None:
    """LN(x) of each row, (R, D)."""
    D = i[2]
    x, z = carray(pointer(i[3]), (rows, D), np.float32), carray(pointer(i[4]), (rows, D), np.float32)
    weight, bias = carray(pointer(i[5]), (D,), np.float32), carray(pointer(i[6]), (D,), np.float32)
    epsilon = carray(pointer(i[7]), (1,), np.float32)[0]
    r = next_part(counter)
    while r < rows:
        total, square = f32(0), f32(0)
        for c in range(D):
            total += x[r, c]
        mean = total / f32(D)
        for c in range(D):
            square += (x[r, c] - mean) * (x[r, c] - mean)
        scale = f32(1) / np.sqrt(square / f32(D) + epsilon)
        for c in range(D):
            z[r, c] = (x[r, c] - mean) * scale * weight[c] + bias[c]
        r = next_part(counter)


@piece
def taken(left: int) -> int:
    """How many of so many vectors of rows are computed side by side: none is to be left alone."""
    if MOST == 1 or left <= MOST:
        return min(left, MOST)
    return 3 if left == 6 else 4


@piece
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
        r = next_part(second) if many else 0
        while r < rows:
            sizes[r] = halved(x + 2 * r * inputs, given + 4 * r * inputs, inputs, most)
            r = next_part(second) if many else r + 1
    elif many:
        c = next_part(second) * LANES
        while c < inputs:
            for r in range(0, high, LANES):
                turn_over(x + 4 * (c * high + r), high, given + 4 * (r * inputs + c), inputs)
            c = next_part(second) * LANES
    else:
        x = given
    if many:
        call(barrier)
    return x, place


@piece
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


@piece
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
            turn_over(to + 4 * (r * ACROSS + t), ACROSS, first + 4 * (t * high + r), high)


@piece
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


@piece
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


@piece
def linear(i: Any, rows: int, counter: int, room: Floats, own: int, shared: int, barrier: int) -> None:
    """y = f(W x + b), or y + f(W x + b), (R, in) → (R, out); with scales W is in eight bits."""
    inputs, outputs, kind, add, weights, scale, bias, y = i[2], i[3], i[4], i[5], i[6], i[7], i[8], i[10]
    high = (rows + LANES - 1) // LANES * LANES
    sums = room[: high * ACROSS].reshape(high, ACROSS)  # a tile that begins sooner than its part needs LANES before it
    to, columns = np.int64(sums.ctypes.data) + 4 * LANES, room[high * ACROSS : high * (ACROSS + PART)]
    last = room[high * (ACROSS + PART) : high * (ACROSS + 2 * PART) + 2 * PART]
    x, sizes = prepared(i, rows, high, counter + 8 * (WIDTH - 2), own, shared, barrier)
    start = next_part(counter) * PART
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
        start = next_part(counter) * PART


@piece
def turned(to: Floats, x: int, cos: int, sin: int, d: int) -> None:
    """x (d,), turned by angles whose cosines and sines are given; as it is where none are."""
    own = carray(pointer(x), (d,), np.float32)
    if cos == 0:
        for c in range(d):
            to[c] = own[c]
        return
    by, beside = carray(pointer(cos), (d,), np.float32), carray(pointer(sin), (d,), np.float32)
    half = d // 2
    for c in range(half):
        to[c] = own[c] * by[c] - own[c + half] * beside[c]
    for c in range(half, d):
        to[c] = own[c] * by[c] + own[c - half] * beside[c]


@piece
def scored(scores: int, places: Any, keys: int, step: int, q: int, d: int, size: int) -> int:
    """q · k_s of the first ``size`` places; how many those are."""
    s = 0
    while s + LANES <= size:
        one_row(scores + 4 * s, 0, keys + 4 * s * step, step, q, d)
        s += LANES
    while s < size:
        alone(scores + 4 * s, 0, keys + 4 * s * step, step, q, d)
        s += 1
    for s in range(size):
        places[s] = s
    return size


@piece
def scored_where(scores: int, places: Any, keys: int, step: int, q: int, d: int, seen: Any, own: int) -> int:
    """q · k_s of the places that are seen, and of a row's own new one; how many those are."""
    n = 0
    for s in range(len(seen)):
        if seen[s]:
            places[n] = s
            n += 1
    places[n] = own
    for at in range(n + 1):
        alone(scores + 4 * at, 0, keys + 4 * places[at] * step, step, q, d)
    return n + 1


@piece
def attend(i: Any, rows: int, counter: int, room: Floats, places: Any) -> None:
    """softmax(q Kᵀ / √d) V of each row and head, after its new key and value have joined the memory.

    Where k rows share a memory (see ensue.nn.attention), each has its own new place in it and sees what is its own.
    """
    H, d, add = i[2], i[3], i[4] != 0
    query, key, value, row = i[5], i[6], i[7], i[8]  # addresses, and how far rows are apart
    keys, values, memory, head, step = i[9], i[10], i[11], i[12], i[19]
    lengths = carray(pointer(i[13]), (rows,), np.int64)
    out, cos, sin, turn = i[14], i[15], i[16], i[17]
    index, moved = carray(pointer(i[18]), (rows,), np.int64), i[18] != 0
    each, shared, written = i[20], i[21] != 0, i[22]
    seen = carray(pointer(i[21]), (rows, written), np.uint8)
    q, scores = room[:d], room[d:]
    at_q, at_scores, at_places = np.int64(q.ctypes.data), np.int64(scores.ctypes.data), np.int64(places.ctypes.data)
    scale = f32(1 / (np.sqrt(d) * np.log(2)))
    unit = next_part(counter)
    while unit < rows * H:
        r, h = unit // H, unit % H
        own = (index[r] if moved else r // each) * memory + h * head
        size, angle = lengths[r], 4 * r * turn
        place = written + r % each if shared else size
        turned(q, query + 4 * (r * row + h * d), cos + angle if cos else 0, sin + angle, d)
        if add:
            there = 4 * (own + place * step)
            into = carray(pointer(keys + there), (d,), np.float32)
            turned(into, key + 4 * (r * row + h * d), cos + angle if cos else 0, sin + angle, d)
            turned(carray(pointer(values + there), (d,), np.float32), value + 4 * (r * row + h * d), 0, 0, d)
        if shared:
            size = scored_where(at_scores, places, keys + 4 * own, step, at_q, d, seen[r], place)
        else:
            size = scored(at_scores, places, keys + 4 * own, step, at_q, d, size + add)
        share = f32(1) / soften(at_scores, size, scale) if size else f32(0)  # who sees nothing looks nowhere
        c = 0
        while c + 4 * LANES <= d:
            to = out + 4 * (r * H * d + h * d + c)
            mix_wide(to, values + 4 * (own + c), step, at_scores, at_places, size, share)
            c += 4 * LANES
        while c < d:
            mix_one(out + 4 * (r * H * d + h * d + c), values + 4 * (own + c), step, at_scores, at_places, size, share)
            c += LANES
        unit = next_part(counter)


@whole
def play(a: Any) -> None:
    """Go through a tape: ``a`` holds a counter of threads, the rows, how many instructions, where they are, where to
    wait, room for each thread, how much that is, for how many numbers and places it has room, and room for all."""
    rows, count, barrier = a[1], a[2], a[4]
    tape = carray(pointer(a[3]), (count, WIDTH), np.int64)
    own = a[5] + a[6] * take(a)
    room, places = carray(pointer(own), (a[7],), np.float32), carray(pointer(own + 4 * a[7]), (a[8],), np.int64)
    rest = own + 4 * a[7] + 8 * a[8]
    for at in range(count):
        i, counter = tape[at], a[3] + 8 * (at * WIDTH + 1)
        if i[0] == NORM:
            norm(i, rows, counter)
        elif i[0] == LINEAR:
            linear(i, rows, counter, room, rest, a[9], barrier)
        else:
            attend(i, rows, counter, room, places)
        call(barrier)
