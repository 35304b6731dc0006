"""Attention of a decode program: each row's new token attends to its key–value cache, one head at a time.

    y = softmax(q Kᵀ / √d) V

With fewer key–value heads than heads, every H / G query heads share one (grouped-query attention). The cache has floats
or bfloat16. With a span a row sees its last columns only; with a cap c the scores are c tanh(q Kᵀ / (c √d)).

It is compiled into ensue.kernels.decode_loops. Legend: R rows, H heads, G key–value heads, d head width, S columns of a
cache that are seen.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from ensue.kernels.compile import inner, pointer
from ensue.kernels.decode_matmul import bfloat16_one_output, bfloat16_one_row, one_output, one_row
from ensue.kernels.decode_program import FINISHED, PREPARED, PREPARING, RANGES
from ensue.kernels.simd import FLOAT, INT64, LANES, Vectors
from ensue.kernels.softmax_loops import cap_row, softmax_row
from ensue.kernels.work_sharing import finish_chunks, take_chunk

Floats = NDArray[np.float32]
f32 = np.float32


def _mixing(vectors: int, bfloat16: bool = False) -> Any:
    """share · Σ_n p_n v_{s_n} of ``vectors`` vectors side by side; s_n are the columns that are seen."""

    @intrinsic  # type: ignore[untyped-decorator]
    def mix(context: Any, to: Any, values: Any, step: Any, weights: Any, columns: Any, size: Any, share: Any) -> Any:
        def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            to, values, step, weights, columns, size, share = arguments
            v = Vectors(builder)
            load = v.load_bfloat16 if bfloat16 else v.load
            sums = [v.variable(0.0) for _ in range(vectors)]
            with cgutils.for_range(builder, size) as n:
                p = v.broadcast(builder.load(v.at(FLOAT, weights, (INT64(1), n.index))))
                s = builder.load(v.at(INT64, columns, (INT64(2), n.index)))  # an int64 is as long as two floats
                for c, total in enumerate(sums):
                    x = load(values, (step, s), (INT64(LANES), INT64(c)))
                    builder.store(v.add(builder.load(total), v.mul(p, x)), total)
            for c, total in enumerate(sums):
                v.store(v.mul(builder.load(total), v.broadcast(share)), to, (INT64(LANES), INT64(c)))
            return context.get_dummy_value()

        return types.void(to, values, step, weights, columns, size, share), make

    return mix


mix_four, mix_one = _mixing(4), _mixing(1)
bfloat16_mix_four, bfloat16_mix_one = (_mixing(vectors, bfloat16=True) for vectors in (4, 1))


@inner
def mix(to: int, values: int, step: int, weights: int, columns: int, size: int, share: Any, d: int, short: int) -> None:
    """share · Σ_n p_n v_{s_n}, all d of it."""
    c = 0
    while c < d:
        if c + 4 * LANES <= d:
            if short:
                bfloat16_mix_four(to + 4 * c, values + 2 * c, step, weights, columns, size, share)
            else:
                mix_four(to + 4 * c, values + 4 * c, step, weights, columns, size, share)
            c += 4 * LANES
        else:
            if short:
                bfloat16_mix_one(to + 4 * c, values + 2 * c, step, weights, columns, size, share)
            else:
                mix_one(to + 4 * c, values + 4 * c, step, weights, columns, size, share)
            c += LANES


@inner
def score(to: int, keys: int, step: int, q: int, d: int, short: int) -> None:
    """q · k of one column."""
    if short:
        bfloat16_one_output(to, 0, keys, step, q, d)
    else:
        one_output(to, 0, keys, step, q, d)


@inner
def store_row(at: int, x: Floats, short: int) -> None:
    """Write x (d,) into a cache, rounded to the nearest if it has bfloat16; ties to even, NaN stays NaN."""
    d = len(x)
    if not short:
        to = carray(pointer(at), (d,), np.float32)
        for c in range(d):
            to[c] = x[c]
        return
    halves, bits = carray(pointer(at), (d,), np.uint16), x.view(np.uint32)
    for c in range(d):
        if x[c] != x[c]:
            halves[c] = np.uint16(0x7FC0)
        else:
            odd = (bits[c] >> np.uint32(16)) & np.uint32(1)
            halves[c] = np.uint16((bits[c] + np.uint32(0x7FFF) + odd) >> np.uint32(16))


@inner
def rotate(to: Floats, x: int, cos: int, sin: int, d: int) -> None:
    """x (d,), rotated by angles whose cosines and sines are given; copied where ``cos`` is 0."""
    own = carray(pointer(x), (d,), np.float32)
    if cos == 0:
        for c in range(d):
            to[c] = own[c]
        return
    cosines, sines = carray(pointer(cos), (d,), np.float32), carray(pointer(sin), (d,), np.float32)
    half = d // 2
    for c in range(half):
        to[c] = own[c] * cosines[c] - own[c + half] * sines[c]
    for c in range(half, d):
        to[c] = own[c] * cosines[c] + own[c - half] * sines[c]


@inner
def score_all(scores: int, columns: Any, keys: int, step: int, q: int, d: int, first: int, end: int, short: int) -> int:
    """q · k_s of the columns from ``first`` to ``end`` − 1; returns their number."""
    s, size, each = 0, end - first, 2 if short else 4
    keys += each * first * step
    while s + LANES <= size:
        if short:
            bfloat16_one_row(scores + 4 * s, 0, keys + each * s * step, step, q, d)
        else:
            one_row(scores + 4 * s, 0, keys + each * s * step, step, q, d)
        s += LANES
    while s < size:
        score(scores + 4 * s, keys + each * s * step, step, q, d, short)
        s += 1
    for s in range(size):
        columns[s] = first + s
    return size


@inner
def score_seen(scores: int, columns: Any, keys: int, step: int, q: int, d: int, seen: Any, own: int, short: int) -> int:
    """q · k_s of the columns that are seen, and of the row's own new one; returns their number."""
    n, each = 0, 2 if short else 4
    for s in range(len(seen)):
        if seen[s]:
            columns[n] = s
            n += 1
    columns[n] = own
    for at in range(n + 1):
        score(scores + 4 * at, keys + each * columns[at] * step, step, q, d, short)
    return n + 1


