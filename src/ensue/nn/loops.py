"""The loops themselves, compiled by numba on first use and kept on disk: dropout masks, residual path and layer
norm, bias and relu, attention within short rows.

    z_i = mix(seed + i γ),  γ the odd number next to 2⁶⁴ / golden ratio            (SplitMix64: Steele et al., 2014)

Random bits depend on the seed and their place alone, so they are made where they are needed and made again on the way
back: no mask is ever stored. Each byte decides about one unit. All loops stand in one file because a compiled function
is kept on disk until its own file changes.

Legend: M rows, D width. A loop is given ``a``, the row of numbers that ``ensue.nn.threads.run`` makes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from ensue.nn.threads import LANES, PART, ROWS

GAMMA, FIRST, SECOND = (np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
ARGUMENT = types.CPointer(types.int64)
OPTIONS: dict[str, Any] = {"cache": True, "fastmath": {"reassoc", "contract"}}
"""Sums may be taken in any order, or they would go number by number."""

LN2, C2, C3, C4, C5, C6 = (np.float32(number) for number in (math.log(2), 1 / 2, 1 / 6, 1 / 24, 1 / 120, 1 / 720))

Floats = NDArray[np.float32]
f32 = np.float32


def loop(function: Callable[[Any], None]) -> Any:
    """Compile a loop over parts."""
    return numba.cfunc(types.void(ARGUMENT), **OPTIONS)(function)


def inner(function: Callable[..., Any]) -> Any:
    """Compile a piece of a loop."""
    return numba.njit(**OPTIONS)(function)


@intrinsic  # type: ignore[untyped-decorator]
def take(context: Any, row: Any) -> Any:
    """The number of the next part, which nobody else then gets."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.atomic_rmw("add", arguments[0], ir.Constant(ir.IntType(64), 1), "seq_cst")

    return types.int64(ARGUMENT), make


@intrinsic  # type: ignore[untyped-decorator]
def pointer(context: Any, address: Any) -> Any:
    """An address as what ``carray`` takes."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), make


@inner
def draw(words: NDArray[np.uint64], seed: int, first: int) -> None:
    """Words ``first`` … of a seed."""
    for i in range(len(words)):
        z = np.uint64(seed) + np.uint64(first + i + 1) * GAMMA
        z = (z ^ (z >> np.uint64(30))) * FIRST
        z = (z ^ (z >> np.uint64(27))) * SECOND
        words[i] = z ^ (z >> np.uint64(31))


@loop
def masks(a: Any) -> None:
    """m / (1 − p), (M, D): 0 with probability ``off`` / 256."""
    M, D, seed, off = a[1], a[2], a[3], np.uint8(a[4])
    mask = carray(pointer(a[5]), (M, D), np.float32)
    on = f32(256 / (256 - a[4]))
    words = np.empty((D + 7) // 8, np.uint64)
    bytes_ = words.view(np.uint8)
    start = take(a) * PART
    while start < M:
        for r in range(start, min(start + PART, M)):
            draw(words, seed, r * len(words))
            for i in range(D):
                mask[r, i] = on if bytes_[i] >= off else f32(0)
        start = take(a) * PART


@inner
def normalise(s: Floats, weight: Floats, bias: Floats, epsilon: float, normal: Floats, z: Floats) -> Any:
    """n and z of a row; 1 / √(var s + ε)."""
    total, square = f32(0), f32(0)
    for i in range(len(s)):
        total += s[i]
    mean = total / f32(len(s))
    for i in range(len(s)):
        square += (s[i] - mean) * (s[i] - mean)
    scale = f32(1) / np.sqrt(square / f32(len(s)) + epsilon)
    for i in range(len(s)):
        normal[i] = (s[i] - mean) * scale
        z[i] = normal[i] * weight[i] + bias[i]
    return scale


@loop
def add_norm(a: Any) -> None:
    """z = LN(x + y ∘ m), and what the way back needs: n and 1 / √(var s + ε)."""
    M, D, seed, off = a[1], a[2], a[3], np.uint8(a[4])
    x, y = carray(pointer(a[5]), (M, D), np.float32), carray(pointer(a[6]), (M, D), np.float32)
    weight, bias = carray(pointer(a[7]), (D,), np.float32), carray(pointer(a[8]), (D,), np.float32)
    epsilon = carray(pointer(a[9]), (1,), np.float32)[0]
    z, normal = carray(pointer(a[10]), (M, D), np.float32), carray(pointer(a[11]), (M, D), np.float32)
    scale = carray(pointer(a[12]), (M,), np.float32)
    on = f32(256 / (256 - a[4]))
    words, s = np.empty((D + 7) // 8, np.uint64), np.empty(D, np.float32)
    bytes_ = words.view(np.uint8)
    start = take(a) * PART
    while start < M:
        for r in range(start, min(start + PART, M)):
            draw(words, seed, r * len(words))
            for i in range(D):
                s[i] = x[r, i] + (y[r, i] * on if bytes_[i] >= off else f32(0))
            scale[r] = normalise(s, weight, bias, epsilon, normal[r], z[r])
        start = take(a) * PART


@inner
def gather(by_z: Floats, normal: Floats, weight: Floats, by_weight: Floats, by_bias: Floats) -> Any:
    """Add a row's share of ∂γ and ∂β; mean ∂n and mean(∂n ∘ n)."""
    plain, along = f32(0), f32(0)
    for i in range(len(by_z)):
        by_weight[i] += by_z[i] * normal[i]
        by_bias[i] += by_z[i]
        plain += by_z[i] * weight[i]
        along += by_z[i] * weight[i] * normal[i]
    return plain / f32(len(by_z)), along / f32(len(by_z))


