"""u Φ(u) in its tanh form, compiled like ensue.kernels.elementwise_loops, and the way back, which makes it again
instead of keeping it.

    s = (1 + tanh z) / 2 = 1 / (1 + e⁻²ᶻ),  z = √(2/π) (u + 0.044715 u³)             (Hendrycks and Gimpel, 2016)
    f(u) = u s,   f′(u) = s + u s (1 − s) · 2 ∂z/∂u

One exponential gives both, so that to make f again on the way back costs no more than its derivative alone.

Legend: M rows, D width. A loop is given ``a``, the row of numbers that ``ensue.kernels.threads.run`` makes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic

from ensue.kernels.compile import inner, loop, next_chunk, pointer
from ensue.kernels.simd import LANES, WHOLE, Vectors, constant
from ensue.kernels.threads import PART

f32 = np.float32
SLOPE, CUBE = 2 * math.sqrt(2 / math.pi), 0.044715
"""2 z = SLOPE (u + CUBE u³)."""


def _share(v: Vectors, u: Any, square: Any) -> Any:
    """s of a vector u, and 1 − s: of e⁻²ᶻ whatever the sign of z, from that of −|2z|, which is never too large."""
    b = v.builder
    twice = v.times(u, v.add(v.times(square, constant(SLOPE * CUBE)), constant(SLOPE)))
    above = b.fcmp_ordered(">", twice, constant(0.0))
    power = v.power_of_two(v.times(b.select(above, b.fneg(twice), twice), constant(1 / math.log(2))))
    larger = b.fdiv(constant(1.0), v.add(power, constant(1.0)))
    smaller = v.times(power, larger)
    return b.select(above, larger, smaller), b.select(above, smaller, larger)


@intrinsic  # type: ignore[untyped-decorator]
def bend(context: Any, u: Any, to: Any, count: Any) -> Any:
    """f of ``count`` vectors."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        v, (u, to, count) = Vectors(builder), arguments
        with cgutils.for_range(builder, count) as step:
            held = v.load(u, (WHOLE(LANES), step.index))
            share, _ = _share(v, held, v.times(held, held))
            v.store(v.times(held, share), to, (WHOLE(LANES), step.index))
        return context.get_dummy_value()

    return types.void(u, to, count), make


@intrinsic  # type: ignore[untyped-decorator]
def bend_backward(context: Any, by: Any, u: Any, to: Any, sums: Any, count: Any) -> Any:
    """∂u of ``count`` vectors, written over ∂f and added to ``sums``, and f."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        v, (by, u, to, sums, count) = Vectors(builder), arguments
        with cgutils.for_range(builder, count) as step:
            at = (WHOLE(LANES), step.index)
            held = v.load(u, at)
            square = v.times(held, held)
            share, rest = _share(v, held, square)
            bent = v.times(held, share)
            steep = v.add(v.times(square, constant(3 * SLOPE * CUBE)), constant(SLOPE))
            slope = v.add(share, v.times(v.times(bent, rest), steep))
            found = v.times(v.load(by, at), slope)
            v.store(bent, to, at)
            v.store(found, by, at)
            v.store(v.add(v.load(sums, at), found), sums, at)
        return context.get_dummy_value()

    return types.void(by, u, to, sums, count), make


@inner
def share_of(u: float) -> Any:
    """s and 1 − s of one number."""
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
            bend(np.int64(a[3] + 4 * r * D), np.int64(a[4] + 4 * r * D), whole)
            for i in range(whole * LANES, D):
                h[r, i] = u[r, i] * share_of(u[r, i])[0]
        start = next_chunk(a) * PART


@loop
def gelu_backward(a: Any) -> None:
    """∂u, written over ∂f (M, D), f(u), and the sum of ∂u over each part, (parts, D)."""
    M, D = a[1], a[2]
    by, u, h = (
        carray(pointer(a[3]), (M, D), np.float32),
        carray(pointer(a[4]), (M, D), np.float32),
        carray(pointer(a[5]), (M, D), np.float32),
    )
    sums = carray(pointer(a[6]), ((M + PART - 1) // PART, D), np.float32)
    whole = D // LANES
    part = next_chunk(a)
    while part * PART < M:
        sums[part] = f32(0)
        total = np.int64(a[6] + 4 * part * D)
        for r in range(part * PART, min((part + 1) * PART, M)):
            row = 4 * r * D
            bend_backward(np.int64(a[3] + row), np.int64(a[4] + row), np.int64(a[5] + row), total, whole)
            for i in range(whole * LANES, D):
                share, rest = share_of(u[r, i])
                h[r, i] = u[r, i] * share
                steep = f32(SLOPE) + f32(3 * SLOPE * CUBE) * u[r, i] * u[r, i]
                by[r, i] *= share + h[r, i] * rest * steep
                sums[part, i] += by[r, i]
        part = next_chunk(a)
