"""The interpreter of decode programs: norms, linear layers, attention to a key–value cache, linear attention.

All threads go through the same instructions. Within one each takes chunks of work until none is left; then it waits
until all are finished (ensue.kernels.work_sharing). Chunks do not depend on the threads, so neither do results.

Legend: R rows, D width. An instruction is WIDTH int64s, addresses among them: first the operation, then a 0, then what
ensue.kernels.decode_program writes there. ``team`` is what an instruction needs to share its work: the number of this
thread and of all threads, the address of the instruction's counters, and that of a function that lets others run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray

from ensue.kernels.compile import inner, loop, next_chunk, pointer
from ensue.kernels.decode_attention import attend
from ensue.kernels.decode_linear import linear
from ensue.kernels.decode_program import ADD, ATTEND, FINISHED, LINE, LINEAR, NORM, RANGES, WIDTH
from ensue.kernels.decode_recurrence import recur
from ensue.kernels.elementwise_loops import moments
from ensue.kernels.work_sharing import finish_chunks, take_chunk

f32 = np.float32


@inner
def norm(i: Any, rows: int, team: Any) -> None:
    """LayerNorm or, without a bias and where the mean is not subtracted, RMSNorm of each part of D numbers of each row.

    z may be x itself, or what the norm is added to.
    """
    D, centred, parts, add = i[2], i[8] != 0, i[9], i[12] == ADD
    weight, bias = carray(pointer(i[5]), (D,), np.float32), carray(pointer(i[6]), (D,), np.float32)
    epsilon = carray(pointer(i[7]), (1,), np.float32)[0]
    _, _, board, give_way = team
    done = 0
    unit = take_chunk(board + RANGES, rows * parts)
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
        done += 1
        unit = take_chunk(board + RANGES, rows * parts)
    finish_chunks(board + FINISHED, done, rows * parts, give_way)


@loop
def interpret(a: Any) -> None:
    """Run a program. ``a`` is written by ``ensue.kernels.decode_runner``: a counter of threads, the number of rows and
    of instructions, the addresses of the instructions, of a function that lets other threads run and of the threads'
    workspaces, the size of one in bytes, how many floats and columns of a cache it holds, the address of the shared
    workspace, the number of threads, and the address of the instructions' counters."""
    rows, count, give_way, threads = a[1], a[2], a[4], a[10]
    program = carray(pointer(a[3]), (count, WIDTH), np.int64)
    thread = next_chunk(a)
    own = a[5] + a[6] * thread
    workspace, columns = carray(pointer(own), (a[7],), np.float32), carray(pointer(own + 4 * a[7]), (a[8],), np.int64)
    rest = own + 4 * a[7] + 8 * a[8]
    for at in range(count):
        i = program[at]
        team = (thread, threads, a[11] + (RANGES + LINE * threads) * at, give_way)
        if i[0] == NORM:
            norm(i, rows, team)
        elif i[0] == LINEAR:
            linear(i, rows, team, workspace, rest, a[9])
        elif i[0] == ATTEND:
            attend(i, rows, team, workspace, columns)
        else:
            recur(i, rows, team, workspace)