@loop
def add_norm_backward(a: Any) -> None:
    """∂x, ∂y, and ∂γ and ∂β of each part, (parts, 2, D)."""
    M, D, seed, off = a[1], a[2], a[3], np.uint8(a[4])
    by_z, normal = carray(pointer(a[5]), (M, D), np.float32), carray(pointer(a[6]), (M, D), np.float32)
    scale, weight = carray(pointer(a[7]), (M,), np.float32), carray(pointer(a[8]), (D,), np.float32)
    by_x, by_y = carray(pointer(a[9]), (M, D), np.float32), carray(pointer(a[10]), (M, D), np.float32)
    sums = carray(pointer(a[11]), ((M + PART - 1) // PART, 2, D), np.float32)
    on = f32(256 / (256 - a[4]))
    words = np.empty((D + 7) // 8, np.uint64)
    bytes_ = words.view(np.uint8)
    part = take(a)
    while part * PART < M:
        sums[part] = f32(0)
        for r in range(part * PART, min((part + 1) * PART, M)):
            draw(words, seed, r * len(words))
            plain, along = gather(by_z[r], normal[r], weight, sums[part, 0], sums[part, 1])
            for i in range(D):
                by = (by_z[r, i] * weight[i] - plain - normal[r, i] * along) * scale[r]
                by_x[r, i] = by
                by_y[r, i] = by * on if bytes_[i] >= off else f32(0)
        part = take(a)


@loop
def add_relu(a: Any) -> None:
    """max(v + b, 0), written over v (M, D)."""
    M, D = a[1], a[2]
    v, bias = carray(pointer(a[3]), (M, D), np.float32), carray(pointer(a[4]), (D,), np.float32)
    start = take(a) * PART
    while start < M:
        for r in range(start, min(start + PART, M)):
            for i in range(D):
                u = v[r, i] + bias[i]
                v[r, i] = f32(0) if u < f32(0) else u  # what is no number stays none
        start = take(a) * PART


@loop
def relu_backward(a: Any) -> None:
    """∂u, written over ∂h (M, D), and its sum over each part, (parts, D)."""
    M, D = a[1], a[2]
    by, h = carray(pointer(a[3]), (M, D), np.float32), carray(pointer(a[4]), (M, D), np.float32)
    sums = carray(pointer(a[5]), ((M + PART - 1) // PART, D), np.float32)
    part = take(a)
    while part * PART < M:
        sums[part] = f32(0)
        for r in range(part * PART, min((part + 1) * PART, M)):
            for i in range(D):
                by_u = f32(0) if h[r, i] <= f32(0) else by[r, i]
                by[r, i] = by_u
                sums[part, i] += by_u
        part = take(a)


@intrinsic  # type: ignore[untyped-decorator]
def tile(context: Any, to: Any, left: Any, right: Any, count: Any) -> Any:
    """A piece of a product of matrices, ROWS by LANES, whose sums stay in registers all the while.

    A matrix is an address and how far its rows are apart; the left one also says how far its columns are.
    """

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (to, to_row), (left, left_row, left_step), (right, right_row) = (
            cgutils.unpack_tuple(builder, one) for one in arguments[:3]
        )
        number, whole, short = ir.FloatType(), ir.IntType(64), ir.IntType(32)
        lanes = ir.VectorType(number, LANES)

        def at(kind: Any, base: Any, *steps: tuple[Any, Any]) -> Any:
            for stride, times in steps:
                base = builder.add(base, builder.mul(builder.mul(stride, times), whole(4)))
            return builder.inttoptr(base, kind.as_pointer())

        sums = [cgutils.alloca_once(builder, lanes) for _ in range(ROWS)]
        for held in sums:
            builder.store(lanes([0.0] * LANES), held)
        with cgutils.for_range(builder, arguments[3]) as step:
            row = builder.load(at(lanes, right, (right_row, step.index)), align=4)
            for r, held in enumerate(sums):
                one = builder.load(at(number, left, (left_row, whole(r)), (left_step, step.index)))
                one = builder.insert_element(lanes(ir.Undefined), one, short(0))
                one = builder.shuffle_vector(one, lanes(ir.Undefined), ir.VectorType(short, LANES)([0] * LANES))
                more = builder.fmul(one, row, flags=("contract",))
                builder.store(builder.fadd(builder.load(held), more, flags=("contract",)), held)
        for r, held in enumerate(sums):
            builder.store(builder.load(held), at(lanes, to, (to_row, whole(r))), align=4)
        return context.get_dummy_value()

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


@inner
def turn(x: Any, into: Floats, time: int) -> None:
    """xᵀ of (T, d), into (d, ≥ T)."""
    for t in range(time):
        row = carray(pointer(x[0] + 4 * t * x[1]), (len(into),), np.float32)
        for i in range(len(into)):
            into[i, t] = row[i]


@inner
def exponentials(x: Floats, bits: NDArray[np.int32]) -> None:
    """2ˣ for x ≤ 0, written over x: 2ᵏ of x = k + r put together from its bits, 2ʳ by its series, |r| ≤ ½.

    What is smaller than the smallest normal number is 0.
    """
    power = bits.view(np.float32)
    for i in range(len(x)):
        z = f32(-126) if x[i] < f32(-126) else x[i]  # what is no number stays none
        k = np.int32(z - f32(0.5))
        r = (z - f32(k)) * LN2
        bits[i] = np.int32(0) if x[i] < f32(-126) else (k + np.int32(127)) << np.int32(23)
        x[i] = f32(1) + r * (f32(1) + r * (C2 + r * (C3 + r * (C4 + r * (C5 + r * C6)))))
    for i in range(len(x)):
        x[i] *= power[i]


@inner
def softmax(p: Floats, size: int, causal: int, scale: float, bits: NDArray[np.int32], held: Floats) -> None:
    """The softmax of each column of scores (S, T), of which ``size`` rows are seen; ``held`` is room for (T,)."""
    held[:] = f32(-np.inf)
    for s in range(size):
        if causal:
            p[s, :s] = f32(-np.inf)
        for t in range(len(held)):
            held[t] = p[s, t] if p[s, t] > held[t] else held[t]
    for s in range(size):
        for t in range(len(held)):
            p[s, t] = (p[s, t] - held[t]) * scale
    exponentials(p.reshape(p.size)[: size * len(held)], bits)
    held[:] = f32(0)
    for s in range(size):
        for t in range(len(held)):
            held[t] += p[s, t]
    for s in range(size):
        for t in range(len(held)):
            p[s, t] /= held[t]
    p[size:] = f32(0)


@loop
def attend(a: Any) -> None:
    """Y = P V, (M, D), and Pᵀ = softmax(K Qᵀ / √d) of each row."""
    B, H, d, causal, most, longest = a[2], a[3], a[4], a[5], a[6], a[7]
    rows = carray(pointer(a[8]), (B, 6), np.int64)
    query, key, value, out = two(a, 9), two(a, 11), two(a, 13), two(a, 15)
    room, places = np.zeros(d * lanes(most), np.float32), np.empty(lanes(most), np.float32)
    bits = np.empty(longest * lanes(most), np.int32)
    scale = f32(1 / (np.sqrt(d) * np.log(2)))
    b = take(a)
    while b < B:
        row = rows[b]
        first, T, begin, S, size = row[0], row[1], row[2], row[3], row[4]
        wide = lanes(T)
        turned, held, weights = room[: d * wide].reshape(d, wide), places[:wide], kept(a, 17, row, H)
        for h in range(H):
            p = weights[h]
            turn(head(query, first, h, d), turned, T)
            product(address(p), along(head(key, begin, h, d)), address(turned), S, wide, d)
            softmax(p, size, causal, scale, bits, held)
            product(head(out, first, h, d), across(address(p)), head(value, begin, h, d), T, d, size)
        b = take(a)


@inner
def softmax_backward(p: Floats, by: Floats, scale: float, held: Floats) -> None:
    """∂S = P ∘ (∂P − Σ P ∘ ∂P) / √d, written over ∂P."""
    held[:] = f32(0)
    for s in range(len(p)):
        for t in range(len(held)):
            held[t] += p[s, t] * by[s, t]
    for s in range(len(p)):
        for t in range(len(held)):
            by[s, t] = (by[s, t] - held[t]) * p[s, t] * scale


@loop
def attend_backward(a: Any) -> None:
    """∂Q, ∂K, ∂V of ∂Y and Pᵀ."""
    B, H, d, most, longest = a[2], a[3], a[4], a[5], a[6]
    rows = carray(pointer(a[7]), (B, 6), np.int64)
    query, key, value, above = two(a, 8), two(a, 10), two(a, 12), two(a, 14)
    by_query, by_key, by_value = two(a, 16), two(a, 18), two(a, 20)
    room, places = np.zeros(d * lanes(most), np.float32), np.empty(lanes(most), np.float32)
    more = np.empty(longest * lanes(most), np.float32)
    scale = f32(1 / np.sqrt(d))
    b = take(a)
    while b < B:
        row = rows[b]
        first, T, begin, S = row[0], row[1], row[2], row[3]
        wide = lanes(T)
        turned, held, weights = room[: d * wide].reshape(d, wide), places[:wide], kept(a, 22, row, H)
        by = more[: S * wide].reshape(S, wide)
        for h in range(H):
            p, by_y = weights[h], head(above, first, h, d)
            turn(by_y, turned, T)
            product(address(by), along(head(value, begin, h, d)), address(turned), S, wide, d)
            softmax_backward(p, by, scale, held)
            product(head(by_query, first, h, d), across(address(by)), head(key, begin, h, d), T, d, S)
            product(head(by_key, begin, h, d), along(address(by)), head(query, first, h, d), S, d, T)
            product(head(by_value, begin, h, d), along(address(p)), by_y, S, d, T)
        b = take(a)
