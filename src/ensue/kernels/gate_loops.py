"""What a gate lets through, forward and backward.

    h = f(g) ∘ u,   ∂g = ∂h ∘ u ∘ f′(g),   ∂u = ∂h ∘ f(g)
    SiLU(g) = g s,  s = sigmoid(g),   SiLU′(g) = s + g s (1 − s);   GELU and its derivative: ensue.kernels.gelu_loops

One exponential gives f and f′, so the backward pass keeps g and u only.

Legend: N floats, at least one vector of them; the last vector overlaps the one before it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ensue.kernels.compile import inner, loop, next_chunk
from ensue.kernels.gelu_loops import CUBE, SLOPE, gelu_share
from ensue.kernels.simd import INT64, LANES, Vectors, constant

VECTORS = 512
"""Vectors of a chunk of work."""


def _silu(v: Vectors, g: Any) -> tuple[Any, Any]:
    """f(g) and f′(g) of a vector."""
    share, rest = v.sigmoid(g)
    f = v.mul(g, share)
    return f, v.add(share, v.mul(f, rest))


def _gelu(v: Vectors, g: Any) -> tuple[Any, Any]:
    """The same of GELU in its tanh form."""
    share, rest, square = gelu_share(v, g)
    f = v.mul(g, share)
    steep = v.add(v.mul(square, constant(3 * SLOPE * CUBE)), constant(SLOPE))
    return f, v.add(share, v.mul(v.mul(f, rest), steep))


def _forward(activation: Any, context: Any, builder: Any, arguments: Any) -> Any:
    """h = f(g) ∘ u of ``count`` vectors."""
    v, (g, u, h, count) = Vectors(builder), arguments
    with cgutils.for_range(builder, count) as step:
        at = (INT64(LANES), step.index)
        v.store(v.mul(activation(v, v.load(g, at))[0], v.load(u, at)), h, at)
    return context.get_dummy_value()


def _backward(activation: Any, context: Any, builder: Any, arguments: Any) -> Any:
    """∂g, ∂u and h of ``count`` vectors."""
    v, (by, g, u, by_g, by_u, h, count) = Vectors(builder), arguments
    with cgutils.for_range(builder, count) as step:
        at = (INT64(LANES), step.index)
        above, other = v.load(by, at), v.load(u, at)
        f, slope = activation(v, v.load(g, at))
        v.store(v.mul(f, other), h, at)
        v.store(v.mul(above, f), by_u, at)
        v.store(v.mul(v.mul(above, other), slope), by_g, at)  # last, as it may stand where h does
    return context.get_dummy_value()


@intrinsic  # type: ignore[untyped-decorator]
def silu_gate(context: Any, g: Any, u: Any, h: Any, count: Any) -> Any:
    """h of ``count`` vectors, f = SiLU."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _forward(_silu, context, builder, arguments)

    return types.void(g, u, h, count), make


@intrinsic  # type: ignore[untyped-decorator]
def gelu_gate(context: Any, g: Any, u: Any, h: Any, count: Any) -> Any:
    """h of ``count`` vectors, f = GELU."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _forward(_gelu, context, builder, arguments)

    return types.void(g, u, h, count), make


@intrinsic  # type: ignore[untyped-decorator]
def silu_gate_backward(context: Any, by: Any, g: Any, u: Any, by_g: Any, by_u: Any, h: Any, count: Any) -> Any:
    """∂g, ∂u and h of ``count`` vectors, f = SiLU."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _backward(_silu, context, builder, arguments)

    return types.void(by, g, u, by_g, by_u, h, count), make


@intrinsic  # type: ignore[untyped-decorator]
def gelu_gate_backward(context: Any, by: Any, g: Any, u: Any, by_g: Any, by_u: Any, h: Any, count: Any) -> Any:
    """∂g, ∂u and h of ``count`` vectors, f = GELU."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _backward(_gelu, context, builder, arguments)

    return types.void(by, g, u, by_g, by_u, h, count), make


@inner
def pieces(chunk: int, size: int) -> Any:
    """Whole vectors of a chunk, and the last vector of all where some floats are left: (offset in bytes, number)."""
    first = chunk * VECTORS * LANES
    count = min(VECTORS, (size - first) // LANES)
    left = count < VECTORS and first + count * LANES < size
    return (np.int64(4 * first), np.int64(count)), (np.int64(4 * (size - LANES)), np.int64(1 if left else 0))


@loop
def gate(a: Any) -> None:
    """h = f(g) ∘ u, (N,); f is GELU where ``gelu`` is not 0, else SiLU."""
    size, gelu, g, u, h = a[2], a[3], a[4], a[5], a[6]
    chunk = next_chunk(a)
    while chunk * VECTORS * LANES < size:
        for at, count in pieces(chunk, size):
            if gelu:
                gelu_gate(g + at, u + at, h + at, count)
            else:
                silu_gate(g + at, u + at, h + at, count)
        chunk = next_chunk(a)


@loop
def gate_backward(a: Any) -> None:
    """∂g, ∂u and h, (N,)."""
    size, gelu, by, g, u, by_g, by_u, h = a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9]
    chunk = next_chunk(a)
    while chunk * VECTORS * LANES < size:
        for at, count in pieces(chunk, size):
            if gelu:
                gelu_gate_backward(by + at, g + at, u + at, by_g + at, by_u + at, h + at, count)
            else:
                silu_gate_backward(by + at, g + at, u + at, by_g + at, by_u + at, h + at, count)
        chunk = next_chunk(a)
