"""Decodes weights in groups to float32, compiled by numba on first use and kept on disk.

Legend: P panels of LANES outputs, G groups; a load is what a decode step reads at once. A loop is given ``a``, the row
of numbers that ``ensue.kernels.threads.run`` makes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray

from ensue.kernels.compile import exact_loop, next_chunk, pointer
from ensue.kernels.threads import LANES

f32 = np.float32


@exact_loop
def decode_groups(a: Any) -> None:
    """W = s c + o of all panels, (P · LANES, G · group), a panel at a time."""
    P, G, loads, bits, shifted = a[1] // LANES, a[2], a[3], a[4], a[5]
    group = loads * 4 if bits == 4 else loads * 2
    inputs = G * group
    nibbles = carray(pointer(a[6]), (P, G, loads, LANES, 2), np.uint8)
    octets = carray(pointer(a[6]), (P, G, loads, LANES, 2), np.int8)
    scales = carray(pointer(a[7]), (P, G, LANES), np.float32)
    offsets = carray(pointer(a[8]), (P, G, LANES), np.float32)
    out = carray(pointer(a[9]), (P, LANES, inputs), np.float32)
    p = next_chunk(a)
    while p < P:
        for g in range(G):
            for j in range(LANES):
                s, o = scales[p, g, j], offsets[p, g, j] if shifted else f32(0)
                row = out[p, j, g * group : (g + 1) * group]
                if bits == 4:
                    for n in range(loads):
                        first, second = nibbles[p, g, n, j, 0], nibbles[p, g, n, j, 1]
                        row[4 * n] = f32(first & 15) * s + o
                        row[4 * n + 1] = f32(second & 15) * s + o
                        row[4 * n + 2] = f32(first >> 4) * s + o
                        row[4 * n + 3] = f32(second >> 4) * s + o
                else:
                    for n in range(loads):
                        row[2 * n] = f32(octets[p, g, n, j, 0]) * s + o
                        row[2 * n + 1] = f32(octets[p, g, n, j, 1]) * s + o
        p = next_chunk(a)


@exact_loop
def decode_rows(a: Any) -> None:
    """The rows of W for N indices, (N, G · group), a row at a time."""
    N, P, G, loads, bits, shifted = a[1], a[2], a[3], a[4], a[5], a[6]
    group = loads * 4 if bits == 4 else loads * 2
    nibbles = carray(pointer(a[7]), (P, G, loads, LANES, 2), np.uint8)
    octets = carray(pointer(a[7]), (P, G, loads, LANES, 2), np.int8)
    scales = carray(pointer(a[8]), (N, G), np.float32)
    offsets = carray(pointer(a[9]), (N, G), np.float32)
    index = carray(pointer(a[10]), (N,), np.int64)
    out = carray(pointer(a[11]), (N, G * group), np.float32)
    n = next_chunk(a)
    while n < N:
        p, j = index[n] // LANES, index[n] % LANES
        for g in range(G):
            s, o = scales[n, g], offsets[n, g] if shifted else f32(0)
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
