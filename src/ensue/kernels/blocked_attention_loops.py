"""Attention within rows of any length, compiled like ensue.kernels.elementwise_loops: a block of queries at a time,
whose weights are computed again in the backward pass. A table (H, T + S − 1) may hold what a head adds to scores by the
distance of a query from a key, from 1 − S to T − 1; its gradient is summed up row by row, (B, H, T + S − 1).

Legend: B rows, T queries, S keys, M tokens of all rows, H heads, G key–value heads, d head width, D = H·d. A matrix
is an address and how far its rows are apart, in numbers. A loop is given ``a``, the row of numbers that
``ensue.kernels.threads.run`` makes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray
from numpy.typing import NDArray

from ensue.kernels.compile import inner, loop, next_chunk, pointer
from ensue.kernels.elementwise_loops import random_words
from ensue.kernels.short_attention_loops import head, softmax_backward, two
from ensue.kernels.simd import LANES, ROWS
from ensue.kernels.softmax_loops import softmax_columns
from ensue.kernels.tiles import as_left, as_left_transposed, matmul, matmul_add, matrix, transpose, whole_rows

Floats = NDArray[np.float32]
f32 = np.float32

BLOCK = 64
"""How many queries are a block: with all their weights they stay in the cache."""
EACH = BLOCK // 8
"""Words of random bits for the weights of a key in a block, a byte each."""


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
def copy_transposed(x: Any, into: Floats, transposed: Floats, count: int) -> None:
    """``copy_in``, and the same transposed."""
    copy_in(x, into, count)
    transpose(matrix(into), transposed, BLOCK)


@inner
def begin_of(first: int, span: int) -> int:
    """The first key that a block of queries from ``first`` on sees, rounded down to whole rows; 0 without a span."""
    return int(max(0, first - span + 1) // ROWS * ROWS) if span else 0


@inner
def hide_far(p: Floats, first: int, count: int, size: int, causal: int, span: int) -> None:
    """−∞ for scores, (S, BLOCK), of keys that are ``span`` or more positions from the query.

    Columns from ``count`` on see no key; they keep something to see, or they would be NaN.
    """
    for s in range(max(0, min(size, first + count - span))):
        for i in range(max(0, s + span - first), count):
            p[s, i] = -np.inf
    if not causal:
        for s in range(max(0, first + span), size):
            for i in range(min(count, s - span - first + 1)):
                p[s, i] = -np.inf


@inner
def root_of(d: int, unscaled: int) -> Any:
    """What scores are divided by: √d, or 1."""
    return 1.0 if unscaled else np.sqrt(d)


@inner
def distances_of(table: int, head: int, size: int) -> Floats:
    """What a head adds to scores, by distance, of a table (H, size); nothing without a table."""
    row: Floats = carray(pointer(table + 4 * head * size), (size if table else 0,), np.float32)
    return row


@inner
def add_distances(p: Floats, by_distance: Floats, size: int, placed: Any, root: float) -> None:
    """Add to scores, (S, BLOCK), before they are divided; ``placed`` are the queries, and the entry of query 0 and key
    0."""
    (count, at), share = placed, f32(root)
    for s in range(size):
        for i in range(count):
            p[s, i] += by_distance[at + i - s] * share


@inner
def sum_distances(by: Floats, sums: Floats, size: int, placed: Any, root: float) -> None:
    """The gradient of ``add_distances``, added to what is there."""
    (count, at), share = placed, f32(root)
    for s in range(size):
        for i in range(count):
            sums[at + i - s] += by[s, i] * share


@inner
def block_weights(
    p: Floats, keys: Floats, transposed: Floats, block: Any, near: Any, by_distance: Floats, placed: Any, root: float
) -> None:
    """Pᵀ of a block of queries (see ``block_of``); those from ``real`` on see no key. ``near`` are causal and span."""
    (_, size, first, real), (causal, span) = block, near
    matmul(matrix(p), as_left(matrix(keys)), matrix(transposed), len(p), p.shape[1], len(transposed))
    if len(by_distance):
        add_distances(p, by_distance, size, placed, root)
    if span:
        hide_far(p, first, real, size, causal, span)
    scale = f32(1 / (root * np.log(2)))
    for column in range(0, p.shape[1], LANES):
        softmax_columns(matrix(p), size, column, first, causal, scale)
    p[size:] = f32(0)
    if span:
        p[:, real:] = f32(0)


@inner
def block_mask(mask: Floats, words: Any, seed: int, word: int, off: int) -> None:
    """m / (1 − p) of a block, (S, BLOCK); ``word`` is the number of its first random word."""
    on, bytes_ = f32(256 / (256 - off)), words.view(np.uint8)
    for s in range(len(mask)):
        random_words(words, seed, word + s * EACH)
        for i in range(mask.shape[1]):
            mask[s, i] = on if bytes_[i] >= off else f32(0)


@inner
def multiply(x: Floats, y: Floats) -> None:
    """x ∘ y, written over x."""
    for r in range(len(x)):
        for i in range(x.shape[1]):
            x[r, i] *= y[r, i]


@inner
def block_of(row: Any, first: int, causal: int, span: int) -> Any:
    """Of a block of queries from ``first`` on: its first key, how many keys from there on it sees (some of them only
    one query), its first query counted from that key, and how many of its queries see any."""
    count, end, begin = min(BLOCK, row[1] - first), row[4], begin_of(first, span)
    if causal:
        end = min(end, first + count)
    elif span:
        end = min(end, first + count + span - 1)
    real = min(count, row[4] + span - 1 - first) if span else count
    size = end - begin if real > 0 else 0
    return begin, size, first - begin, real


@inner
def first_word(unit: int, first: int, most: int, longest: int) -> int:
    """Where a block's random words begin: blocks of a head in order, then heads, then rows."""
    blocks = (most + BLOCK - 1) // BLOCK
    return int((unit * blocks + first // BLOCK) * whole_rows(longest) * EACH)


@loop
def attend_blocks(a: Any) -> None:
    """Y = (P ∘ m) V, (M, D), of rows of any length; without dropout ``off`` is 0."""
    B, H, d, G, causal, span, most, longest, seed, off = a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]
    rows = carray(pointer(a[12]), (B, 6), np.int64)
    query, key, value, out = two(a, 13), two(a, 15), two(a, 17), two(a, 19)
    root, table, distances = root_of(d, a[21]), a[22], most + longest - 1
    S = whole_rows(longest)
    keys, values = np.empty((S, d), np.float32), np.empty((S, d), np.float32)
    transposed, result = np.empty((d, BLOCK), np.float32), np.empty((BLOCK, d), np.float32)
    weights, mask = (
        np.empty((whole_rows(longest), BLOCK), np.float32),
        np.empty((whole_rows(longest), BLOCK), np.float32),
    )
    words = np.empty(EACH, np.uint64)
    unit = next_chunk(a)
    while unit < B * H:
        row, h = rows[unit // H], unit % H
        by_distance = distances_of(table, h, distances)
        copy_in(head(key, row[2], h // (H // G), d), keys, row[3])
        copy_in(head(value, row[2], h // (H // G), d), values, row[3])
        for first in range(0, row[1], BLOCK):
            count, block = min(BLOCK, row[1] - first), block_of(row, first, causal, span)
            begin, size = block[0], block[1]
            p = weights[: whole_rows(size)]
            if size == 0:
                result[:] = f32(0)
            else:
                transpose(head(query, row[0] + first, h, d), transposed, count)
                near, placed = (causal, span), (count, block[2] + longest - 1)
                block_weights(p, keys[begin:], transposed, block, near, by_distance, placed, root)
                if off:
                    word = first_word(unit, first, most, longest) + begin * EACH
                    block_mask(mask[: len(p)], words, seed, word, off)
                    multiply(p, mask)
                matmul(matrix(result), as_left_transposed(matrix(p)), matrix(values[begin:]), BLOCK, d, len(p))
            copy_out(result, head(out, row[0] + first, h, d), count)
        unit = next_chunk(a)


@loop
def attend_blocks_backward(a: Any) -> None:
    """∂Q, ∂K, ∂V of ∂Y; weights are made again."""
    B, H, d, G, causal, span, most, longest, seed, off = a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]
    rows = carray(pointer(a[12]), (B, 6), np.int64)
    query, key, value, above = two(a, 13), two(a, 15), two(a, 17), two(a, 19)
    by_query, by_key, by_value = two(a, 21), two(a, 23), two(a, 25)
    root, table, sums, distances, S = root_of(d, a[27]), a[28], a[29], most + longest - 1, whole_rows(longest)
    keys, values = np.empty((S, d), np.float32), np.empty((S, d), np.float32)
    by_keys, by_values = np.empty((S, d), np.float32), np.empty((S, d), np.float32)
    transposed, above_transposed = np.empty((d, BLOCK), np.float32), np.empty((d, BLOCK), np.float32)
    queries, by_y = np.empty((BLOCK, d), np.float32), np.empty((BLOCK, d), np.float32)
    weights, scores, mask = (
        np.empty((S, BLOCK), np.float32),
        np.empty((S, BLOCK), np.float32),
        np.empty((S, BLOCK), np.float32),
    )
    words, scale = np.empty(EACH, np.uint64), f32(1 / root)
    unit = next_chunk(a)
    while unit < B * G:
        b, g, row = unit // G, unit % G, rows[unit // G]
        copy_in(head(key, row[2], g, d), keys, row[3])
        copy_in(head(value, row[2], g, d), values, row[3])
        by_keys[:] = f32(0)
        by_values[:] = f32(0)
        blocks = (row[1] + BLOCK - 1) // BLOCK
        for number in range(H // G * blocks):  # of all query heads that share these keys
            h, first = g * (H // G) + number // blocks, number % blocks * BLOCK
            count, block = min(BLOCK, row[1] - first), block_of(row, first, causal, span)
            begin, size = block[0], block[1]
            if size == 0:
                queries[:] = f32(0)
                copy_out(queries, head(by_query, row[0] + first, h, d), count)
                continue
            p, by = weights[: whole_rows(size)], scores[: whole_rows(size)]
            copy_transposed(head(query, row[0] + first, h, d), queries, transposed, count)
            copy_transposed(head(above, row[0] + first, h, d), by_y, above_transposed, count)
            near, placed = (causal, span), (count, block[2] + longest - 1)
            block_weights(p, keys[begin:], transposed, block, near, distances_of(table, h, distances), placed, root)
            matmul(matrix(by), as_left(matrix(values[begin:])), matrix(above_transposed), len(p), BLOCK, d)
            if off:
                word = first_word(b * H + h, first, most, longest) + begin * EACH
                block_mask(mask[: len(p)], words, seed, word, off)
                multiply(by, mask)
            softmax_backward(p, by, scale)
            if table:
                sum_distances(by, distances_of(sums, b * H + h, distances), size, placed, root)
            if off:
                multiply(p, mask)
            matmul_add(matrix(by_keys[begin:]), as_left(matrix(by)), matrix(queries), len(p), d, BLOCK)
            matmul_add(matrix(by_values[begin:]), as_left(matrix(p)), matrix(by_y), len(p), d, BLOCK)
            matmul(matrix(queries), as_left_transposed(matrix(by)), matrix(keys[begin:]), BLOCK, d, len(p))
            copy_out(queries, head(by_query, row[0] + first, h, d), count)
        copy_out(by_keys, head(by_key, row[2], g, d), row[3])
        copy_out(by_values, head(by_value, row[2], g, d), row[3])
        unit = next_chunk(a)


@loop
def block_masks(a: Any) -> None:
    """The masks of all weights, (B, H, T, S), of rows with T queries and S keys."""
    B, H, most, longest, seed, off = a[2], a[3], a[4], a[5], a[6], a[7]
    out = carray(pointer(a[8]), (B * H, most, longest), np.float32)
    mask, words = np.empty((whole_rows(longest), BLOCK), np.float32), np.empty(EACH, np.uint64)
    unit = next_chunk(a)
    while unit < B * H:
        for first in range(0, most, BLOCK):
            block_mask(mask, words, seed, first_word(unit, first, most, longest), off)
            for t in range(first, min(first + BLOCK, most)):
                for s in range(longest):
                    out[unit, t, s] = mask[s, t - first]
        unit = next_chunk(a)
