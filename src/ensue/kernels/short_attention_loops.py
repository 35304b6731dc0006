"""Attention within short rows, forward and backward: weights are kept for the backward pass.

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
from ensue.kernels.simd import LANES
from ensue.kernels.softmax_loops import softmax_columns, softmax_columns_backward
from ensue.kernels.tiles import as_left, as_left_transposed, matmul, matrix, transpose, whole_lanes

Floats = NDArray[np.float32]
f32 = np.float32


@inner
def two(a: Any, at: int) -> Any:
    """A part (M, D): its matrix, and how far tokens are apart."""
    return a[at], a[at + 1]


@inner
def head(part: Any, first: int, h: int, d: int) -> Any:
    """A head of a row, (T, d), that begins at token ``first`` of a part."""
    return part[0] + 4 * (first * part[1] + h * d), part[1]


@inner
def kept_weights(a: Any, field: int, row: Any, heads: int) -> Any:
    """Pᵀ of a row of ``ensue.kernels.packing.AttentionRows``, (H, S, T) with T rounded up to whole lanes."""
    return carray(pointer(a[field] + 4 * heads * row[5]), (heads, row[3], whole_lanes(row[1])), np.float32)


@inner
def softmax(p: Floats, size: int, causal: int, scale: float) -> None:
    """The softmax of each column of scores (S, T), of which ``size`` rows are seen."""
    for column in range(0, p.shape[1], LANES):
        softmax_columns(matrix(p), size, column, 0, causal, scale)
    p[size:] = f32(0)


@inner
def begin_of(workspace: Floats, rows: int, columns: int) -> Floats:
    """The first numbers of a workspace as a matrix."""
    matrix: Floats = carray(pointer(np.int64(workspace.ctypes.data)), (rows, columns), np.float32)
    return matrix


@loop
def attend(a: Any) -> None:
    """Y = P V, (M, D), and Pᵀ = softmax(K Qᵀ / √d) of each row."""
    B, H, d, shared, causal, most = a[2], a[3], a[4], a[3] // a[5], a[6], a[7]
    rows = carray(pointer(a[8]), (B, 6), np.int64)
    query, key, value, out = two(a, 9), two(a, 11), two(a, 13), two(a, 15)
    workspace = np.zeros(d * whole_lanes(most), np.float32)
    scale = f32(1 / (np.sqrt(d) * np.log(2)))
    b = next_chunk(a)
    while b < B:
        row = rows[b]
        first, T, begin, S, size = row[0], row[1], row[2], row[3], row[4]
        wide = whole_lanes(T)
        transposed, weights = begin_of(workspace, d, wide), kept_weights(a, 17, row, H)
        for h in range(H):
            p, g = weights[h], h // shared
            transpose(head(query, first, h, d), transposed, T)
            matmul(matrix(p), as_left(head(key, begin, g, d)), matrix(transposed), S, wide, d)
            softmax(p, size, causal, scale)
            matmul(head(out, first, h, d), as_left_transposed(matrix(p)), head(value, begin, g, d), T, d, size)
        b = next_chunk(a)


@inner
def softmax_backward(p: Floats, by: Floats, scale: float) -> None:
    """∂S of ∂P, written over it."""
    for column in range(0, p.shape[1], LANES):
        softmax_columns_backward(matrix(p), matrix(by), len(p), column, scale)


@inner
def matmul_shared(to: Any, left: Any, right: Any, sizes: Any, workspace: Floats, first: bool) -> None:
    """A B; added to the result for all query heads that share it but the first. A last tile overlaps another one."""
    rows, columns, count = sizes
    if first:
        matmul(to, left, right, rows, columns, count)
        return
    matmul(matrix(workspace), left, right, rows, columns, count)
    for r in range(rows):
        row = carray(pointer(to[0] + 4 * r * to[1]), (columns,), np.float32)
        for i in range(columns):
            row[i] += workspace[r, i]


@loop
def attend_backward(a: Any) -> None:
    """∂Q, ∂K, ∂V of ∂Y and Pᵀ."""
    B, H, d, shared, most, longest = a[2], a[3], a[4], a[3] // a[5], a[6], a[7]
    rows = carray(pointer(a[8]), (B, 6), np.int64)
    query, key, value, above = two(a, 9), two(a, 11), two(a, 13), two(a, 15)
    by_query, by_key, by_value = two(a, 17), two(a, 19), two(a, 21)
    product = np.empty((longest, d), np.float32)
    workspace, scores = np.zeros(d * whole_lanes(most), np.float32), np.empty(longest * whole_lanes(most), np.float32)
    scale = f32(1 / np.sqrt(d))
    b = next_chunk(a)
    while b < B:
        row = rows[b]
        first, T, begin, S = row[0], row[1], row[2], row[3]
        wide = whole_lanes(T)
        transposed, weights = begin_of(workspace, d, wide), kept_weights(a, 23, row, H)
        by = begin_of(scores, S, wide)
        for h in range(H):
            p, by_y, g, alone = weights[h], head(above, first, h, d), h // shared, h % shared == 0
            transpose(by_y, transposed, T)
            matmul(matrix(by), as_left(head(value, begin, g, d)), matrix(transposed), S, wide, d)
            softmax_backward(p, by, scale)
            matmul(head(by_query, first, h, d), as_left_transposed(matrix(by)), head(key, begin, g, d), T, d, S)
            own, sizes = head(query, first, h, d), (S, d, T)
            matmul_shared(head(by_key, begin, g, d), as_left(matrix(by)), own, sizes, product, alone)
            matmul_shared(head(by_value, begin, g, d), as_left(matrix(p)), by_y, sizes, product, alone)
        b = next_chunk(a)
