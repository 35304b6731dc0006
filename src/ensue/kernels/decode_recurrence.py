"""Linear attention of a decode program: each row's new token updates the matrix of every head, and reads it.

    S′ = S + φ(k) vᵀ,        z′ = z + φ(k),    y = S′ᵀ φ(q) / (z′ · φ(q)),    φ(x) = elu(x) + 1
    S′ = diag(g) S + k vᵀ,   y = S′ᵀ q / √d                                   with decays g, without features φ

In the first form g is 1. A decay is one number for each head, or one for each of its channels, computed from the token:
g = σ(u)^(1/2ⁿ), at least e^LEAST as in ensue.kernels.linear_scan. Where S and z are, and where S′ and z′ are written,
ensue.kernels.decode_states says.

It is compiled into ensue.kernels.decode_loops. Legend: R rows, H heads, G key–value heads, d head width.
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

from ensue.kernels.compile import inner, pointer
from ensue.kernels.decode_attention import rotate
from ensue.kernels.decode_matmul import WIDE
from ensue.kernels.decode_program import FINISHED, RANGES
from ensue.kernels.linear_scan import LEAST
from ensue.kernels.simd import FLOAT, INT64, LANES, VECTOR, Vectors, constant
from ensue.kernels.work_sharing import finish_chunks, take_chunk

Floats = NDArray[np.float32]
f32 = np.float32
AT_ONCE = 4 if WIDE else 2
"""Vectors of columns side by side: their values and sums stay in registers."""
TINY = np.finfo(np.float32).tiny


def _updating(vectors: int) -> Any:
    """``vectors`` vectors of columns of S′ = diag(g) S + k vᵀ, and of y = share · S′ᵀ q."""

    @intrinsic  # type: ignore[untyped-decorator]
    def update(context: Any, to: Any, value: Any, matrices: Any, features: Any, d: Any, share: Any) -> Any:
        def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            to, value, _, _, d, share = arguments
            before, after = cgutils.unpack_tuple(builder, arguments[2])
            v, columns = Vectors(builder), [(INT64(LANES), INT64(c)) for c in range(vectors)]
            new, sums = [v.load(value, column) for column in columns], [v.variable(0.0) for _ in columns]
            with cgutils.for_range(builder, d) as f:
                q, k, g = (
                    v.broadcast(builder.load(v.at(FLOAT, one, (INT64(1), f.index)), align=4))
                    for one in cgutils.unpack_tuple(builder, arguments[3])
                )
                for column, own, total in zip(columns, new, sums):
                    s = v.add(v.mul(g, v.load(before, (d, f.index), column)), v.mul(k, own))
                    v.store(s, after, (d, f.index), column)
                    builder.store(v.add(builder.load(total), v.mul(q, s)), total)
            for column, total in zip(columns, sums):
                v.store(v.mul(builder.load(total), v.broadcast(share)), to, column)
            return context.get_dummy_value()

        return types.void(to, value, matrices, features, d, share), make

    return update


update_some, update_one = _updating(AT_ONCE), _updating(1)


@inner
def update(to: int, value: int, before: int, after: int, features: Any, d: int, share: Any) -> None:
    """All d columns of S′ and y; ``features`` are the addresses of q, k and g."""
    c = 0
    while c < d:
        if c + AT_ONCE * LANES <= d:
            update_some(to + 4 * c, value + 4 * c, (before + 4 * c, after + 4 * c), features, d, share)
            c += AT_ONCE * LANES
        else:
            update_one(to + 4 * c, value + 4 * c, (before + 4 * c, after + 4 * c), features, d, share)
            c += LANES


@intrinsic  # type: ignore[untyped-decorator]
def elu_features(context: Any, x: Any, d: Any) -> Any:
    """φ(x) = x + 1 where x > 0, else eˣ, of d floats in place."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        base, d = arguments
        v, zero = Vectors(builder), constant(0.0)
        with cgutils.for_range(builder, builder.udiv(d, INT64(LANES))) as step:
            own = v.load(base, (INT64(LANES), step.index))
            above = builder.fcmp_ordered(">", own, zero)
            power = v.exp2(v.mul(builder.select(above, zero, own), constant(1 / math.log(2))))
            v.store(builder.select(above, v.add(own, constant(1.0)), power), base, (INT64(LANES), step.index))
        return context.get_dummy_value()

    return types.void(x, d), make


@intrinsic  # type: ignore[untyped-decorator]
def gate_decays(context: Any, to: Any, u: Any, d: Any, roots: Any) -> Any:
    """g = max(σ(u)^(1/2ⁿ), e^LEAST) of d floats; n square roots."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to, u, d, roots = arguments
        v = Vectors(builder)
        root = builder.module.declare_intrinsic(f"llvm.sqrt.v{LANES}f32", (), ir.FunctionType(VECTOR, [VECTOR]))
        found = v.variable(0.0)
        with cgutils.for_range(builder, builder.udiv(d, INT64(LANES))) as step:
            builder.store(v.sigmoid(v.load(u, (INT64(LANES), step.index)))[0], found)
            with cgutils.for_range(builder, roots):
                builder.store(builder.call(root, [builder.load(found)]), found)
            g = v.maximum(constant(math.exp(LEAST)), builder.load(found))
            v.store(g, to, (INT64(LANES), step.index))
        return context.get_dummy_value()

    return types.void(to, u, d, roots), make


@inner
def add_total(before: int, after: int, q: Floats, k: Floats) -> Any:
    """z′ = z + k; returns 1 / (z′ · q)."""
    d, size = len(q), f32(0)
    z, to = carray(pointer(before), (d,), np.float32), carray(pointer(after), (d,), np.float32)
    for f in range(d):
        new = z[f] + k[f]
        to[f] = new
        size += q[f] * new
    return f32(1) / (TINY if size < TINY else size)


@inner
def recur(i: Any, rows: int, team: Any, workspace: Floats) -> None:
    """S′, z′ and y of each row and head."""
    H, d, G, query, key, value, row = i[2], i[3], i[4], i[5], i[6], i[7], i[8]
    before, after, z, to_z, out, cos, sin, angles = i[9], i[10], i[11], i[12], i[13], i[14], i[15], i[16]
    elu, decays, channels, roots = i[17] != 0, i[18], i[19], i[20]
    q, k, g = workspace[:d], workspace[d : 2 * d], workspace[2 * d : 3 * d]
    at_q, at_k, at_g = np.int64(q.ctypes.data), np.int64(k.ctypes.data), np.int64(g.ctypes.data)
    _, _, board, give_way = team
    done = 0
    unit = take_chunk(board + RANGES, rows * H)
    while unit < rows * H:
        r, h = unit // H, unit % H
        head, angle = 4 * (r * row + h // (H // G) * d), 4 * r * angles
        rotate(q, query + 4 * (r * row + h * d), cos + angle if cos else 0, sin + angle, d)
        rotate(k, key + head, cos + angle if cos else 0, sin + angle, d)
        share = f32(1 / np.sqrt(d))
        if elu:
            elu_features(at_q, d)
            elu_features(at_k, d)
            share = add_total(z + 4 * unit * d, to_z + 4 * unit * d, q, k)
        if channels:
            gate_decays(at_g, decays + 4 * (r * channels + h * d), d, roots)
        else:
            g[:] = np.exp(carray(pointer(decays), (H,), np.float32)[h]) if decays else f32(1)
        size = 4 * unit * d * d
        update(out + 4 * unit * d, value + head, before + size, after + size, (at_q, at_k, at_g), d, share)
        done += 1
        unit = take_chunk(board + RANGES, rows * H)
    finish_chunks(board + FINISHED, done, rows * H, give_way)