@inner
def append(i: Any, r: int, g: int, at: int, space: Floats) -> None:
    """Write row r's new key and value of head g into the cache, ``at`` numbers after its start."""
    d, key, value, row, keys, values, cos, sin, short = i[3], i[6], i[7], i[8], i[9], i[10], i[15], i[16], i[24]
    angle, own, each = 4 * r * i[17], 4 * (r * row + g * d), 2 if short else 4
    rotate(space, key + own, cos + angle if cos else 0, sin + angle, d)
    store_row(keys + each * at, space, short)
    store_row(values + each * at, carray(pointer(value + own), (d,), np.float32), short)


@inner
def append_all(i: Any, rows: int, team: Any, lengths: Any, index: Any, space: Floats) -> None:
    """``append`` for all rows and key–value heads, which several query heads then read."""
    G, each, shared, written = i[23], i[20], i[21] != 0, i[22]
    _, _, board, give_way = team
    done = 0
    unit = take_chunk(board + PREPARING, rows * G)
    while unit < rows * G:
        r, g = unit // G, unit % G
        column = written + r % each if shared else lengths[r]
        append(i, r, g, (index[r] if i[18] else r // each) * i[11] + g * i[12] + column * i[19], space)
        done += 1
        unit = take_chunk(board + PREPARING, rows * G)
    finish_chunks(board + PREPARED, done, rows * G, give_way)


@inner
def attend(i: Any, rows: int, team: Any, workspace: Floats, columns: Any) -> None:
    """softmax(q Kᵀ / √d) V of each row and head, after its new key and value have joined the cache.

    Where k rows share a cache (see ensue.nn.key_value_cache), each has its own new column in it and sees its own past.
    """
    H, d, add, query, row = i[2], i[3], i[4] != 0, i[5], i[8]  # row: the distance between rows of queries
    keys, values, cache, head, step = i[9], i[10], i[11], i[12], i[19]
    lengths = carray(pointer(i[13]), (rows,), np.int64)
    out, cos, sin, angles, G = i[14], i[15], i[16], i[17], i[23]
    index, moved = carray(pointer(i[18]), (rows,), np.int64), i[18] != 0
    each, shared, written = i[20], i[21] != 0, i[22]
    seen = carray(pointer(i[21]), (rows, written), np.uint8)
    short, width = i[24], 2 if i[24] else 4
    span, cap = i[25], carray(pointer(i[26]), (1,), np.float32)
    q, space, scores = workspace[:d], workspace[d : 2 * d], workspace[2 * d :]
    at_q, at_scores, at_columns = np.int64(q.ctypes.data), np.int64(scores.ctypes.data), np.int64(columns.ctypes.data)
    scale = f32(1 / (np.sqrt(d) * np.log(2)))
    if add and G < H:
        append_all(i, rows, team, lengths, index, space)
    _, _, board, give_way = team
    done = 0
    unit = take_chunk(board + RANGES, rows * H)
    while unit < rows * H:
        r, h = unit // H, unit % H
        own = (index[r] if moved else r // each) * cache + h // (H // G) * head
        size, angle = lengths[r], 4 * r * angles
        column = written + r % each if shared else size
        rotate(q, query + 4 * (r * row + h * d), cos + angle if cos else 0, sin + angle, d)
        if add and G == H:
            append(i, r, h, own + column * step, space)
        if shared:
            size = score_seen(at_scores, columns, keys + width * own, step, at_q, d, seen[r], column, short)
        else:
            end = size + add
            first = end - span if 0 < span < end else 0
            size = score_all(at_scores, columns, keys + width * own, step, at_q, d, first, end, short)
        if i[26]:
            cap_row(at_scores, size, f32(2 / (np.sqrt(d) * np.log(2))) / cap[0], cap[0] * f32(np.sqrt(d)))
        share = f32(1) / softmax_row(at_scores, size, scale) if size else f32(0)  # a row that sees nothing gets 0
        to = out + 4 * (r * H * d + h * d)
        mix(to, values + width * own, step, at_scores, at_columns, size, share, d, short)
        done += 1
        unit = take_chunk(board + RANGES, rows * H)
    finish_chunks(board + FINISHED, done, rows * H, give_way)
