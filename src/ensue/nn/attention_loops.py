"""Attention and softmax, compiled like ensue.nn.loops: products of small matrices, softmax, and the way back.

``attend`` is for short rows, whose weights are kept for the way back; ``attend_blocks`` for rows of any length, a block
of queries at a time, whose weights are made again. A block's scores are a few vectors of LANES numbers. Numba's own
vectors are for long loops and leave short ones to single numbers, so that the pieces are written as vectors here, whose
sums stay in registers.

Legend: B rows, T queries, S keys, M places of all rows, H heads, d width of a head, D = H·d. A matrix is an address
and how far its rows are apart, in numbers. A loop is given ``a``, the row of numbers that ``ensue.nn.threads.run``
makes.
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

from ensue.nn import threads
from ensue.nn.loops import draw, inner, loop, pointer, take
from ensue.nn.threads import PART

ROWS, LANES = 8, 16
assert (ROWS, LANES) == (threads.ROWS, threads.LANES)  # said here too: what is compiled is kept until this file changes

Floats = NDArray[np.float32]
f32 = np.float32

NUMBER, WHOLE, SHORT = ir.FloatType(), ir.IntType(64), ir.IntType(32)
VECTOR, INDEX = ir.VectorType(NUMBER, LANES), ir.VectorType(SHORT, LANES)
LOWEST = np.finfo(f32).min
FAST = ("contract",)
"""A product and a sum may be one operation."""
SERIES = [1 / math.factorial(power) for power in range(6, -1, -1)]
"""Of eʳ, from the highest power."""


class Vectors:
    """Operations on LANES numbers at once, as instructions."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def at(self, kind: Any, base: Any, *steps: tuple[Any, Any]) -> Any:
        """The address ``base`` and so many times so far on, as a pointer."""
        for stride, times in steps:
            base = self.builder.add(base, self.builder.mul(self.builder.mul(stride, times), WHOLE(4)))
        return self.builder.inttoptr(base, kind.as_pointer())

    def load(self, base: Any, *steps: tuple[Any, Any]) -> Any:
        """The vector that begins there."""
        return self.builder.load(self.at(VECTOR, base, *steps), align=4)

    def store(self, x: Any, base: Any, *steps: tuple[Any, Any]) -> None:
        """Write a vector."""
        self.builder.store(x, self.at(VECTOR, base, *steps), align=4)

    def held(self, x: float) -> Any:
        """Room for a vector, which begins as one number."""
        room = cgutils.alloca_once(self.builder, VECTOR)
        self.builder.store(constant(x), room)
        return room

    def all(self, x: Any) -> Any:
        """A vector of one number."""
        kind = ir.VectorType(x.type, LANES)
        first = self.builder.insert_element(kind(ir.Undefined), x, SHORT(0))
        return self.builder.shuffle_vector(first, kind(ir.Undefined), INDEX([0] * LANES))

    def add(self, x: Any, y: Any) -> Any:
        """x + y."""
        return self.builder.fadd(x, y, flags=FAST)

    def times(self, x: Any, y: Any) -> Any:
        """x · y."""
        return self.builder.fmul(x, y, flags=FAST)

    def larger(self, x: Any, y: Any) -> Any:
        """The larger number; y where x is none."""
        return self.builder.select(self.builder.fcmp_ordered(">", x, y), x, y)

    def largest(self, x: Any) -> Any:
        """The largest number of a vector, in every lane."""
        half = LANES // 2
        while half:
            turned = INDEX([(lane + half) % LANES for lane in range(LANES)])
            x, half = self.larger(x, self.builder.shuffle_vector(x, x, turned)), half // 2
        return x

    def power_of_two(self, x: Any) -> Any:
        """2ˣ for x ≤ 0: 2ᵏ of x = k + r put together from its bits, 2ʳ by its series, |r| ≤ ½.

        What is smaller than the smallest normal number is 0; what is no number stays none.
        """
        b, lowest = self.builder, constant(-126.0)
        below = b.fcmp_ordered("<", x, lowest)
        z = b.select(below, lowest, x)
        k = b.fptosi(self.add(z, constant(-0.5)), INDEX)
        r = self.times(b.fsub(z, b.sitofp(k, VECTOR)), constant(math.log(2)))
        bits = b.shl(b.add(k, INDEX([127] * LANES)), INDEX([23] * LANES))
        power = b.bitcast(b.select(below, INDEX([0] * LANES), bits), VECTOR)
        value = constant(SERIES[0])
        for one in SERIES[1:]:
            value = self.add(self.times(value, r), constant(one))
        return self.times(value, power)


