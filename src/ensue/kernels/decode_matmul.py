"""The products of a tape, as instructions: a few outputs of a few rows at a time, all of whose sums are in registers.

Which form is the fastest follows from how many rows there are, and none needs the weights in another order than the
model has them:

    one_row, some_rows   the inputs of an output side by side; one row reads weights as they lie, from the first to the
                         last, which is as fast as memory is; a few rows share what is read
    many_rows            rows side by side, x turned over once for all outputs; a weight is read once for all of them
    eighths_of_…         weights in eight bits: PANEL outputs side by side, as ``ensue.kernels.int8`` lays them

In eight bits x is given sixteen for the product, which then is one of whole numbers, the same in whatever order:

    x_r ≈ s_r x̂_r,  s_r = max|x_r| / M,  y_rj = s_r s_j Σ_i x̂_ri Ŵ_ji

They are pieces, compiled into ensue.kernels.decode_linear and tape_attention.

Legend: R rows, W (out, in) weights, j an output, i an input, r a row.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ensue.kernels.simd import INDEX, LANES, NUMBER, SHORT, VECTOR, WHOLE, Vectors

HOST = frozenset(name for name, there in get_host_cpu_features().items() if there)
"""What the processor can do."""
WIDE = "avx512f" in HOST
"""Whether it has 32 registers of LANES numbers, not 16 of half of them."""
TALL = 4
"""How many outputs of a few rows are computed side by side."""
BOTH = 4 if WIDE else 2
"""For how many rows at once."""
BESIDE = {5: 4, 4: 4, 3: 8, 2: 8, 1: 8} if WIDE else {1: 4}
"""For how many vectors of rows how many outputs are computed side by side."""
HIGH, SOME, PANELS = (8, 4, 2) if WIDE else (4, 2, 1)
"""How many rows in eight bits are computed side by side, of many and of some, and how many panels."""
NEAR = 64
"""How many inputs of many rows are taken at a time."""
PANEL = LANES
"""How many outputs lie side by side in eight bits."""
UNROLLED = 4
"""Pairs of inputs that one row of eight bits takes at once; their sums do not wait for each other."""

BYTES, HALVES = (ir.VectorType(ir.IntType(bits), 2 * LANES) for bits in (8, 16))
EVEN, ODD = (INDEX(list(range(first, 2 * LANES, 2))) for first in (0, 1))


def sum_of(v: Vectors, x: Any) -> Any:
    """The sum of a vector's numbers."""
    return v.builder.extract_element(sums_of(v, [x]), SHORT(0))


