"""Linear layers of a decode program: chunks of outputs are multiplied by ensue.kernels.decode_matmul and finished in
one pass.

    y_r = f(s_r s_j Σ_i Ŵ_ji x̂_ri + b_j),   s_r = s_j = 1 where weights are float32, s_j = 1 where they are in groups

They are compiled into ensue.kernels.decode_loops. Legend: R rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from ensue.kernels.compile import inner, pointer
from ensue.kernels.decode_matmul import (
    INPUT_BLOCK,
    INT8_MANY,
    INT8_SOME,
    OUTPUTS_AT_ONCE,
    OUTPUTS_BY_VECTORS,
    PANEL,
    PANELS,
    ROWS_AT_ONCE,
    SPLIT_MOST,
    SPLITS,
    grouped4_many_rows,
    grouped4_one_row,
    grouped4_some_rows,
    grouped4_split_row,
    grouped8_many_rows,
    grouped8_one_row,
    grouped8_some_rows,
    int8_many_rows,
    int8_one_row,
    int8_some_rows,
    many_rows,
    one_row,
    some_rows,
)
from ensue.kernels.decode_program import (
    ACTIVATIONS,
    ADD,
    FEW,
    FINISHED,
    LINE,
    MULTIPLY,
    OUTPUTS,
    PREPARED,
    PREPARING,
    RANGES,
)
from ensue.kernels.gelu_loops import gelu_share
from ensue.kernels.simd import FLOAT, INT32, INT64, INTS, LANES, VECTOR, Vectors, constant
from ensue.kernels.tiles import transpose_tile
from ensue.kernels.work_sharing import begin_range, finish_chunks, read_counter, take_chunk

assert OUTPUTS % (PANELS * PANEL) == 0 and OUTPUTS % max(OUTPUTS_BY_VECTORS.values()) == 0
LAST = LANES - 1
SPLIT_AT = 4
"""Where a row's bytes are, in bytes for each of its inputs: there is room for LANES rows of x̂, and only one is used."""
STRIDE = OUTPUTS + LANES
"""Distance between rows of sums: a tile that starts before its chunk needs LANES before it."""
one_vector, two_vectors, three_vectors, four_vectors, five_vectors = many_rows
SIDE_BY_SIDE, MOST = tuple(OUTPUTS_BY_VECTORS.get(vectors, 0) for vectors in range(6)), max(OUTPUTS_BY_VECTORS)

Floats = NDArray[np.float32]
f32 = np.float32


def _activated(v: Vectors, u: Any, kind: Any) -> Any:
    """f(u), f one of ``ACTIVATIONS``."""
    b, zero = v.builder, constant(0.0)
    found = v.variable(0.0)
    b.store(u, found)
    with b.if_then(b.icmp_signed("==", kind, INT64(ACTIVATIONS["gelu"]))):
        b.store(v.mul(u, gelu_share(v, u)[0]), found)
    with b.if_then(b.icmp_signed("==", kind, INT64(ACTIVATIONS["silu"]))):
        b.store(v.mul(u, v.sigmoid(u)[0]), found)
    with b.if_then(b.icmp_signed("==", kind, INT64(ACTIVATIONS["relu"]))):
        b.store(b.select(b.fcmp_ordered("<", u, zero), zero, u), found)  # NaN stays
    return b.load(found)