def constant(x: float) -> Any:
    """A vector of one number that is known."""
    return VECTOR([float(f32(x))] * LANES)


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
    start = take(a) * PART
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
        start = take(a) * PART


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
    """A matrix turned over, on the left of a product."""
    return x[0], np.int64(1), x[1]


@inner
def two(a: Any, at: int) -> Any:
    """A part (M, D): its address, and how far tokens are apart."""
    return a[at], a[at + 1]


@inner
def head(part: Any, first: int, h: int, d: int) -> Any:
    """A head of a row, (T, d), that begins at token ``first`` of a part."""
    return part[0] + 4 * (first * part[1] + h * d), part[1]


@inner
def lanes(time: int) -> int:
    """``time`` rounded up to whole lanes."""
    return (time + LANES - 1) // LANES * LANES


@inner
def kept(a: Any, place: int, row: Any, heads: int) -> Any:
    """Pᵀ of a row of ``ensue.nn.packing.Rows``, (H, S, T) with T rounded up to lanes, among those of all rows."""
    return carray(pointer(a[place] + 4 * heads * row[5]), (heads, row[3], lanes(row[1])), np.float32)


@intrinsic  # type: ignore[untyped-decorator]
def turn_square(context: Any, to: Any, x: Any, last: Any) -> Any:
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
def turn(x: Any, into: Floats, time: int) -> None:
    """xᵀ of (T, d), into (d, T rounded up to lanes); what is beyond T is nobody's."""
    to = address(into)
    for t in range(0, time, LANES):
        for i in range(0, len(into), LANES):
            turn_square((to[0] + 4 * (i * to[1] + t), to[1]), (x[0] + 4 * (t * x[1] + i), x[1]), time - 1 - t)


@inner
def softmax(p: Floats, size: int, causal: int, scale: float) -> None:
    """The softmax of each column of scores (S, T), of which ``size`` rows are seen."""
    for column in range(0, p.shape[1], LANES):
        soften(address(p), size, column, 0, causal, scale)
    p[size:] = f32(0)


@loop
def attend(a: Any) -> None:
    """Y = P V, (M, D), and Pᵀ = softmax(K Qᵀ / √d) of each row."""
    B, H, d, causal, most = a[2], a[3], a[4], a[5], a[6]
    rows = carray(pointer(a[7]), (B, 6), np.int64)
    query, key, value, out = two(a, 8), two(a, 10), two(a, 12), two(a, 14)
    room = np.zeros(d * lanes(most), np.float32)
    scale = f32(1 / (np.sqrt(d) * np.log(2)))
    b = take(a)
    while b < B:
        row = rows[b]
        first, T, begin, S, size = row[0], row[1], row[2], row[3], row[4]
        wide = lanes(T)
        turned, weights = room[: d * wide].reshape(d, wide), kept(a, 16, row, H)
        for h in range(H):
            p = weights[h]
            turn(head(query, first, h, d), turned, T)
            product(address(p), along(head(key, begin, h, d)), address(turned), S, wide, d)
            softmax(p, size, causal, scale)
            product(head(out, first, h, d), across(address(p)), head(value, begin, h, d), T, d, size)
        b = take(a)


@inner
def softmax_backward(p: Floats, by: Floats, scale: float) -> None:
    """∂S of ∂P, written over it."""
    for column in range(0, p.shape[1], LANES):
        soften_backward(address(p), address(by), len(p), column, scale)


