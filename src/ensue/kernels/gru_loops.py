"""The GRU over time, forward and backward; see ensue.kernels.gru for the equations.

All threads go through time together. Each has some of the hidden units, PANEL at a time, and the weights of these stay
in its cache; it writes their part of h_t, or of the gradient, into a buffer that all read at the next step. After each
step threads wait for each other.

Legend: B rows, T time, N hidden width. A loop is given ``a``, the row of numbers that
``ensue.kernels.threads.run`` makes; after three sizes and the address of a barrier they are addresses.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ensue.kernels.compile import call, inner, loop, next_chunk
from ensue.kernels.panels import PANEL, multiply
from ensue.kernels.simd import INT64, LANES, Vectors, constant
from ensue.kernels.tiles import transpose_tile

f32 = np.float32


def _tanh(v: Vectors, x: Any) -> Any:
    """2 σ(2x) − 1."""
    share, rest = v.sigmoid(v.mul(x, constant(2.0)))
    return v.builder.fsub(share, rest)


def _rest(v: Vectors, x: Any) -> Any:
    """1 − x."""
    return v.builder.fsub(constant(1.0), x)


def _slope(v: Vectors, by: Any, gate: Any) -> Any:
    """∂ of a sigmoid's input: ∂ · g (1 − g)."""
    return v.mul(by, v.mul(gate, _rest(v, gate)))


def _tanh_slope(v: Vectors, by: Any, x: Any) -> Any:
    """∂ of a tanh's input: ∂ · (1 − x²)."""
    return v.mul(by, _rest(v, v.mul(x, x)))


def _addresses(builder: Any, arguments: Any) -> list[Any]:
    return [one for argument in arguments for one in cgutils.unpack_tuple(builder, argument)]


