"""Decodes weights in groups to float32, compiled by numba on first use and kept on disk.

Legend: P panels of LANES outputs, G groups; a load is what a decode step reads at once. A loop is given ``a``, the row
of numbers that ``ensue.kernels.threads.run`` makes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic

from ensue.kernels.compile import exact_loop, next_chunk, pointer
from ensue.kernels.simd import FLOAT, INT64, INTS, LANES, VECTOR, Vectors

f32 = np.float32


def _decoding(bits: int) -> Any:
    """s c + o of LANES inputs of a panel: ``to`` is (address, row stride) of the outputs' rows.

    ``codes`` is the address of the codes, two bytes of an output beside those of the next one; ``shares`` those of the
    group's scales and offsets (0 for none); ``space`` has room for the codes. Bytes are transposed before they become
    floats: interleaving the first and the second half of the loads, log₂ of their number times, does that.
    """
    pairs, loads = ir.VectorType(ir.IntType(16), LANES), LANES * bits // 16
    size = 2 * loads  # bytes of LANES codes
    bytes_, wide = (ir.VectorType(ir.IntType(kind), size) for kind in (8, 32))
    sides = [INTS([lane // 2 + first + lane % 2 * LANES for lane in range(LANES)]) for first in (0, LANES // 2)]
    order = [lane // 4 * 2 + lane % 2 + lane % 4 // 2 * size for lane in range(LANES)]  # lower halves, upper halves

    def numbers(b: Any, row: Any) -> Any:
        """The codes of LANES inputs of an output as int32."""
        if bits == 8:
            return b.sext(row, wide)
        spread = b.zext(row, wide)
        lower, upper = b.and_(spread, wide([15] * size)), b.lshr(spread, wide([4] * size))
        return b.shuffle_vector(lower, upper, INTS(order))

    @intrinsic  # type: ignore[untyped-decorator]
    def decode(context: Any, to: Any, codes: Any, shares: Any, space: Any) -> Any:
        def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            b, v = builder, Vectors(builder)
            (to, to_row), (scales, offsets) = (cgutils.unpack_tuple(b, arguments[n]) for n in (0, 2))
            codes, space = arguments[1], arguments[3]

            def at(kind: Any, base: Any, step: int, number: Any) -> Any:
                return b.inttoptr(b.add(base, b.mul(INT64(step), number)), kind.as_pointer())

            rows = [b.load(at(pairs, codes, 2 * LANES, INT64(n)), align=1) for n in range(loads)]
            for _ in range(loads.bit_length() - 1):
                halves = zip(rows[: loads // 2], rows[loads // 2 :])
                rows = [b.shuffle_vector(one, other, side) for one, other in halves for side in sides]
            for n, row in enumerate(rows):
                b.store(row, at(pairs, space, 2 * LANES, INT64(n)), align=1)
            shifted = b.icmp_signed("!=", offsets, INT64(0))
            with cgutils.for_range(b, INT64(LANES)) as j:
                row = b.load(at(bytes_, space, size, j.index), align=1)
                x = b.fmul(b.sitofp(numbers(b, row), VECTOR), v.broadcast(b.load(at(FLOAT, scales, 4, j.index))))
                found = v.variable(0.0)
                b.store(x, found)
                with b.if_then(shifted):
                    b.store(b.fadd(x, v.broadcast(b.load(at(FLOAT, offsets, 4, j.index)))), found)
                v.store(b.load(found), to, (to_row, j.index))
            return context.get_dummy_value()

        return types.void(to, codes, shares, space), make

    return decode


decode_tile4, decode_tile8 = (_decoding(bits) for bits in (4, 8))


@exact_loop
def decode_groups(a: Any) -> None:
    """W = s c + o of all panels, (P · LANES, G · group), a panel at a time.

    Outputs' codes lie side by side, and an output's weights: LANES inputs of LANES outputs are decoded at a time.
    """
    P, G, loads, bits = a[1] // LANES, a[2], a[3], a[4]
    group = loads * 4 if bits == 4 else loads * 2
    inputs, whole = G * group, group - group % LANES
    nibbles = carray(pointer(a[6]), (P, G, loads, LANES, 2), np.uint8)
    octets = carray(pointer(a[6]), (P, G, loads, LANES, 2), np.int8)
    scales = carray(pointer(a[7]), (P, G, LANES), np.float32)
    offsets = carray(pointer(a[8]), (P, G, LANES), np.float32)
    out = carray(pointer(a[9]), (P, LANES, inputs), np.float32)
    space = np.empty(LANES * LANES, np.uint8)
    p = next_chunk(a)
    while p < P:
        here = np.int64(space.ctypes.data)  # within the loop: an array is freed after the last line that names it
        for g in range(G):
            number = p * G + g
            shares = a[7] + 4 * LANES * number, a[8] + 4 * LANES * number if a[5] else 0
            for i in range(0, whole, LANES):
                codes = a[6] + LANES * bits * (number * group + i) // 8
                to = a[9] + 4 * (p * LANES * inputs + g * group + i), inputs
                if bits == 4:
                    decode_tile4(to, codes, shares, here)
                else:
                    decode_tile8(to, codes, shares, here)
            for j in range(LANES):
                s, o = scales[p, g, j], offsets[p, g, j] if a[5] else f32(0)
                row = out[p, j, g * group : (g + 1) * group]
                if bits == 4:
                    for n in range(whole // 4, loads):
                        first, second = nibbles[p, g, n, j, 0], nibbles[p, g, n, j, 1]
                        row[4 * n] = f32(first & 15) * s + o
                        row[4 * n + 1] = f32(second & 15) * s + o
                        row[4 * n + 2] = f32(first >> 4) * s + o
                        row[4 * n + 3] = f32(second >> 4) * s + o
                else:
                    for n in range(whole // 2, loads):
                        row[2 * n] = f32(octets[p, g, n, j, 0]) * s + o
                        row[2 * n + 1] = f32(octets[p, g, n, j, 1]) * s + o
        p = next_chunk(a)


@exact_loop
def decode_rows(a: Any) -> None:
    """The rows of W for N indices, (N, G · group), a row at a time; scales and offsets are of the indices' panels."""
    N, P, G, loads, bits, shifted = a[1], a[2], a[3], a[4], a[5], a[6]
    group = loads * 4 if bits == 4 else loads * 2
    nibbles = carray(pointer(a[7]), (P, G, loads, LANES, 2), np.uint8)
    octets = carray(pointer(a[7]), (P, G, loads, LANES, 2), np.int8)
    scales = carray(pointer(a[8]), (N, G, LANES), np.float32)
    offsets = carray(pointer(a[9]), (N, G, LANES), np.float32)
    index = carray(pointer(a[10]), (N,), np.int64)
    out = carray(pointer(a[11]), (N, G * group), np.float32)
    n = next_chunk(a)
    while n < N:
        p, j = index[n] // LANES, index[n] % LANES
        for g in range(G):
            s, o = scales[n, g, j], offsets[n, g, j] if shifted else f32(0)
            row = out[n, g * group : (g + 1) * group]
            if bits == 4:
                for i in range(loads):
                    first, second = nibbles[p, g, i, j, 0], nibbles[p, g, i, j, 1]
                    row[4 * i], row[4 * i + 1] = f32(first & 15) * s + o, f32(second & 15) * s + o
                    row[4 * i + 2], row[4 * i + 3] = f32(first >> 4) * s + o, f32(second >> 4) * s + o
            else:
                for i in range(loads):
                    row[2 * i] = f32(octets[p, g, i, j, 0]) * s + o
                    row[2 * i + 1] = f32(octets[p, g, i, j, 1]) * s + o
        n = next_chunk(a)
