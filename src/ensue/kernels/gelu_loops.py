"""GELU in its tanh form, forward and backward.

    s = (1 + tanh z) / 2 = sigmoid(2z),  z = √(2/π) (u + 0.044715 u³)             (Hendrycks and Gimpel, 2016)
    f(u) = u s,   f′(u) = s + u s (1 − s) · 2 ∂z/∂u

One exponential gives both, so computing f again in the backward pass costs no more than its derivative alone.

Legend: M rows, D width.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic

from ensue.kernels.compile import inner, loop, next_chunk, pointer
from ensue.kernels.simd import INT64, LANES, Vectors, constant
from ensue.kernels.threads import PART

f32 = np.float32
SLOPE, CUBE = 2 * math.sqrt(2 / math.pi), 0.044715
"""2 z = SLOPE (u + CUBE u³)."""


def gelu_share(v: Vectors, u: Any) -> tuple[Any, Any, Any]:
    """s, 1 − s and u² of a vector u."""
    square = v.mul(u, u)
    share, rest = v.sigmoid(v.mul(u, v.add(v.mul(square, constant(SLOPE * CUBE)), constant(SLOPE))))
    return share, rest, square


@intrinsic  # type: ignore[untyped-decorator]
def gelu_vectors(context: Any, u: Any, to: Any, count: Any) -> Any:
    """f of ``count`` vectors."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        v, (u, to, count) = Vectors(builder), arguments
        with cgutils.for_range(builder, count) as step:
            x = v.load(u, (INT64(LANES), step.index))
            v.store(v.mul(x, gelu_share(v, x)[0]), to, (INT64(LANES), step.index))
        return context.get_dummy_value()

    return types.void(u, to, count), make


@intrinsic  # type: ignore[untyped-decorator]
def gelu_vectors_backward(context: Any, by: Any, u: Any, to: Any, sums: Any, count: Any) -> Any:
    """∂u of ``count`` vectors, written over ∂f and added to ``sums``, and f."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        v, (by, u, to, sums, count) = Vectors(builder), arguments
        with cgutils.for_range(builder, count) as step:
            at = (INT64(LANES), step.index)
            x = v.load(u, at)
            share, rest, square = gelu_share(v, x)
            f = v.mul(x, share)
            steep = v.add(v.mul(square, constant(3 * SLOPE * CUBE)), constant(SLOPE))
            slope = v.add(share, v.mul(v.mul(f, rest), steep))
            gradient = v.mul(v.load(by, at), slope)
            v.store(f, to, at)
            v.store(gradient, by, at)
            v.store(v.add(v.load(sums, at), gradient), sums, at)
        return context.get_dummy_value()

    return types.void(by, u, to, sums, count), make


@inner
def gelu_share_scalar(u: float) -> Any:
    """s and 1 − s of one float."""
    twice = f32(SLOPE) * u + f32(SLOPE * CUBE) * u * u * u
    power = np.exp(-abs(twice))
    larger = f32(1) / (f32(1) + power)
    smaller = power * larger
    return (larger, smaller) if twice > f32(0) else (smaller, larger)


@loop
def gelu(a: Any) -> None:
    """f(u), (M, D) → (M, D)."""
    M, D = a[1], a[2]
    u, h = carray(pointer(a[3]), (M, D), np.float32), carray(pointer(a[4]), (M, D), np.float32)
    whole = D // LANES
    start = next_chunk(a) * PART
    while start < M:
        for r in range(start, min(start + PART, M)):
            gelu_vectors(np.int64(a[3] + 4 * r * D), np.int64(a[4] + 4 * r * D), whole)
            for i in range(whole * LANES, D):
                h[r, i] = u[r, i] * gelu_share_scalar(u[r, i])[0]
        start = next_chunk(a) * PART


@loop
def gelu_backward(a: Any) -> None:
    """∂u, written over ∂f (M, D), f(u), and the sum of ∂u over each chunk, (chunks, D)."""
    M, D = a[1], a[2]
    by, u, h = (
        carray(pointer(a[3]), (M, D), np.float32),
        carray(pointer(a[4]), (M, D), np.float32),
        carray(pointer(a[5]), (M, D), np.float32),
    )
    sums = carray(pointer(a[6]), ((M + PART - 1) // PART, D), np.float32)
    whole = D // LANES
    chunk = next_chunk(a)
    while chunk * PART < M:
        sums[chunk] = f32(0)
        total = np.int64(a[6] + 4 * chunk * D)
        for r in range(chunk * PART, min((chunk + 1) * PART, M)):
            row = 4 * r * D
            gelu_vectors_backward(np.int64(a[3] + row), np.int64(a[4] + row), np.int64(a[5] + row), total, whole)
            for i in range(whole * LANES, D):
                share, rest = gelu_share_scalar(u[r, i])
                h[r, i] = u[r, i] * share
                steep = f32(SLOPE) + f32(3 * SLOPE * CUBE) * u[r, i] * u[r, i]
                by[r, i] *= share + h[r, i] * rest * steep
                sums[chunk, i] += by[r, i]
        chunk = next_chunk(a)