@intrinsic  # type: ignore[untyped-decorator]
def units(context: Any, sums: Any, gates: Any, apart: Any, hidden: Any, out: Any) -> Any:
    """A step of PANEL units of one row: U h; W x + b, written over by gates; h before it; U h of the candidate, which
    is kept; h, twice."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        v, (sums, gates, apart) = Vectors(builder), arguments[:3]
        before, inner_sum, h, copy = _addresses(builder, arguments[3:])
        with cgutils.for_range(builder, INT64(PANEL // LANES)) as step:
            at = (INT64(LANES), step.index)
            u = [v.load(sums, (INT64(PANEL), INT64(gate)), at) for gate in range(3)]
            x = [v.load(gates, (apart, INT64(gate)), at) for gate in range(3)]
            r, (z, rest) = v.sigmoid(v.add(x[0], u[0]))[0], v.sigmoid(v.add(x[1], u[1]))
            candidate = _tanh(v, v.add(x[2], v.mul(r, u[2])))
            for gate, value in enumerate((r, z, candidate)):
                v.store(value, gates, (apart, INT64(gate)), at)
            new = v.add(v.mul(z, v.load(before, at)), v.mul(rest, candidate))
            for value, to in ((u[2], inner_sum), (new, h), (new, copy)):
                v.store(value, to, at)
        return context.get_dummy_value()

    return types.void(sums, gates, apart, hidden, out), make


@intrinsic  # type: ignore[untyped-decorator]
def units_backward(context: Any, gates: Any, apart: Any, hidden: Any, above: Any, by: Any, copy: Any) -> Any:
    """The gradient of that step: gates; h before it and U h of the candidate; ∂h from above, from the next step's U h
    and from its z, which is written over; ∂ (W x + b), ∂ (U h), and the latter again."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        v, (gates, apart), copy = Vectors(builder), arguments[:2], arguments[5]
        before, inner_sum, above, after, by_kept, by_x, by_u = _addresses(builder, arguments[2:5])
        with cgutils.for_range(builder, INT64(PANEL // LANES)) as step:
            at = (INT64(LANES), step.index)
            r, z, candidate = (v.load(gates, (apart, INT64(gate)), at) for gate in range(3))
            by_h = v.add(v.add(v.load(above, at), v.load(after, at)), v.load(by_kept, at))
            by_z = _slope(v, v.mul(by_h, builder.fsub(v.load(before, at), candidate)), z)
            by_n = _tanh_slope(v, v.mul(by_h, _rest(v, z)), candidate)
            by_r = _slope(v, v.mul(by_n, v.load(inner_sum, at)), r)
            for gate, (value, recurrent) in enumerate(((by_r, by_r), (by_z, by_z), (by_n, v.mul(by_n, r)))):
                v.store(value, by_x, (apart, INT64(gate)), at)
                v.store(recurrent, by_u, (apart, INT64(gate)), at)
                v.store(recurrent, copy, (apart, INT64(gate)), at)
            v.store(v.mul(by_h, z), by_kept, at)
        return context.get_dummy_value()

    return types.void(gates, apart, hidden, above, by, copy), make


@inner
def share(a: Any, barrier: int, chunks: int) -> Any:
    """The chunks of this thread, from … to, out of as many as there are for all threads."""
    number = next_chunk(a)
    call(barrier)
    threads = a[0]
    return number * chunks // threads, (number + 1) * chunks // threads


@inner
def pack(weight: int, panels: int, N: int, first: int, last: int) -> None:
    """U (3 N, N) as panels of Uᵀ: chunk, gate, input, unit."""
    for chunk in range(first, last):
        for gate in range(3):
            to = panels + 4 * (chunk * 3 + gate) * N * PANEL
            for unit in range(0, PANEL, LANES):
                row = weight + 4 * (gate * N + chunk * PANEL + unit) * N
                for k in range(0, N, LANES):
                    there = (np.int64(to + 4 * (k * PANEL + unit)), np.int64(PANEL))
                    transpose_tile(there, (np.int64(row + 4 * k), np.int64(N)), np.int64(LANES - 1))


@loop
def gru_steps(a: Any) -> None:
    """U, its panels, gates (B, T, 3 N), U h of the candidate (B, T, N), h (B, T, N), h of two steps (2, B, N + 16)
    and a workspace (B + 3, 3 PANEL) for each chunk."""
    B, T, N, barrier = a[2], a[3], a[4], a[5]
    wide, row, size = N + LANES, 3 * N, 3 * PANEL
    first, last = share(a, barrier, N // PANEL)
    pack(a[6], a[7], N, first, last)
    for t in range(T):
        for chunk in range(first, last):
            sums, unit = a[12] + 4 * chunk * (B + 3) * size, chunk * PANEL
            h, new = a[11] + 4 * (t % 2) * B * wide, a[11] + 4 * ((t + 1) % 2) * B * wide
            for gate in range(3):
                multiply((sums + 4 * gate * PANEL, size), (h, wide), a[7] + 4 * (chunk * 3 + gate) * N * PANEL, B, N)
            for b in range(B):
                here, inside = 4 * ((b * T + t) * N + unit), 4 * (b * wide + unit)
                units(
                    sums + 4 * b * size,
                    a[8] + 4 * ((b * T + t) * row + unit),
                    N,
                    (h + inside, a[9] + here),
                    (a[10] + here, new + inside),
                )
        call(barrier)


@inner
def copy_panels(weight: int, panels: int, rows: int, N: int, first: int, last: int) -> None:
    """U (rows, N) as panels: chunk, row, unit."""
    for chunk in range(first, last):
        for k in range(rows):
            copy_panel(weight + 4 * (k * N + chunk * PANEL), panels + 4 * (chunk * rows + k) * PANEL)


@intrinsic  # type: ignore[untyped-decorator]
def copy_panel(context: Any, x: Any, to: Any) -> Any:
    """PANEL floats."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        v = Vectors(builder)
        for half in range(PANEL // LANES):
            at = (INT64(LANES), INT64(half))
            v.store(v.load(arguments[0], at), arguments[1], at)
        return context.get_dummy_value()

    return types.void(x, to), make


@loop
def gru_steps_backward(a: Any) -> None:
    """U, its panels, gates, U h of the candidate, h before each step (B, T, N), ∂h from above, ∂h of the last step,
    which becomes that before the first, ∂ (W x + b) and ∂ (U h) (B, T, 3 N), the latter of two steps, workspaces and
    ∂h by way of z (B, N)."""
    B, T, N, barrier = a[2], a[3], a[4], a[5]
    wide, row = 3 * N + LANES, 3 * N
    first, last = share(a, barrier, N // PANEL)
    copy_panels(a[6], a[7], row, N, first, last)
    for back in range(T + 1):
        t = T - 1 - back
        for chunk in range(first, last):
            unit, by_h = chunk * PANEL, a[16] + 4 * chunk * (B + 3) * PANEL
            if back:
                later = a[15] + 4 * ((t + 1) % 2) * B * wide
                multiply((by_h, np.int64(PANEL)), (later, wide), a[7] + 4 * chunk * row * PANEL, B, row)
            for b in range(B):
                inside, after = 4 * (b * N + unit), by_h + 4 * b * PANEL
                if t < 0:
                    copy_panel(after, a[12] + inside)
                    continue
                here, gates = 4 * ((b * T + t) * N + unit), 4 * ((b * T + t) * row + unit)
                units_backward(
                    a[8] + gates,
                    N,
                    (a[10] + here, a[9] + here),
                    (a[11] + here, after if back else a[12] + inside, a[17] + inside),
                    (a[13] + gates, a[14] + gates),
                    a[15] + 4 * ((t % 2 * B + b) * wide + unit),
                )
        call(barrier)