@loop
def attend_backward(a: Any) -> None:
    """∂Q, ∂K, ∂V of ∂Y and Pᵀ."""
    B, H, d, most, longest = a[2], a[3], a[4], a[5], a[6]
    rows = carray(pointer(a[7]), (B, 6), np.int64)
    query, key, value, above = two(a, 8), two(a, 10), two(a, 12), two(a, 14)
    by_query, by_key, by_value = two(a, 16), two(a, 18), two(a, 20)
    room, more = np.zeros(d * lanes(most), np.float32), np.empty(longest * lanes(most), np.float32)
    scale = f32(1 / np.sqrt(d))
    b = take(a)
    while b < B:
        row = rows[b]
        first, T, begin, S = row[0], row[1], row[2], row[3]
        wide = lanes(T)
        turned, weights = room[: d * wide].reshape(d, wide), kept(a, 22, row, H)
        by = more[: S * wide].reshape(S, wide)
        for h in range(H):
            p, by_y = weights[h], head(above, first, h, d)
            turn(by_y, turned, T)
            product(address(by), along(head(value, begin, h, d)), address(turned), S, wide, d)
            softmax_backward(p, by, scale)
            product(head(by_query, first, h, d), across(address(by)), head(key, begin, h, d), T, d, S)
            product(head(by_key, begin, h, d), along(address(by)), head(query, first, h, d), S, d, T)
            product(head(by_value, begin, h, d), along(address(p)), by_y, S, d, T)
        b = take(a)


BLOCK = 64
"""How many queries are a block: with all their weights they stay in the cache."""
EACH = BLOCK // 8
"""Words of random bits for the weights of a key in a block, a byte each."""


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
def copy_in(x: Any, into: Floats, count: int) -> None:
    """Rows that lie apart, one after the other, and zeros behind them."""
    d = into.shape[1]
    for r in range(count):
        row = carray(pointer(x[0] + 4 * r * x[1]), (d,), np.float32)
        for i in range(d):
            into[r, i] = row[i]
    into[count:] = f32(0)


@inner
def copy_out(x: Floats, to: Any, count: int) -> None:
    """The other way round."""
    d = x.shape[1]
    for r in range(count):
        row = carray(pointer(to[0] + 4 * r * to[1]), (d,), np.float32)
        for i in range(d):
            row[i] = x[r, i]


@inner
def block_weights(p: Floats, keys: Floats, turned: Floats, first: int, size: int, causal: int) -> None:
    """Pᵀ of a block of queries, of which the first is number ``first``, over its first ``size`` keys."""
    product(address(p), along(address(keys)), address(turned), len(p), p.shape[1], len(turned))
    scale = f32(1 / (np.sqrt(len(turned)) * np.log(2)))
    for column in range(0, p.shape[1], LANES):
        soften(address(p), size, column, first, causal, scale)
    p[size:] = f32(0)


@inner
def block_mask(mask: Floats, words: Any, seed: int, place: int, off: int) -> None:
    """m / (1 − p) of a block, (S, BLOCK); ``place`` is that of its first word among all."""
    on, bytes_ = f32(256 / (256 - off)), words.view(np.uint8)
    for s in range(len(mask)):
        draw(words, seed, place + s * EACH)
        for i in range(mask.shape[1]):
            mask[s, i] = on if bytes_[i] >= off else f32(0)


@inner
def multiply(x: Floats, y: Floats) -> None:
    """x ∘ y, written over x."""
    for r in range(len(x)):
        for i in range(x.shape[1]):
            x[r, i] *= y[r, i]


@inner
def seen_of(row: Any, first: int, wide: int, causal: int) -> int:
    """How many keys a block of queries from ``first`` on sees, some of them only its last."""
    return int(min(row[4], first + wide)) if causal else int(row[4])


