"""Attention within short rows, forward and backward: weights are kept for the backward pass.

Legend: B rows, T queries, S keys, M tokens of all rows, H heads, d head width, D = H·d. A matrix is an address
and how far its rows are apart, in numbers. A loop is given ``a``, the row of numbers that ``ensue.kernels.threads.run``
makes.
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
    B, H, d, causal, most = a[2], a[3], a[4], a[5], a[6]
    rows = carray(pointer(a[7]), (B, 6), np.int64)
    query, key, value, out = two(a, 8), two(a, 10), two(a, 12), two(a, 14)
    workspace = np.zeros(d * whole_lanes(most), np.float32)
    scale = f32(1 / (np.sqrt(d) * np.log(2)))
    b = next_chunk(a)
    while b < B:
        row = rows[b]
        first, T, begin, S, size = row[0], row[1], row[2], row[3], row[4]
        wide = whole_lanes(T)
        transposed, weights = begin_of(workspace, d, wide), kept_weights(a, 16, row, H)
        for h in range(H):
            p = weights[h]
            transpose(head(query, first, h, d), transposed, T)
            matmul(matrix(p), as_left(head(key, begin, h, d)), matrix(transposed), S, wide, d)
            softmax(p, size, causal, scale)
            matmul(head(out, first, h, d), as_left_transposed(matrix(p)), head(value, begin, h, d), T, d, size)
        b = next_chunk(a)


@inner
def softmax_backward(p: Floats, by: Floats, scale: float) -> None:
    """∂S of ∂P, written over it."""
    for column in range(0, p.shape[1], LANES):
        softmax_columns_backward(matrix(p), matrix(by), len(p), column, scale)


@loop
def attend_backward(a: Any) -> None:
    """∂Q, ∂K, ∂V of ∂Y and Pᵀ."""
    B, H, d, most, longest = a[2], a[3], a[4], a[5], a[6]
    rows = carray(pointer(a[7]), (B, 6), np.int64)
    query, key, value, above = two(a, 8), two(a, 10), two(a, 12), two(a, 14)
    by_query, by_key, by_value = two(a, 16), two(a, 18), two(a, 20)
    workspace, scores = np.zeros(d * whole_lanes(most), np.float32), np.empty(longest * whole_lanes(most), np.float32)
    scale = f32(1 / np.sqrt(d))
    b = next_chunk(a)
    while b < B:
        row = rows[b]
        first, T, begin, S = row[0], row[1], row[2], row[3]
        wide = whole_lanes(T)
        transposed, weights = begin_of(workspace, d, wide), kept_weights(a, 22, row, H)
        by = begin_of(scores, S, wide)
        for h in range(H):
            p, by_y = weights[h], head(above, first, h, d)
            transpose(by_y, transposed, T)
            matmul(matrix(by), as_left(head(value, begin, h, d)), matrix(transposed), S, wide, d)
            softmax_backward(p, by, scale)
            matmul(head(by_query, first, h, d), as_left_transposed(matrix(by)), head(key, begin, h, d), T, d, S)
            matmul(head(by_key, begin, h, d), as_left(matrix(by)), head(query, first, h, d), S, d, T)
            matmul(head(by_value, begin, h, d), as_left(matrix(p)), by_y, S, d, T)
        b = next_chunk(a)
