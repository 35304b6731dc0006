"""What a tape is played with, compiled like ensue.nn.loops: norms, products of few rows, attention to a memory.

All threads go through the same instructions; within one each takes parts of the work until none is left, and then they
wait for each other. A product of few rows is bound by reading its weights, so a few outputs are computed side by side
for a few rows, and each weight that is read is used for all of them. Where weights have eight bits, x is given fifteen
for the product, which then is one of whole numbers:

    x_r ≈ s_r x̂_r,  s_r = max|x_r| / MOST,  y_rj = s_r s_j Σ_i x̂_ri Ŵ_ji

Legend: R rows, D width, H heads, d width of a head, S places of a memory that are seen. An instruction is WIDTH whole
numbers, addresses among them; the first is what is to be done, the second how many parts are taken already.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from ensue.nn import tape as layout
from ensue.nn.loops import ARGUMENT, pointer
from ensue.nn.loops import OPTIONS as USUAL
from ensue.nn.vectors import INDEX, LANES, NUMBER, SHORT, VECTOR, WHOLE, Vectors, constant

MADE_OF = "8c452bcff07e"
"""The files whose pieces are compiled into these loops: what is compiled is kept until this file changes."""

NORM, LINEAR, ATTEND, WIDTH = 1, 2, 3, 24
assert (NORM, LINEAR, ATTEND, WIDTH) == (layout.NORM, layout.LINEAR, layout.ATTEND, layout.WIDTH)  # kept on disk too
PART = 32
"""How many outputs of a product are a part of the work."""
TALL = 4
"""How many outputs are computed side by side."""
HOST = frozenset(name for name, there in get_host_cpu_features().items() if there)
"""What the processor can do."""
BOTH = 4 if "avx512f" in HOST else 2
"""For how many rows at once: their sums fill the registers."""

OPTIONS = {**USUAL, "error_model": "numpy"}
"""As other loops, but what is divided by 0 is no error: a thread that left would let the others wait for ever."""

Floats = NDArray[np.float32]
f32 = np.float32
MOST = 16383
"""The largest x̂: sums of a lane, 2 · 127 · MOST for each 2 · LANES of the inputs, stay below 2³¹ for 16,384 inputs."""
BYTES, HALVES = (ir.VectorType(ir.IntType(bits), 2 * LANES) for bits in (8, 16))
EVEN, ODD = (INDEX(list(range(first, 2 * LANES, 2))) for first in (0, 1))
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


def _sum(v: Vectors, x: Any) -> Any:
    """The sum of a vector's numbers."""
    return v.builder.extract_element(_sums(v, [x]), SHORT(0))


