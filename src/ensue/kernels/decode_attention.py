"""Attention of a tape: each row's new token looks at its memory, a head at a time.

    y = softmax(q Kᵀ / √d) V

It is compiled into ensue.kernels.decode_loops. Legend: R rows, H heads, d width of a head, S places of a memory that
are seen.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from ensue.kernels.compile import inner, next_chunk, pointer
from ensue.kernels.decode_matmul import alone, one_row, sum_of
from ensue.kernels.simd import INDEX, LANES, NUMBER, SHORT, WHOLE, Vectors, constant

Floats = NDArray[np.float32]
f32 = np.float32


@intrinsic  # type: ignore[untyped-decorator]
def soften_row(context: Any, scores: Any, size: Any, scale: Any) -> Any:
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


@inner
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


@inner
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


@inner
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


@inner
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
    unit = next_chunk(counter)
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
        share = f32(1) / soften_row(at_scores, size, scale) if size else f32(0)  # who sees nothing looks nowhere
        c = 0
        while c + 4 * LANES <= d:
            to = out + 4 * (r * H * d + h * d + c)
            mix_wide(to, values + 4 * (own + c), step, at_scores, at_places, size, share)
            c += 4 * LANES
        while c < d:
            mix_one(out + 4 * (r * H * d + h * d + c), values + 4 * (own + c), step, at_scores, at_places, size, share)
            c += LANES
        unit = next_chunk(counter)