@intrinsic  # type: ignore[untyped-decorator]
def finish(context: Any, to: Any, sums: Any, rows: Any, given: Any, kind: Any, combine: Any) -> Any:
    """y_r = f(s_r s_j Σ_r + b_j) of all outputs of a chunk; or y_r plus that, or y_r times that.

    ``to`` and ``sums`` are matrices (address, row stride); ``given`` the addresses of s_j, s_r and b_j, 0 for none.
    """

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (to, to_row), (sums, sums_row) = (cgutils.unpack_tuple(builder, one) for one in arguments[:2])
        rows, _, kind, combine = arguments[2:]
        scale, sizes, bias = cgutils.unpack_tuple(builder, arguments[3])
        v, columns = Vectors(builder), [(INT64(LANES), INT64(p)) for p in range(OUTPUTS // LANES)]
        scales, shifts = [v.variable(1.0) for _ in columns], [v.variable(0.0) for _ in columns]
        for address, variables in ((scale, scales), (bias, shifts)):
            with builder.if_then(builder.icmp_signed("!=", address, INT64(0))):
                for column, variable in zip(columns, variables):
                    builder.store(v.load(address, column), variable)
        int8 = builder.icmp_signed("!=", scale, INT64(0))
        adds, multiplies = (builder.icmp_signed("==", combine, INT64(how)) for how in (ADD, MULTIPLY))
        size = cgutils.alloca_once(builder, FLOAT)
        builder.store(FLOAT(1.0), size)
        with cgutils.for_range(builder, rows) as r:
            with builder.if_then(int8):
                builder.store(builder.load(v.at(FLOAT, sizes, (INT64(1), r.index)), align=4), size)
            by = v.broadcast(builder.load(size))
            for column, scaled, shift in zip(columns, scales, shifts):
                total = v.mul(v.load(sums, (sums_row, r.index), column), v.mul(builder.load(scaled), by))
                found = v.variable(0.0)
                builder.store(_activated(v, v.add(total, builder.load(shift)), kind), found)
                with builder.if_then(adds):
                    builder.store(v.add(builder.load(found), v.load(to, (to_row, r.index), column)), found)
                with builder.if_then(multiplies):
                    builder.store(v.mul(builder.load(found), v.load(to, (to_row, r.index), column)), found)
                v.store(builder.load(found), to, (to_row, r.index), column)
        return context.get_dummy_value()

    return types.void(to, sums, rows, given, kind, combine), make


@intrinsic  # type: ignore[untyped-decorator]
def quantise_row(context: Any, into: Any, x: Any, count: Any, most: Any) -> Any:
    """x̂ = x / s in int16, s = max|x| / most; returns s, which is NaN where an x is."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        into, x, count, most = arguments
        v = Vectors(builder)
        steps, halves = builder.udiv(count, INT64(LANES)), ir.VectorType(ir.IntType(16), LANES)
        top, broken = v.variable(1e-30), v.variable(0.0)
        with cgutils.for_range(builder, steps) as step:
            own = v.load(x, (INT64(LANES), step.index))
            size = builder.select(builder.fcmp_ordered("<", own, constant(0.0)), builder.fneg(own), own)
            builder.store(v.maximum(size, builder.load(top)), top)
            builder.store(builder.fadd(builder.load(broken), builder.fmul(own, constant(0.0))), broken)
        largest = v.reduce_max(builder.load(top))
        most = v.broadcast(builder.sitofp(most, FLOAT))
        by = builder.fdiv(most, largest)
        near = builder.module.declare_intrinsic(f"llvm.rint.v{LANES}f32", (), ir.FunctionType(VECTOR, [VECTOR]))
        with cgutils.for_range(builder, steps) as step:
            own = builder.call(near, [builder.fmul(v.load(x, (INT64(LANES), step.index)), by)])
            there = builder.add(into, builder.mul(step.index, INT64(2 * LANES)))
            numbers = builder.trunc(builder.fptosi(own, INTS), halves)
            builder.store(numbers, builder.inttoptr(there, halves.as_pointer()), align=2)
        size = v.first(builder.fdiv(largest, most))
        return builder.fadd(size, v.reduce_sum(builder.load(broken)))

    return types.float32(into, x, count, most), make


@inner
def vectors_at_once(left: int) -> int:
    """How many of ``left`` vectors of rows to compute side by side, such that none is left over alone."""
    if MOST == 1 or left <= MOST:
        return min(left, MOST)
    return 3 if left == 6 else 4


@intrinsic  # type: ignore[untyped-decorator]
def quantise_groups(
    context: Any, into: Any, split: Any, x: Any, groups: Any, group: Any, most: Any, behind: Any
) -> Any:
    """x̂ of a row, each group by its own size; returns 0, or NaN where an x is NaN or infinite.

    ``behind`` are the addresses of the sizes s_g and of the sums Σ_{i ∈ g} s_g x̂_i. Where ``split`` is not 0, the bytes
    h and l of x̂ = 256 h + l are written there: of two inputs h, h again, l and l again.
    """

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        into, split, x, groups, group, most, _ = arguments
        sizes, sums = cgutils.unpack_tuple(builder, arguments[6])
        b, v = builder, Vectors(builder)
        halves, octets = (ir.VectorType(ir.IntType(bits), LANES) for bits in (16, 8))
        near = b.module.declare_intrinsic(f"llvm.rint.v{LANES}f32", (), ir.FunctionType(VECTOR, [VECTOR]))
        size_of = b.module.declare_intrinsic(f"llvm.fabs.v{LANES}f32", (), ir.FunctionType(VECTOR, [VECTOR]))
        top, broken, total = v.variable(0.0), v.variable(0.0), cgutils.alloca_once(b, INTS)
        steps, most = b.udiv(group, INT64(LANES)), b.sitofp(most, FLOAT)
        with cgutils.for_range(b, groups) as g:
            first = b.mul(g.index, group)
            b.store(constant(1e-30), top)
            b.store(INTS([0] * LANES), total)
            with cgutils.for_range(b, steps) as step:
                own = v.load(x, (INT64(1), first), (INT64(LANES), step.index))
                b.store(v.maximum(b.call(size_of, [own]), b.load(top)), top)
                b.store(b.fadd(b.load(broken), b.fmul(own, constant(0.0))), broken)
            largest = _folded(b, b.load(top), lambda one, other: b.select(b.fcmp_ordered(">", one, other), one, other))
            by = v.broadcast(b.fdiv(most, largest))
            with cgutils.for_range(b, steps) as step:
                at = b.add(first, b.mul(INT64(LANES), step.index))
                own = b.call(near, [b.fmul(v.load(x, (INT64(1), at)), by)])
                numbers = b.fptosi(own, INTS)
                b.store(b.add(b.load(total), numbers), total)
                place = b.inttoptr(b.add(into, b.mul(INT64(2), at)), halves.as_pointer())
                b.store(b.trunc(numbers, halves), place, align=2)
                with b.if_then(b.icmp_signed("!=", split, INT64(0))):
                    h = b.ashr(b.add(numbers, INTS([128] * LANES)), INTS([8] * LANES))
                    low = b.sub(numbers, b.shl(h, INTS([8] * LANES)))
                    pairs = ir.VectorType(ir.IntType(16), LANES // 2)
                    parts = [b.bitcast(b.trunc(one, octets), pairs) for one in (h, low)]
                    order = [pair + part * LANES // 2 for pair in range(LANES // 2) for part in (0, 0, 1, 1)]
                    words = b.shuffle_vector(*parts, ir.VectorType(INT32, 2 * LANES)(order))
                    b.store(words, b.inttoptr(b.add(split, b.mul(INT64(4), at)), words.type.as_pointer()), align=4)
            size = b.fdiv(largest, most)
            whole = b.sitofp(_folded(b, b.load(total), b.add), FLOAT)
            b.store(size, v.at(FLOAT, sizes, (INT64(1), g.index)), align=4)
            b.store(b.fmul(size, whole), v.at(FLOAT, sums, (INT64(1), g.index)), align=4)
        return v.reduce_sum(b.load(broken))

    return types.float32(into, split, x, groups, group, most, behind), make


def _folded(b: Any, x: Any, combine: Any) -> Any:
    """One element from all of a vector, whose halves are combined until one is left."""
    width = LANES
    while width > 1:
        width //= 2
        sides = [ir.VectorType(INT32, width)(list(range(first, first + width))) for first in (0, width)]
        x = combine(*(b.shuffle_vector(x, x, side) for side in sides))
    return b.extract_element(x, INT32(0))


@inner
def splits(i: Any, rows: int) -> bool:
    """Whether the row of x̂ is read in bytes."""
    return SPLITS and rows == 1 and i[14] == 4 and i[15] > 0


@inner
def quantise_input(x: int, r: int, high: int, i: Any, split: int) -> Any:
    """Row r of x̂, from the input that instruction ``i`` reads; returns its size, 1 or NaN if each group has its own.

    Behind the rows of x̂ are the sizes of groups, and then their sums.
    """
    inputs, given, most, group = i[2], i[9], i[11], i[15]
    if group == 0:
        return quantise_row(x + 2 * r * inputs, given + 4 * r * inputs, inputs, most)
    if SPLITS and i[14] == 4:
        most = min(most, SPLIT_MOST)
    groups, behind = inputs // group, x + 2 * high * inputs
    places = behind + 4 * r * groups, behind + 4 * (high + r) * groups
    return f32(1) + quantise_groups(x + 2 * r * inputs, split, given + 4 * r * inputs, groups, group, most, places)


@inner
def prepare_few(i: Any, rows: int, high: int, own: int) -> Any:
    """The address of what the product of a few rows reads in place of x, behind the sizes of its rows.

    With int8 weights that is x̂, which each thread computes for itself, so that none has to wait.
    """
    if i[7] == 0:
        return i[9]
    sizes, x = carray(pointer(own), (high,), np.float32), own + 4 * high
    for r in range(rows):
        sizes[r] = quantise_input(x, r, high, i, x + SPLIT_AT * i[2] if splits(i, rows) else 0)
    return x


@inner
def prepare_many(i: Any, rows: int, high: int, shared: int, team: Any) -> int:
    """The same of many rows, which threads share: x̂, or x transposed, (in, R)."""
    _, _, board, give_way = team
    inputs, given, sizes, x = i[2], i[9], carray(pointer(shared), (high,), np.float32), shared + 4 * high
    chunks, done = rows if i[7] else inputs // LANES, 0
    chunk = take_chunk(board + PREPARING, chunks)
    while chunk < chunks:
        if i[7]:
            sizes[chunk] = quantise_input(x, chunk, high, i, 0)
        else:
            c = chunk * LANES
            for r in range(0, high, LANES):
                transpose_tile((x + 4 * (c * high + r), high), (given + 4 * (r * inputs + c), inputs), LAST)
        done += 1
        chunk = take_chunk(board + PREPARING, chunks)
    finish_chunks(board + PREPARED, done, chunks, give_way)
    return x


@inner
def matmul_few_rows(to: int, weights: int, x: int, rows: int, inputs: int, outputs: int, at: Any) -> None:
    """Σ_i W_ji x_ri of the outputs of a chunk, a few rows at once and the rest one by one.

    A tile that would reach beyond the last output starts earlier, and computes some outputs again.
    """
    start, stop = at
    r = 0
    while r + ROWS_AT_ONCE <= rows:
        for first in range(start, stop, OUTPUTS_AT_ONCE):
            j = min(first, outputs - OUTPUTS_AT_ONCE)
            here, there, own = to + 4 * (r * STRIDE + j - start), weights + 4 * j * inputs, x + 4 * r * inputs
            some_rows(here, STRIDE, there, inputs, own, inputs)
        r += ROWS_AT_ONCE
    while r < rows:
        for first in range(start, stop, LANES):
            j = min(first, outputs - LANES)
            here, there, own = to + 4 * (r * STRIDE + j - start), weights + 4 * j * inputs, x + 4 * r * inputs
            one_row(here, STRIDE, there, inputs, own, inputs)
        r += 1


@inner
def matmul_many_rows(to: int, columns: Floats, weights: int, x: int, high: int, inputs: int) -> None:
    """The same of many rows and all outputs of a chunk, from x transposed; the result is transposed back."""
    columns[:] = f32(0)
    first = np.int64(columns.ctypes.data)
    for i in range(0, inputs, INPUT_BLOCK):
        r, left, count = 0, high // LANES, min(INPUT_BLOCK, inputs - i)
        while left:
            vectors = vectors_at_once(left)
            for j in range(0, OUTPUTS, SIDE_BY_SIDE[vectors]):
                here, there, own = first + 4 * (j * high + r), weights + 4 * (j * inputs + i), x + 4 * (i * high + r)
                if vectors == 1:
                    one_vector(here, high, there, inputs, own, count)
                elif vectors == 2:
                    two_vectors(here, high, there, inputs, own, count)
                elif vectors == 3:
                    three_vectors(here, high, there, inputs, own, count)
                elif vectors == 4:
                    four_vectors(here, high, there, inputs, own, count)
                else:
                    five_vectors(here, high, there, inputs, own, count)
            r, left = r + vectors * LANES, left - vectors
    for r in range(0, high, LANES):
        for t in range(0, OUTPUTS, LANES):
            transpose_tile((to + 4 * (r * STRIDE + t), STRIDE), (first + 4 * (t * high + r), high), LAST)


@inner
def matmul_int8(to: int, weights: int, x: int, rows: int, inputs: int) -> None:
    """Σ_i Ŵ_ji x̂_ri of the outputs of a chunk."""
    pairs, r = inputs // 2, 0
    while r + INT8_MANY <= rows:
        for t in range(0, OUTPUTS, PANELS * PANEL):
            int8_many_rows(to + 4 * (r * STRIDE + t), STRIDE, weights + t * inputs, x + 2 * r * inputs, pairs, pairs)
        r += INT8_MANY
    while r + INT8_SOME <= rows:
        for t in range(0, OUTPUTS, PANELS * PANEL):
            int8_some_rows(to + 4 * (r * STRIDE + t), STRIDE, weights + t * inputs, x + 2 * r * inputs, pairs, pairs)
        r += INT8_SOME
    while r < rows:
        for t in range(0, OUTPUTS, PANEL):
            int8_one_row(to + 4 * (r * STRIDE + t), STRIDE, weights + t * inputs, x + 2 * r * inputs, pairs, pairs)
        r += 1


@inner
def matmul_grouped(to: int, i: Any, start: int, x: int, rows: int, high: int) -> None:
    """Σ_g s_rg (s_jg Σ_{i ∈ g} c_ji x̂_ri + o_jg Σ_{i ∈ g} x̂_ri) of the outputs of a chunk, two panels."""
    inputs, bits, group, wide = i[2], i[14], i[15], i[16]
    groups, pairs, behind = inputs // group, inputs // 2, x + 2 * high * inputs
    shares = start * groups * (4 if wide else 2)
    given = (i[6] + start * inputs * bits // 8, i[12] + shares, i[13] + shares if i[13] else 0, wide)
    r = 0
    while r < rows:
        here, own = to + 4 * r * STRIDE, x + 2 * r * inputs
        mine = (behind + 4 * r * groups, behind + 4 * (high + r) * groups)
        if r + INT8_MANY <= rows:
            if bits == 4:
                grouped4_many_rows(here, STRIDE, given, own, pairs, mine, groups, group)
            else:
                grouped8_many_rows(here, STRIDE, given, own, pairs, mine, groups, group)
            r += INT8_MANY
        elif r + INT8_SOME <= rows:
            if bits == 4:
                grouped4_some_rows(here, STRIDE, given, own, pairs, mine, groups, group)
            else:
                grouped8_some_rows(here, STRIDE, given, own, pairs, mine, groups, group)
            r += INT8_SOME
        else:
            if splits(i, rows):
                grouped4_split_row(here, given, x + SPLIT_AT * inputs, mine, groups, group)
            elif bits == 4:
                grouped4_one_row(here, STRIDE, given, own, pairs, mine, groups, group)
            else:
                grouped8_one_row(here, STRIDE, given, own, pairs, mine, groups, group)
            r += 1


@inner
def finish_last(i: Any, rows: int, found: Any, workspace: Floats, at: Any) -> None:
    """``finish`` of the last outputs, fewer than a chunk: in space for a whole chunk, from which they are copied."""
    (to, sizes), (start, stop) = found, at
    count, outputs = stop - start, i[3]
    y = carray(pointer(i[10]), (rows, outputs), np.float32)
    scales, shifts, mine = workspace[:OUTPUTS], workspace[OUTPUTS : 2 * OUTPUTS], workspace[2 * OUTPUTS :]
    for t in range(count):
        if i[7]:
            scales[t] = carray(pointer(i[7]), (outputs,), np.float32)[start + t]
        shifts[t] = carray(pointer(i[8]), (outputs,), np.float32)[start + t] if i[8] else f32(0)
    for r in range(rows):
        for t in range(count):
            mine[r * OUTPUTS + t] = y[r, start + t]
    here = np.int64(mine.ctypes.data)
    given = (np.int64(scales.ctypes.data) if i[7] else 0, sizes, np.int64(shifts.ctypes.data))
    finish((here, OUTPUTS), (to, STRIDE), rows, given, i[4], i[5])
    for r in range(rows):
        for t in range(count):
            y[r, start + t] = mine[r * OUTPUTS + t]


@inner
def linear_chunk(i: Any, rows: int, x: int, at: int, start: int, workspace: Floats) -> None:
    """The outputs of one chunk, from ``start``; ``at`` is the address of the rows' sizes."""
    inputs, outputs, kind, combine, weights, scale, bias, y = i[2], i[3], i[4], i[5], i[6], i[7], i[8], i[10]
    high, stop = (rows + LANES - 1) // LANES * LANES, min(start + OUTPUTS, outputs)
    first = np.int64(workspace.ctypes.data)
    sums = carray(pointer(first), (high, STRIDE), np.float32)  # of a row from LANES on
    to, columns = first + 4 * LANES, workspace[high * STRIDE : high * (STRIDE + OUTPUTS)]
    if i[15]:
        matmul_grouped(to, i, start, x, rows, high)
    elif scale:
        matmul_int8(to, weights + start * inputs, x, rows, inputs)
    elif rows > FEW and stop - start == OUTPUTS:
        matmul_many_rows(to, columns, weights + 4 * start * inputs, x, high, inputs)
    else:
        matmul_few_rows(to, weights, i[9], rows, inputs, outputs, (start, stop))
    if i[17]:  # weights in groups and in floats have no sizes that sums would have to be scaled by
        plus = carray(pointer(i[17]), (rows, outputs), np.float32)
        for r in range(rows):
            for t in range(stop - start):
                sums[r, LANES + t] += plus[r, start + t]
    if stop - start == OUTPUTS:
        given = (scale + 4 * start if scale else 0, at, bias + 4 * start if bias else 0)
        finish((y + 4 * start, outputs), (to, STRIDE), rows, given, kind, combine)
    else:
        last = workspace[high * (STRIDE + OUTPUTS) : high * (STRIDE + 2 * OUTPUTS) + 2 * OUTPUTS]
        finish_last(i, rows, (to, at), last, (start, stop))


@inner
def linear(i: Any, rows: int, team: Any, workspace: Floats, own: int, shared: int) -> None:
    """y = f(W x + b), or y + f(W x + b), or y ∘ f(W x + b), (R, in) → (R, out); with scales W is int8 or in groups.

    Something may be added to W x + b: what a low-rank adapter gives.

    Each thread starts in a range of outputs of its own, so that it reads weights in a line, and then helps with the
    ranges of others. Threads that take turns within one range read memory at less than half the speed.
    """
    thread, threads, board, give_way = team
    outputs, high = i[3], (rows + LANES - 1) // LANES * LANES
    chunks = (outputs + OUTPUTS - 1) // OUTPUTS
    if read_counter(board + FINISHED) == chunks:
        return
    many = rows > FEW
    at = shared if many else own
    x, ready = prepare_many(i, rows, high, shared, team) if many else 0, many
    done = 0
    for turn in range(threads):
        part = (thread + turn) % threads
        begin, counter = begin_range(part, threads, chunks), board + RANGES + LINE * part
        size = begin_range(part + 1, threads, chunks) - begin
        chunk = take_chunk(counter, size)
        while chunk < size:
            if not ready:  # after a chunk is taken: until it is finished nobody changes the input
                x, ready = prepare_few(i, rows, high, own), True
            linear_chunk(i, rows, x, at, (begin + chunk) * OUTPUTS, workspace)
            done += 1
            chunk = take_chunk(counter, size)
    finish_chunks(board + FINISHED, done, chunks, give_way)