@inner
def block_place(unit: int, first: int, most: int, longest: int) -> int:
    """Where a block's random words begin: blocks of a head in order, then heads, then rows."""
    blocks = (most + BLOCK - 1) // BLOCK
    return int((unit * blocks + first // BLOCK) * rounded(longest) * EACH)


@loop
def attend_blocks(a: Any) -> None:
    """Y = (P ∘ m) V, (M, D), of rows of any length; without dropout ``off`` is 0."""
    B, H, d, causal, most, longest, seed, off = a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9]
    rows = carray(pointer(a[10]), (B, 6), np.int64)
    query, key, value, out = two(a, 11), two(a, 13), two(a, 15), two(a, 17)
    keys, values = np.empty((rounded(longest), d), np.float32), np.empty((rounded(longest), d), np.float32)
    turned, found = np.empty((d, BLOCK), np.float32), np.empty((BLOCK, d), np.float32)
    weights, mask = np.empty((rounded(longest), BLOCK), np.float32), np.empty((rounded(longest), BLOCK), np.float32)
    words = np.empty(EACH, np.uint64)
    unit = take(a)
    while unit < B * H:
        row, h = rows[unit // H], unit % H
        copy_in(head(key, row[2], h, d), keys, row[3])
        copy_in(head(value, row[2], h, d), values, row[3])
        for first in range(0, row[1], BLOCK):
            count = min(BLOCK, row[1] - first)
            size = seen_of(row, first, count, causal)
            p = weights[: rounded(size)]
            if size == 0:
                found[:] = f32(0)
            else:
                turn(head(query, row[0] + first, h, d), turned, count)
                block_weights(p, keys, turned, first, size, causal)
                if off:
                    block_mask(mask[: len(p)], words, seed, block_place(unit, first, most, longest), off)
                    multiply(p, mask)
                product(address(found), across(address(p)), address(values), BLOCK, d, len(p))
            copy_out(found, head(out, row[0] + first, h, d), count)
        unit = take(a)


@loop
def attend_blocks_backward(a: Any) -> None:
    """∂Q, ∂K, ∂V of ∂Y; weights are made again."""
    B, H, d, causal, most, longest, seed, off = a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9]
    rows = carray(pointer(a[10]), (B, 6), np.int64)
    query, key, value, above = two(a, 11), two(a, 13), two(a, 15), two(a, 17)
    by_query, by_key, by_value = two(a, 19), two(a, 21), two(a, 23)
    S = rounded(longest)
    keys, values = np.empty((S, d), np.float32), np.empty((S, d), np.float32)
    by_keys, by_values = np.empty((S, d), np.float32), np.empty((S, d), np.float32)
    turned, turned_above = np.empty((d, BLOCK), np.float32), np.empty((d, BLOCK), np.float32)
    queries, by_y = np.empty((BLOCK, d), np.float32), np.empty((BLOCK, d), np.float32)
    weights, scores, mask = (
        np.empty((S, BLOCK), np.float32),
        np.empty((S, BLOCK), np.float32),
        np.empty((S, BLOCK), np.float32),
    )
    words, scale = np.empty(EACH, np.uint64), f32(1 / np.sqrt(d))
    unit = take(a)
    while unit < B * H:
        row, h = rows[unit // H], unit % H
        copy_in(head(key, row[2], h, d), keys, row[3])
        copy_in(head(value, row[2], h, d), values, row[3])
        by_keys[:] = f32(0)
        by_values[:] = f32(0)
        for first in range(0, row[1], BLOCK):
            count = min(BLOCK, row[1] - first)
            size = seen_of(row, first, count, causal)
            if size == 0:
                queries[:] = f32(0)
                copy_out(queries, head(by_query, row[0] + first, h, d), count)
                continue
            p, by = weights[: rounded(size)], scores[: rounded(size)]
            copy_in(head(query, row[0] + first, h, d), queries, count)
            copy_in(head(above, row[0] + first, h, d), by_y, count)
            turn(address(queries), turned, BLOCK)
            turn(address(by_y), turned_above, BLOCK)
            block_weights(p, keys, turned, first, size, causal)
            product(address(by), along(address(values)), address(turned_above), len(p), BLOCK, d)
            if off:
                block_mask(mask[: len(p)], words, seed, block_place(unit, first, most, longest), off)
                multiply(by, mask)
            softmax_backward(p, by, scale)
            if off:
                multiply(p, mask)
            product_added(address(by_keys), along(address(by)), address(queries), len(p), d, BLOCK)
            product_added(address(by_values), along(address(p)), address(by_y), len(p), d, BLOCK)
            product(address(queries), across(address(by)), address(keys), BLOCK, d, len(p))
            copy_out(queries, head(by_query, row[0] + first, h, d), count)
        copy_out(by_keys, head(by_key, row[2], h, d), row[3])
        copy_out(by_values, head(by_value, row[2], h, d), row[3])
        unit = take(a)


@loop
def block_masks(a: Any) -> None:
    """The masks of all weights, (B, H, T, S), of rows with T queries and S keys."""
    B, H, most, longest, seed, off = a[2], a[3], a[4], a[5], a[6], a[7]
    out = carray(pointer(a[8]), (B * H, most, longest), np.float32)
    mask, words = np.empty((rounded(longest), BLOCK), np.float32), np.empty(EACH, np.uint64)
    unit = take(a)
    while unit < B * H:
        for first in range(0, most, BLOCK):
            block_mask(mask, words, seed, block_place(unit, first, most, longest), off)
            for t in range(first, min(first + BLOCK, most)):
                for s in range(longest):
                    out[unit, t, s] = mask[s, t - first]
        unit = take(a)
