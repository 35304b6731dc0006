"""The interpreter of decode programs: norms, linear layers, attention to a key–value cache.

All threads go through the same instructions. Within one each takes chunks of work until none is left; then they wait
for each other.

Legend: R rows, D width. An instruction is WIDTH int64s, addresses among them: first the operation, then a counter of
the chunks that are taken, then what ensue.kernels.decode_program writes there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray

from ensue.kernels.compile import call, inner, loop, next_chunk, pointer
from ensue.kernels.decode_attention import attend
from ensue.kernels.decode_linear import linear
from ensue.kernels.decode_program import ADD, LINEAR, NORM, WIDTH
from ensue.kernels.elementwise_loops import moments

f32 = np.float32


@inner
def norm(i: Any, rows: int, counter: int) -> None:
    """LayerNorm or, without a bias and where the mean is not subtracted, RMSNorm of each part of D numbers of each row.

    z may be x itself, or what the norm is added to.
    """
    D, centred, parts, add = i[2], i[8] != 0, i[9], i[12] == ADD
    weight, bias = carray(pointer(i[5]), (D,), np.float32), carray(pointer(i[6]), (D,), np.float32)
    epsilon = carray(pointer(i[7]), (1,), np.float32)[0]
    unit = next_chunk(counter)
    while unit < rows * parts:
        r, part = unit // parts, unit % parts
        x = carray(pointer(i[3] + 4 * (r * i[10] + part * D)), (D,), np.float32)
        z = carray(pointer(i[4] + 4 * (r * i[11] + part * D)), (D,), np.float32)
        mean, scale = moments(x, epsilon, centred)
        if i[6] == 0 and add:
            for c in range(D):
                z[c] += (x[c] - mean) * scale * weight[c]
        elif i[6] == 0:
            for c in range(D):
                z[c] = (x[c] - mean) * scale * weight[c]
        else:
            for c in range(D):
                y = (x[c] - mean) * scale * weight[c] + bias[c]
                z[c] = z[c] + y if add else y
        unit = next_chunk(counter)


@loop
def interpret(a: Any) -> None:
    """Run a program. ``a`` is written by ``ensue.kernels.decode_runner``: a counter of threads, the number of rows and
    of instructions, the addresses of the instructions, of a barrier and of the threads' workspaces, the size of one in
    bytes, how many floats and columns of a cache it holds, and the address of the shared workspace."""
    rows, count, barrier = a[1], a[2], a[4]
    program = carray(pointer(a[3]), (count, WIDTH), np.int64)
    own = a[5] + a[6] * next_chunk(a)
    workspace, columns = carray(pointer(own), (a[7],), np.float32), carray(pointer(own + 4 * a[7]), (a[8],), np.int64)
    rest = own + 4 * a[7] + 8 * a[8]
    for at in range(count):
        i, counter = program[at], a[3] + 8 * (at * WIDTH + 1)
        if i[0] == NORM:
            norm(i, rows, counter)
        elif i[0] == LINEAR:
            linear(i, rows, counter, workspace, rest, a[9], barrier)
        else:
            attend(i, rows, counter, workspace, columns, barrier)
        call(barrier)