def sums_of(v: Vectors, held: list[Any]) -> Any:
    """The sums of 2ⁿ vectors, in order, in the lanes 0, LANES / 2ⁿ … of one.

    Two vectors are put together half by half and added, which leaves half as many numbers of each: log₂ LANES times.
    """
    width, b = LANES, v.builder
    while width > 1:
        half = width // 2
        low = [lane for first in range(0, LANES, width) for lane in range(first, first + half)]
        if len(held) > 1:
            both = low + [lane + LANES for lane in low]
            pairs = list(zip(held[::2], held[1::2]))
        else:
            both = [lane // width * width + lane % half for lane in range(LANES)]
            pairs = [(held[0], held[0])]
        high = [lane + half for lane in both]
        held = [
            v.add(b.shuffle_vector(one, other, INDEX(both)), b.shuffle_vector(one, other, INDEX(high)))
            for one, other in pairs
        ]
        width = half
    return held[0]


def _inputs_beside(tall: int, rows: int, times: int = 1) -> Any:
    """Σ_i W_ji x_ri of ``tall · times`` outputs and so many rows; row r is written at ``to`` + r · ``to_row``.

    ``tall`` outputs are computed side by side, so many times; then the sums of all are made at once.
    """

    @intrinsic  # type: ignore[untyped-decorator]
    def products(context: Any, to: Any, to_row: Any, weights: Any, stride: Any, x: Any, count: Any) -> Any:
        def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            to, to_row, weights, stride, x, count = arguments
            v = Vectors(builder)
            sums = [[v.held(0.0) for _ in range(tall * times)] for _ in range(rows)]
            for first in range(0, tall * times, tall):
                with cgutils.for_range(builder, builder.udiv(count, WHOLE(LANES))) as step:
                    along = (WHOLE(LANES), step.index)
                    held = [v.load(x, (count, WHOLE(r)), along) for r in range(rows)]
                    for j in range(first, first + tall):
                        w = v.load(weights, (stride, WHOLE(j)), along)
                        for r in range(rows):
                            builder.store(v.add(builder.load(sums[r][j]), v.times(w, held[r])), sums[r][j])
            found = sums_of(v, [builder.load(one) for row in sums for one in row])
            each, apart = tall * times, LANES // (rows * tall * times)
            for r in range(rows):
                lanes = [(r * each + j) * apart for j in range(each)]
                part = builder.shuffle_vector(found, found, ir.VectorType(SHORT, each)(lanes))
                builder.store(part, v.at(ir.VectorType(NUMBER, each), to, (to_row, WHOLE(r))), align=4)
            return context.get_dummy_value()

        return types.void(to, to_row, weights, stride, x, count), make

    return products


one_row, some_rows, alone = _inputs_beside(1, 1, LANES), _inputs_beside(TALL, BOTH), _inputs_beside(1, 1)


def _rows_beside(vectors: int, outputs: int) -> Any:
    """Σ_i W_ji x_ir of so many outputs and vectors of rows, added to what is at ``to`` + j · ``rows``.

    x is turned over: (in, rows). Of i there are so many at a time as stay in the cache for all outputs of a part.
    """

    @intrinsic  # type: ignore[untyped-decorator]
    def products(context: Any, to: Any, rows: Any, weights: Any, stride: Any, x: Any, count: Any) -> Any:
        def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            to, rows, weights, stride, x, count = arguments
            v = Vectors(builder)
            sums = [[v.held(0.0) for _ in range(vectors)] for _ in range(outputs)]
            for j, row in enumerate(sums):
                for n, total in enumerate(row):
                    builder.store(v.load(to, (rows, WHOLE(j)), (WHOLE(LANES), WHOLE(n))), total)
            with cgutils.for_range(builder, count) as i:
                held = [v.load(x, (rows, i.index), (WHOLE(LANES), WHOLE(n))) for n in range(vectors)]
                for j, row in enumerate(sums):
                    w = v.all(builder.load(v.at(NUMBER, weights, (stride, WHOLE(j)), (WHOLE(1), i.index))))
                    for own, total in zip(held, row):
                        builder.store(v.add(builder.load(total), v.times(w, own)), total)
            for j, row in enumerate(sums):
                for n, total in enumerate(row):
                    v.store(builder.load(total), to, (rows, WHOLE(j)), (WHOLE(LANES), WHOLE(n)))
            return context.get_dummy_value()

        return types.void(to, rows, weights, stride, x, count), make

    return products


many_rows = [_rows_beside(vectors, BESIDE[vectors]) for vectors in (min(most, max(BESIDE)) for most in range(1, 6))]
"""For one vector of rows, for two …, or for as many as fit."""


def _outputs_beside(panels: int, rows: int, unrolled: int = 1) -> Any:
    """Σ_i Ŵ_ji x̂_ri of so many panels of outputs and rows, as numbers; row r is written at ``to`` + r · ``to_row``.

    A panel is (in / 2, PANEL, 2): of each pair of inputs the weights of all its outputs. ``far`` is from a row of x̂
    to the next, in pairs.
    """

    @intrinsic  # type: ignore[untyped-decorator]
    def products(context: Any, to: Any, to_row: Any, weights: Any, x: Any, far: Any, pairs: Any) -> Any:
        def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            to, to_row, weights, x, far, pairs = arguments
            v = Vectors(builder)
            sums = [[[_whole(v) for _ in range(unrolled)] for _ in range(panels)] for _ in range(rows)]
            size = builder.mul(pairs, WHOLE(2 * PANEL))  # of a panel, in bytes
            with cgutils.for_range(builder, builder.udiv(pairs, WHOLE(unrolled))) as step:
                for u in range(unrolled):
                    pair = builder.add(builder.mul(step.index, WHOLE(unrolled)), WHOLE(u))
                    along = builder.add(weights, builder.mul(pair, WHOLE(2 * PANEL)))
                    held = [_bytes(v, builder.add(along, builder.mul(size, WHOLE(p)))) for p in range(panels)]
                    for r in range(rows):
                        own = builder.load(v.at(SHORT, x, (far, WHOLE(r)), (WHOLE(1), pair)), align=4)
                        both = builder.bitcast(v.all(own), HALVES)
                        for w, totals in zip(held, sums[r]):
                            builder.store(_added(v, builder.load(totals[u]), w, both), totals[u])
            for r in range(rows):
                for p, totals in enumerate(sums[r]):
                    total = builder.load(totals[0])
                    for other in totals[1:]:
                        total = builder.add(total, builder.load(other))
                    v.store(builder.sitofp(total, VECTOR), to, (to_row, WHOLE(r)), (WHOLE(PANEL), WHOLE(p)))
            return context.get_dummy_value()

        return types.void(to, to_row, weights, x, far, pairs), make

    return products


def _whole(v: Vectors) -> Any:
    """Room for sums of whole numbers."""
    room = cgutils.alloca_once(v.builder, INDEX)
    v.builder.store(INDEX([0] * LANES), room)
    return room


def _bytes(v: Vectors, at: Any) -> Any:
    """2 · LANES weights of eight bits, as sixteen."""
    return v.builder.sext(v.builder.load(v.builder.inttoptr(at, BYTES.as_pointer()), align=1), HALVES)


def _added(v: Vectors, total: Any, w: Any, x: Any) -> Any:
    """total + w x, pairs added up; processors have instructions for it, which compilers do not find by themselves."""
    b = v.builder
    if "avx512vnni" in HOST and "avx512bw" in HOST:
        kind = ir.FunctionType(INDEX, [INDEX, INDEX, INDEX])
        add = b.module.declare_intrinsic("llvm.x86.avx512.vpdpwssd.512", (), kind)
        return b.call(add, [total, b.bitcast(w, INDEX), b.bitcast(x, INDEX)])
    return b.add(total, _pairs(v, w, x))


def _pairs(v: Vectors, w: Any, x: Any) -> Any:
    """w_0 x_0 + w_1 x_1, w_2 x_2 + w_3 x_3 …"""
    b = v.builder
    if "avx512bw" in HOST:
        kind = ir.FunctionType(INDEX, [HALVES, HALVES])
        return b.call(b.module.declare_intrinsic("llvm.x86.avx512.pmaddw.d.512", (), kind), [w, x])
    if "avx2" in HOST:
        half, result = (ir.VectorType(ir.IntType(bits), size) for bits, size in ((16, LANES), (32, LANES // 2)))
        pair = b.module.declare_intrinsic("llvm.x86.avx2.pmadd.wd", (), ir.FunctionType(result, [half, half]))
        sides = [INDEX(list(range(first, first + LANES))) for first in (0, LANES)]
        low, high = (b.call(pair, [b.shuffle_vector(one, one, side) for one in (w, x)]) for side in sides)
        return b.shuffle_vector(low, high, INDEX(list(range(LANES))))

    def every_other(one: Any, which: Any) -> Any:
        return b.sext(b.shuffle_vector(one, one, which), INDEX)

    return b.add(*(b.mul(every_other(w, which), every_other(x, which)) for which in (EVEN, ODD)))


eighths_of_one = _outputs_beside(1, 1, UNROLLED)
eighths_of_some, eighths_of_many = _outputs_beside(PANELS, SOME), _outputs_beside(PANELS, HIGH)
