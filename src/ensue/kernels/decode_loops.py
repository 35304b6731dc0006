"""What a tape is played with, compiled like ensue.kernels.elementwise_loops: norms, linear layers, attention to a
memory.

All threads go through the same instructions; within one each takes parts of the work until none is left, and then they
wait for each other (ensue.kernels.decode_threads, tape_linear, tape_attention).

Legend: R rows, D width. An instruction is WIDTH whole numbers, addresses among them; the first is what is to be done,
the second how many parts are taken already.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray

from ensue.kernels import decode_program as layout
from ensue.kernels.compile import call, inner, loop, next_chunk, pointer
from ensue.kernels.decode_attention import attend
from ensue.kernels.decode_linear import linear

NORM, LINEAR, ATTEND, WIDTH = 1, 2, 3, 24
assert (NORM, LINEAR, ATTEND, WIDTH) == (layout.NORM, layout.LINEAR, layout.ATTEND, layout.WIDTH)  # kept on disk too

f32 = np.float32


@inner
def norm(i: Any, rows: int, counter: int) -> None:
    """LN(x) of each row, (R, D)."""
    D = i[2]
    x, z = carray(pointer(i[3]), (rows, D), np.float32), carray(pointer(i[4]), (rows, D), np.float32)
    weight, bias = carray(pointer(i[5]), (D,), np.float32), carray(pointer(i[6]), (D,), np.float32)
    epsilon = carray(pointer(i[7]), (1,), np.float32)[0]
    r = next_chunk(counter)
    while r < rows:
        total, square = f32(0), f32(0)
        for c in range(D):
            total += x[r, c]
        mean = total / f32(D)
        for c in range(D):
            square += (x[r, c] - mean) * (x[r, c] - mean)
        scale = f32(1) / np.sqrt(square / f32(D) + epsilon)
        for c in range(D):
            z[r, c] = (x[r, c] - mean) * scale * weight[c] + bias[c]
        r = next_chunk(counter)


@loop
def play(a: Any) -> None:
    """Go through a tape: ``a`` holds a counter of threads, the rows, how many instructions, where they are, where to
    wait, room for each thread, how much that is, for how many numbers and places it has room, and room for all."""
    rows, count, barrier = a[1], a[2], a[4]
    tape = carray(pointer(a[3]), (count, WIDTH), np.int64)
    own = a[5] + a[6] * next_chunk(a)
    room, places = carray(pointer(own), (a[7],), np.float32), carray(pointer(own + 4 * a[7]), (a[8],), np.int64)
    rest = own + 4 * a[7] + 8 * a[8]
    for at in range(count):
        i, counter = tape[at], a[3] + 8 * (at * WIDTH + 1)
        if i[0] == NORM:
            norm(i, rows, counter)
        elif i[0] == LINEAR:
            linear(i, rows, counter, room, rest, a[9], barrier)
        else:
            attend(i, rows, counter, room, places)
        call(barrier)