def _sums(v: Vectors, held: list[Any]) -> Any:
    """The sums of 2ⁿ vectors, in order, in the lanes 0, LANES / 2ⁿ … of one.

    Two vectors are put together half by half and added, which leaves half as many numbers of each: log₂ LANES times.
    """
    width, b = LANES, v.builder
    while width > 1:
        half = width // 2
        low = [lane for first in range(0, LANES, width) for lane in range(first, first + half)]
        if len(held) > 1:
            both = low + [lane + LANES for lane in low]
            pairs = list(zip(held[::2], held[1::2]))
        else:
            both = [lane // width * width + lane % half for lane in range(LANES)]
            pairs = [(held[0], held[0])]
        high = [lane + half for lane in both]
        held = [
            v.add(b.shuffle_vector(one, other, INDEX(both)), b.shuffle_vector(one, other, INDEX(high)))
            for one, other in pairs
        ]
        width = half
    return held[0]


def _product(tall: int, rows: int, eight: bool, times: int = 1) -> Any:
    """Σ_i W_ji x_ri of ``tall · times`` outputs and so many rows; row r is written at ``to`` + r · ``to_row``.

    ``tall`` outputs are computed side by side, so many times; then the sums of all are made at once.
    """
    kind = Eighths if eight else Singles

    @intrinsic  # type: ignore[untyped-decorator]
    def products(context: Any, to: Any, to_row: Any, weights: Any, stride: Any, x: Any, count: Any) -> Any:
        def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            to, to_row, weights, stride, x, count = arguments
            v = Vectors(builder)
            own = kind(v)
            sums = [[own.held() for _ in range(tall * times)] for _ in range(rows)]
            far = builder.mul(count, WHOLE(own.number))  # from a row of x to the next
            for first in range(0, tall * times, tall):
                with cgutils.for_range(builder, builder.udiv(count, WHOLE(own.step))) as step:
                    along = builder.mul(step.index, WHOLE(own.step))
                    there = builder.add(x, builder.mul(along, WHOLE(own.number)))
                    held = [own.inputs(builder.add(there, builder.mul(far, WHOLE(r)))) for r in range(rows)]
                    for j in range(first, first + tall):
                        at = builder.add(builder.mul(stride, WHOLE(j)), builder.mul(along, WHOLE(own.weight)))
                        w = own.weights(builder.add(weights, at))
                        for r in range(rows):
                            builder.store(own.added(builder.load(sums[r][j]), w, held[r]), sums[r][j])
            found = _sums(v, [own.number_of(builder.load(one)) for row in sums for one in row])
            each, apart = tall * times, LANES // (rows * tall * times)
            for r in range(rows):
                lanes = [(r * each + j) * apart for j in range(each)]
                part = builder.shuffle_vector(found, found, ir.VectorType(SHORT, each)(lanes))
                builder.store(part, v.at(ir.VectorType(NUMBER, each), to, (to_row, WHOLE(r))), align=4)
            return context.get_dummy_value()

        return types.void(to, to_row, weights, stride, x, count), make

    return products


class Singles:
    """Products of single precision: LANES weights a step."""

    step, number, weight = LANES, 4, 4

    def __init__(self, v: Vectors) -> None:
        self.v = v

    def held(self) -> Any:
        """Room for sums."""
        return self.v.held(0.0)

    def inputs(self, at: Any) -> Any:
        """x of a step."""
        return self.v.load(at)

    weights = inputs

    def added(self, total: Any, w: Any, x: Any) -> Any:
        """total + w x."""
        return self.v.add(total, self.v.times(w, x))

    def number_of(self, total: Any) -> Any:
        """Sums as numbers."""
        return total


class Eighths(Singles):
    """Products of weights in eight bits with whole numbers of sixteen: 2 · LANES a step, whose pairs are added."""

    step, number, weight = 2 * LANES, 2, 1

    def held(self) -> Any:
        room = cgutils.alloca_once(self.v.builder, INDEX)
        self.v.builder.store(INDEX([0] * LANES), room)
        return room

    def inputs(self, at: Any) -> Any:
        return self.v.builder.load(self.v.builder.inttoptr(at, HALVES.as_pointer()), align=2)

    def weights(self, at: Any) -> Any:
        bytes_ = self.v.builder.load(self.v.builder.inttoptr(at, BYTES.as_pointer()), align=1)
        return self.v.builder.sext(bytes_, HALVES)

    def added(self, total: Any, w: Any, x: Any) -> Any:
        """total + w x; processors have an instruction for it, which compilers do not find by themselves."""
        b = self.v.builder
        if "avx512vnni" in HOST and "avx512bw" in HOST:
            kind = ir.FunctionType(INDEX, [INDEX, INDEX, INDEX])
            add = b.module.declare_intrinsic("llvm.x86.avx512.vpdpwssd.512", (), kind)
            return b.call(add, [total, b.bitcast(w, INDEX), b.bitcast(x, INDEX)])
        return b.add(total, self._pairs(w, x))

    def _pairs(self, w: Any, x: Any) -> Any:
        """w_0 x_0 + w_1 x_1, w_2 x_2 + w_3 x_3 …"""
        b = self.v.builder
        if "avx512bw" in HOST:
            kind = ir.FunctionType(INDEX, [HALVES, HALVES])
            return b.call(b.module.declare_intrinsic("llvm.x86.avx512.pmaddw.d.512", (), kind), [w, x])
        if "avx2" in HOST:
            half, result = (ir.VectorType(ir.IntType(bits), size) for bits, size in ((16, LANES), (32, LANES // 2)))
            pair = b.module.declare_intrinsic("llvm.x86.avx2.pmadd.wd", (), ir.FunctionType(result, [half, half]))
            sides = [INDEX(list(range(first, first + LANES))) for first in (0, LANES)]
            low, high = (b.call(pair, [b.shuffle_vector(one, one, side) for one in (w, x)]) for side in sides)
            return b.shuffle_vector(low, high, INDEX(list(range(LANES))))

        def every_other(one: Any, which: Any) -> Any:
            return b.sext(b.shuffle_vector(one, one, which), INDEX)

        return b.add(*(b.mul(every_other(w, which), every_other(x, which)) for which in (EVEN, ODD)))

    def number_of(self, total: Any) -> Any:
        return self.v.builder.sitofp(total, VECTOR)


one_row, some_rows = _product(TALL, 1, False, LANES // TALL), _product(TALL, BOTH, False)
one_row_8, some_rows_8 = _product(TALL, 1, True, LANES // TALL), _product(TALL, BOTH, True)
alone = _product(1, 1, False)


@intrinsic  # type: ignore[untyped-decorator]
def activate(context: Any, x: Any, count: Any, kind: Any) -> Any:
    """f of so many numbers at x, in place: 1 the tanh form of GELU, 2 relu.

    ½ u (1 + tanh w) = u / (1 + e^{−2w}),  w = √(2/π) (u + 0.044715 u³); e is only ever raised to what is not positive.
    """

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, count, kind = arguments
        v = Vectors(builder)
        zero, one = constant(0.0), constant(1.0)
        with cgutils.for_range(builder, builder.udiv(count, WHOLE(LANES))) as step:
            at = (WHOLE(LANES), step.index)
            u = v.load(x, at)
            smooth = builder.icmp_signed("==", kind, WHOLE(1))
            with builder.if_else(smooth) as (then, otherwise):
                with then:
                    cube = v.times(v.times(u, u), v.times(u, constant(0.044715)))
                    w = v.times(v.add(u, cube), constant(2 * math.sqrt(2 / math.pi) / math.log(2)))
                    positive = builder.fcmp_ordered(">=", w, zero)
                    power = v.power_of_two(builder.select(positive, builder.fsub(zero, w), w))
                    share = builder.fdiv(builder.select(positive, one, power), v.add(one, power))
                    v.store(v.times(u, share), x, at)
                with otherwise:
                    v.store(builder.select(builder.fcmp_ordered("<", u, zero), zero, u), x, at)  # NaN stays
        return context.get_dummy_value()

    return types.void(x, count, kind), make


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
        best, half = builder.load(top), LANES // 2
        while half:
            turned = builder.shuffle_vector(best, best, INDEX([(lane + half) % LANES for lane in range(LANES)]))
            best, half = v.larger(best, turned), half // 2
        with cgutils.for_range(builder, steps) as step:
            power = v.power_of_two(v.times(builder.fsub(seen(step.index), best), scale))
            v.store(power, scores, (WHOLE(LANES), step.index))
            builder.store(v.add(builder.load(total), power), total)
        return _sum(v, builder.load(total))

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
def halved(x: Floats, into: Any) -> Any:
    """x̂ of a row, and s, which is no number where one of x is none."""
    top, broken = f32(0), f32(0)
    for c in range(len(x)):
        top = max(top, abs(x[c]))
        broken += x[c] * f32(0)
    s = top / f32(MOST) if top > f32(1e-30) else f32(1)
    for c in range(len(x)):
        into[c] = np.int16(np.rint(x[c] / s))
    return s + broken


@piece
def multiply(to: int, wide: int, w: Any, x: Any, rows: int, inputs: int, outputs: int, start: int, stop: int) -> None:
    """Σ_i W_ji x_ri of the outputs from ``start`` to ``stop``, a few rows at once and the rest one by one.

    A tile that would reach beyond the last output begins sooner, and does some again.
    """
    weights, stride, eight = w
    r = 0
    while r + BOTH <= rows:
        for first in range(start, stop, TALL):
            j = min(first, outputs - TALL)
            here, there, own = to + 4 * (r * wide + j - start), weights + j * stride, x[0] + r * x[1]
            if eight:
                some_rows_8(here, wide, there, stride, own, inputs)
            else:
                some_rows(here, wide, there, stride, own, inputs)
        r += BOTH
    while r < rows:
        for first in range(start, stop, LANES):
            j = min(first, outputs - LANES)
            here, there, own = to + 4 * (r * wide + j - start), weights + j * stride, x[0] + r * x[1]
            if eight:
                one_row_8(here, wide, there, stride, own, inputs)
            else:
                one_row(here, wide, there, stride, own, inputs)
        r += 1


@piece
def linear(i: Any, rows: int, counter: int, room: Floats, halves: Any) -> None:
    """y = f(W x + b), or y + f(W x + b), (R, in) → (R, out); with scales W is in eight bits."""
    inputs, outputs, kind, add = i[2], i[3], i[4], i[5]
    weights, eight, x = i[6], i[7] != 0, i[9]
    y = carray(pointer(i[10]), (rows, outputs), np.float32)
    scale = carray(pointer(i[7]), (outputs,), np.float32)
    bias, biased = carray(pointer(i[8]), (outputs,), np.float32), i[8] != 0
    wide = PART + LANES  # a tile that reaches beyond the last output begins before the first of its part
    sums, sizes = room[: rows * wide].reshape(rows, wide), room[rows * wide : rows * wide + rows]
    to = np.int64(sums.ctypes.data) + 4 * LANES
    stride, far = 4 * inputs, 4 * inputs
    start = next_part(counter) * PART
    if eight and start < outputs:  # each thread makes its own: there is not much of it, and nobody has to wait
        given = carray(pointer(x), (rows, inputs), np.float32)
        small = halves[: rows * inputs].reshape(rows, inputs)
        for r in range(rows):
            sizes[r] = halved(given[r], small[r])
        x, stride, far = np.int64(small.ctypes.data), inputs, 2 * inputs
    while start < outputs:
        stop = min(start + PART, outputs)
        multiply(to, wide, (weights, stride, eight), (x, far), rows, inputs, outputs, start, stop)
        for r in range(rows):
            own, into = sums[r, LANES : LANES + stop - start], y[r, start:stop]
            if eight:
                size = sizes[r]
                for t in range(len(own)):
                    own[t] *= scale[start + t] * size
            if biased:
                for t in range(len(own)):
                    own[t] += bias[start + t]
            if kind:
                activate(to + 4 * r * wide, len(own), kind)
            if add:
                for t in range(len(own)):
                    into[t] += own[t]
            else:
                into[:] = own
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
        one_row(scores + 4 * s, 0, keys + 4 * s * step, 4 * step, q, d)
        s += LANES
    while s < size:
        alone(scores + 4 * s, 0, keys + 4 * s * step, 4 * step, q, d)
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
        alone(scores + 4 * at, 0, keys + 4 * places[at] * step, 4 * step, q, d)
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
    """Go through a tape: ``a`` holds a counter, the rows, how many instructions, where they are, where to wait, and how
    much room a thread needs for numbers and for inputs in sixteen bits."""
    rows, count, barrier = a[1], a[2], a[4]
    tape = carray(pointer(a[3]), (count, WIDTH), np.int64)
    room, halves, places = np.empty(a[5], np.float32), np.empty(a[6], np.int16), np.empty(a[5], np.int64)
    for at in range(count):
        i, counter = tape[at], a[3] + 8 * (at * WIDTH + 1)
        if i[0] == NORM:
            norm(i, rows, counter)
        elif i[0] == LINEAR:
            linear(i, rows, counter, room, halves)
        else:
            attend(i, rows, counter, room, places)
        call(barrier)
