"""Matrix products of a decode program: a few outputs of a few rows at a time, all of whose sums are in registers.

Which form is fastest depends on the number of rows. None needs the weights in another order than the model has them:

    one_row, some_rows   the inputs of an output side by side: one row reads the weights from first to last, as fast as
                         memory allows; a few rows share what is read
    many_rows            rows side by side: x is transposed once for all outputs, and a weight is read once for all rows
    int8_…               int8 weights: PANEL outputs side by side, as ``ensue.kernels.int8`` lays them out
    grouped4_…, grouped8_…   codes in groups: PANEL outputs side by side, as ``ensue.kernels.grouped`` lays them out

With int8 weights x gets 16 bits, and the product is one of integers, the same in whatever order:

    x_r ≈ s_r x̂_r,  s_r = max|x_r| / M,  y_rj = s_r s_j Σ_i x̂_ri Ŵ_ji

Codes in groups are multiplied as integers too, group by group:

    x_ri ≈ s_rg x̂_ri,  s_rg = max_{i ∈ g}|x_ri| / M,  y_rj = Σ_g s_rg (s_jg Σ_{i ∈ g} c_ji x̂_ri  +  o_jg Σ_{i ∈ g} x̂_ri)

Each group of inputs has a size of its own: in large language models a few inputs are many times the others.

A processor with AVX2 alone multiplies bytes twice as fast as halves, and need not widen codes for it. So for one row

    x̂ = 256 h + l,   Σ_i c_i x̂_i = 256 Σ_i c_i h_i + Σ_i c_i l_i,   −127 ≤ h ≤ 127, −128 ≤ l ≤ 127

and both sums of SPLIT inputs have 16 bits. M is then at most SPLIT_MOST, for any number of rows.

Legend: R rows, W (out, in) weights, j an output, i an input, r a row.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic

from ensue.kernels.prefetch import prefetch_address
from ensue.kernels.simd import FLOAT, INT32, INT64, INTS, LANES, VECTOR, Vectors


def _features() -> frozenset[str]:
    """Features of the processor, or those that NUMBA_CPU_FEATURES allows, such as ``+avx2,-avx512f``."""
    if config.CPU_FEATURES is not None:
        return frozenset(name[1:] for name in config.CPU_FEATURES.split(",") if name.startswith("+"))
    return frozenset(name for name, there in get_host_cpu_features().items() if there)


HOST = _features()
WIDE = "avx512f" in HOST
"""True with 32 registers of LANES floats; else there are 16 of half the size."""
OUTPUTS_AT_ONCE = 4
"""Outputs that ``some_rows`` computes side by side."""
ROWS_AT_ONCE = 4 if WIDE else 2
"""Rows that ``some_rows`` computes side by side."""
OUTPUTS_BY_VECTORS = {5: 4, 4: 4, 3: 8, 2: 8, 1: 8} if WIDE else {1: 4}
"""Vectors of rows → outputs that ``many_rows`` computes side by side."""
INT8_MANY, INT8_SOME, PANELS = (8, 4, 2) if WIDE else (4, 2, 1)
"""Rows that int8 products compute side by side, of many and of some rows; and panels."""
INPUT_BLOCK = 64
"""Inputs of many rows that are taken at a time."""
PANEL = LANES
"""Outputs that lie side by side in int8 weights."""
AHEAD = 2
"""Prefetch distance of grouped codes, their scales and offsets, in chunks of outputs."""
UNROLL = 4
"""Pairs of inputs that the int8 product of one row takes at once, so that their sums are independent."""

SPLITS = "avx2" in HOST and "avx512bw" not in HOST
"""Whether one row of x̂ is split into bytes."""
SPLIT_MOST, SPLIT = 256 * 127 + 127, 16
"""The largest x̂ that can be split, and inputs whose products fit into 16 bits: 15 · 128 · SPLIT < 2¹⁵."""

BYTES, HALVES = (ir.VectorType(ir.IntType(bits), 2 * LANES) for bits in (8, 16))
SHORT = ir.VectorType(ir.HalfType(), LANES)
PAIR = 2
"""Panels that products of groups compute side by side."""
EVEN, ODD = (INTS(list(range(first, 2 * LANES, 2))) for first in (0, 1))


def _inputs_side_by_side(outputs: int, rows: int, times: int = 1, bfloat16: bool = False) -> Any:
    """Σ_i W_ji x_ri of ``outputs · times`` outputs and ``rows`` rows; row r is written at ``to`` + r · ``to_row``.

    ``outputs`` are computed side by side, ``times`` times; then all sums are reduced at once. W may be in bfloat16.
    """

    @intrinsic  # type: ignore[untyped-decorator]
    def products(context: Any, to: Any, to_row: Any, weights: Any, stride: Any, x: Any, count: Any) -> Any:
        def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            to, to_row, weights, stride, x, count = arguments
            v = Vectors(builder)
            load = v.load_bfloat16 if bfloat16 else v.load
            sums = [[v.variable(0.0) for _ in range(outputs * times)] for _ in range(rows)]
            for first in range(0, outputs * times, outputs):
                with cgutils.for_range(builder, builder.udiv(count, INT64(LANES))) as step:
                    at = (INT64(LANES), step.index)
                    inputs = [v.load(x, (count, INT64(r)), at) for r in range(rows)]
                    for j in range(first, first + outputs):
                        w = load(weights, (stride, INT64(j)), at)
                        for r in range(rows):
                            builder.store(v.add(builder.load(sums[r][j]), v.mul(w, inputs[r])), sums[r][j])
            reduced = v.reduce_sums([builder.load(one) for row in sums for one in row])
            each, apart = outputs * times, LANES // (rows * outputs * times)
            for r in range(rows):
                lanes = [(r * each + j) * apart for j in range(each)]
                row = builder.shuffle_vector(reduced, reduced, ir.VectorType(INT32, each)(lanes))
                builder.store(row, v.at(ir.VectorType(FLOAT, each), to, (to_row, INT64(r))), align=4)
            return context.get_dummy_value()

        return types.void(to, to_row, weights, stride, x, count), make

    return products


one_row, one_output = _inputs_side_by_side(1, 1, LANES), _inputs_side_by_side(1, 1)
bfloat16_one_row, bfloat16_one_output = (_inputs_side_by_side(1, 1, times, bfloat16=True) for times in (LANES, 1))
some_rows = _inputs_side_by_side(OUTPUTS_AT_ONCE, ROWS_AT_ONCE)


def _rows_side_by_side(vectors: int, outputs: int) -> Any:
    """Σ_i W_ji x_ir of ``outputs`` outputs and ``vectors`` vectors of rows, added to the sums at ``to`` + j · ``rows``.

    x is transposed: (in, rows). ``count`` inputs at a time stay in the cache for all outputs of a chunk.
    """

    @intrinsic  # type: ignore[untyped-decorator]
    def products(context: Any, to: Any, rows: Any, weights: Any, stride: Any, x: Any, count: Any) -> Any:
        def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            to, rows, weights, stride, x, count = arguments
            v = Vectors(builder)
            sums = [[v.variable(0.0) for _ in range(vectors)] for _ in range(outputs)]
            for j, row in enumerate(sums):
                for n, total in enumerate(row):
                    builder.store(v.load(to, (rows, INT64(j)), (INT64(LANES), INT64(n))), total)
            with cgutils.for_range(builder, count) as i:
                inputs = [v.load(x, (rows, i.index), (INT64(LANES), INT64(n))) for n in range(vectors)]
                for j, row in enumerate(sums):
                    w = v.broadcast(builder.load(v.at(FLOAT, weights, (stride, INT64(j)), (INT64(1), i.index))))
                    for own, total in zip(inputs, row):
                        builder.store(v.add(builder.load(total), v.mul(w, own)), total)
            for j, row in enumerate(sums):
                for n, total in enumerate(row):
                    v.store(builder.load(total), to, (rows, INT64(j)), (INT64(LANES), INT64(n)))
            return context.get_dummy_value()

        return types.void(to, rows, weights, stride, x, count), make

    return products


many_rows = [
    _rows_side_by_side(vectors, OUTPUTS_BY_VECTORS[vectors])
    for vectors in (min(most, max(OUTPUTS_BY_VECTORS)) for most in range(1, 6))
]
"""For one vector of rows, for two …, or for as many as fit."""


def _outputs_side_by_side(panels: int, rows: int, unroll: int = 1) -> Any:
    """Σ_i Ŵ_ji x̂_ri of panels of outputs and of rows, as floats; row r is written at ``to`` + r · ``to_row``.

    A panel is (in / 2, PANEL, 2): of each pair of inputs the weights of all its outputs. ``x_row`` is the distance
    between rows of x̂, in pairs.
    """

    @intrinsic  # type: ignore[untyped-decorator]
    def products(context: Any, to: Any, to_row: Any, weights: Any, x: Any, x_row: Any, pairs: Any) -> Any:
        def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            to, to_row, weights, x, x_row, pairs = arguments
            v = Vectors(builder)
            sums = [[[_zero_ints(v) for _ in range(unroll)] for _ in range(panels)] for _ in range(rows)]
            size = builder.mul(pairs, INT64(2 * PANEL))  # of a panel, in bytes
            with cgutils.for_range(builder, builder.udiv(pairs, INT64(unroll))) as step:
                for u in range(unroll):
                    pair = builder.add(builder.mul(step.index, INT64(unroll)), INT64(u))
                    at = builder.add(weights, builder.mul(pair, INT64(2 * PANEL)))
                    loaded = [_load_bytes(v, builder.add(at, builder.mul(size, INT64(p)))) for p in range(panels)]
                    for r in range(rows):
                        own = builder.load(v.at(INT32, x, (x_row, INT64(r)), (INT64(1), pair)), align=4)
                        both = builder.bitcast(v.broadcast(own), HALVES)
                        for w, totals in zip(loaded, sums[r]):
                            builder.store(_add_products(v, builder.load(totals[u]), w, both), totals[u])
            for r in range(rows):
                for p, totals in enumerate(sums[r]):
                    total = builder.load(totals[0])
                    for other in totals[1:]:
                        total = builder.add(total, builder.load(other))
                    v.store(builder.sitofp(total, VECTOR), to, (to_row, INT64(r)), (INT64(PANEL), INT64(p)))
            return context.get_dummy_value()

        return types.void(to, to_row, weights, x, x_row, pairs), make

    return products


def _zero_ints(v: Vectors) -> Any:
    """A variable of LANES integers, 0 at first."""
    variable = cgutils.alloca_once(v.builder, INTS)
    v.builder.store(INTS([0] * LANES), variable)
    return variable


def _load_bytes(v: Vectors, at: Any) -> Any:
    """2 · LANES int8 weights, as int16."""
    return v.builder.sext(v.builder.load(v.builder.inttoptr(at, BYTES.as_pointer()), align=1), HALVES)


def _add_products(v: Vectors, total: Any, w: Any, x: Any) -> Any:
    """total + w x, pairs added up, by the processor's own instruction, which compilers do not find by themselves."""
    b = v.builder
    if "avx512vnni" in HOST and "avx512bw" in HOST:
        kind = ir.FunctionType(INTS, [INTS, INTS, INTS])
        add = b.module.declare_intrinsic("llvm.x86.avx512.vpdpwssd.512", (), kind)
        return b.call(add, [total, b.bitcast(w, INTS), b.bitcast(x, INTS)])
    return b.add(total, _products_of_pairs(v, w, x))


def _products_of_pairs(v: Vectors, w: Any, x: Any) -> Any:
    """w_0 x_0 + w_1 x_1, w_2 x_2 + w_3 x_3 …"""
    b = v.builder
    if "avx512bw" in HOST:
        kind = ir.FunctionType(INTS, [HALVES, HALVES])
        return b.call(b.module.declare_intrinsic("llvm.x86.avx512.pmaddw.d.512", (), kind), [w, x])
    if "avx2" in HOST:
        half, result = (ir.VectorType(ir.IntType(bits), size) for bits, size in ((16, LANES), (32, LANES // 2)))
        pair = b.module.declare_intrinsic("llvm.x86.avx2.pmadd.wd", (), ir.FunctionType(result, [half, half]))
        sides = [INTS(list(range(first, first + LANES))) for first in (0, LANES)]
        low, high = (b.call(pair, [b.shuffle_vector(one, one, side) for one in (w, x)]) for side in sides)
        return b.shuffle_vector(low, high, INTS(list(range(LANES))))

    def every_other(one: Any, which: Any) -> Any:
        return b.sext(b.shuffle_vector(one, one, which), INTS)

    return b.add(*(b.mul(every_other(w, which), every_other(x, which)) for which in (EVEN, ODD)))


int8_one_row = _outputs_side_by_side(1, 1, UNROLL)
int8_some_rows, int8_many_rows = _outputs_side_by_side(PANELS, INT8_SOME), _outputs_side_by_side(PANELS, INT8_MANY)


def _groups_side_by_side(bits: int, rows: int, apart: bool = False) -> Any:
    """Σ_g (s_jg s_rg Σ_i c_ji x̂_ri + o_jg Σ_i x_ri) of two panels of outputs; row r is at ``to`` + r · ``to_row``.

    ``given`` are the addresses of codes, scales and offsets (0 for none), and whether these two are float32, else
    float16. ``x`` are the rows of x̂, ``x_row`` pairs apart; ``sizes`` are s_rg, and ``sums`` Σ_i x_ri, (R, G). With
    ``apart`` a byte's halves are summed in two registers, so that one row has enough independent sums.
    """
    places = 2 if apart else 1

    @intrinsic  # type: ignore[untyped-decorator]
    def products(
        context: Any, to: Any, to_row: Any, given: Any, x: Any, x_row: Any, per_group: Any, groups: Any, group: Any
    ) -> Any:
        def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            to, to_row, _, x, x_row, _, groups, group = arguments
            sizes, sums = cgutils.unpack_tuple(builder, arguments[5])
            codes, scales, offsets, wide = cgutils.unpack_tuple(builder, arguments[2])
            v, ahead = Vectors(builder), range(PAIR)
            totals = [[v.variable(0.0) for _ in ahead] for _ in range(rows)]
            ints = [[[_zero_ints(v) for _ in range(places)] for _ in ahead] for _ in range(rows)]
            step_size = builder.udiv(builder.mul(group, INT64(bits * PANEL)), INT64(8))  # a group in a panel, in bytes
            loads = builder.udiv(step_size, INT64(2 * PANEL))
            panels = [builder.mul(builder.mul(step_size, groups), INT64(p)) for p in ahead]
            pairs = builder.udiv(group, INT64(2))
            later = builder.mul(builder.mul(step_size, groups), INT64(AHEAD * PAIR))
            with cgutils.for_range(builder, groups) as g:
                for place in (one for row in ints for panel in row for one in panel):
                    builder.store(INTS([0] * LANES), place)
                here, first = builder.add(codes, builder.mul(g.index, step_size)), builder.mul(g.index, pairs)
                with cgutils.for_range(builder, loads) as step:
                    at = builder.add(here, builder.mul(step.index, INT64(2 * PANEL)))
                    parts = [_codes(v, builder.add(at, panel), bits) for panel in panels]
                    for panel in panels:
                        prefetch_address(builder, builder.add(builder.add(at, panel), later), level=2)
                    pair = builder.add(first, builder.mul(step.index, INT64(len(parts[0]))))
                    for r in range(rows):
                        for n in range(len(parts[0])):
                            where = ((x_row, INT64(r)), (INT64(1), builder.add(pair, INT64(n))))
                            own = v.broadcast(builder.load(v.at(INT32, x, *where), align=4))
                            both = builder.bitcast(own, HALVES)
                            for part, panel in zip(parts, ints[r]):
                                place = panel[n % places]
                                builder.store(_add_products(v, builder.load(place), part[n], both), place)
                for p in ahead:
                    there = (g.index, builder.mul(groups, INT64(p)))
                    for base in (scales, offsets):
                        prefetch_address(builder, _share_address(v, base, wide, there, AHEAD * PAIR, groups), level=2)
                    scale = _shares(v, scales, wide, there)
                    for r, (total, panel) in enumerate(zip(totals, ints)):
                        found = builder.load(panel[p][0])
                        for other in panel[p][1:]:
                            found = builder.add(found, builder.load(other))
                        size = builder.load(v.at(FLOAT, sizes, (groups, INT64(r)), (INT64(1), g.index)), align=4)
                        product = v.mul(builder.sitofp(found, VECTOR), v.mul(scale, v.broadcast(size)))
                        builder.store(v.add(builder.load(total[p]), product), total[p])
                    with builder.if_then(builder.icmp_signed("!=", offsets, INT64(0))):
                        offset = _shares(v, offsets, wide, there)
                        for r, total in enumerate(totals):
                            own = builder.load(v.at(FLOAT, sums, (groups, INT64(r)), (INT64(1), g.index)), align=4)
                            builder.store(v.add(builder.load(total[p]), v.mul(v.broadcast(own), offset)), total[p])
            for r, total in enumerate(totals):
                for p in ahead:
                    v.store(builder.load(total[p]), to, (to_row, INT64(r)), (INT64(PANEL), INT64(p)))
            return context.get_dummy_value()

        return types.void(to, to_row, given, x, x_row, per_group, groups, group), make

    return products


@intrinsic  # type: ignore[untyped-decorator]
def grouped4_split_row(context: Any, to: Any, given: Any, x: Any, per_group: Any, groups: Any, group: Any) -> Any:
    """What ``_groups_side_by_side`` computes, of one row and codes of 4 bits; ``x`` is split into bytes h and l."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to, _, x, _, groups, group = arguments
        sizes, sums = cgutils.unpack_tuple(builder, arguments[3])
        codes, scales, offsets, wide = cgutils.unpack_tuple(builder, arguments[1])
        b, v = builder, Vectors(builder)
        sixteen = ir.VectorType(ir.IntType(16), LANES)
        multiply = b.module.declare_intrinsic("llvm.x86.avx2.pmadd.ub.sw", (), ir.FunctionType(sixteen, [BYTES, BYTES]))
        totals = [v.variable(0.0) for _ in range(PAIR)]
        found = [_zero_ints(v) for _ in range(PAIR)]
        size = b.mul(group, INT64(PANEL // 2))  # of a group in a panel, in bytes
        panels = [b.mul(b.mul(size, groups), INT64(p)) for p in range(PAIR)]
        later = b.mul(b.mul(size, groups), INT64(AHEAD * PAIR))
        beside = ir.VectorType(INT32, 2 * LANES)([n // 2 + n % 2 * LANES for n in range(2 * LANES)])
        with cgutils.for_range(b, groups) as g:
            for total in found:
                b.store(INTS([0] * LANES), total)
            with cgutils.for_range(b, b.udiv(group, INT64(SPLIT))) as part:
                first_input = b.add(b.mul(g.index, group), b.mul(part.index, INT64(SPLIT)))
                here, own = (
                    b.add(base, b.mul(first_input, INT64(each))) for base, each in ((codes, PANEL // 2), (x, 4))
                )
                sums_of: list[list[Any]] = [[] for _ in range(PAIR)]  # of each panel: Σ c h and Σ c l
                for n in range(SPLIT // 4):
                    words = (b.inttoptr(b.add(own, INT64(16 * n + 4 * m)), INT32.as_pointer()) for m in range(4))
                    pieces = [b.bitcast(_broadcast_words(b, b.load(word, align=4)), BYTES) for word in words]
                    for panel, both in zip(panels, sums_of):
                        place = b.add(b.add(here, INT64(2 * PANEL * n)), panel)
                        prefetch_address(b, b.add(place, later), level=2)
                        loaded = b.load(b.inttoptr(place, BYTES.as_pointer()), align=1)
                        first = b.and_(loaded, BYTES([15] * (2 * LANES)))
                        second = b.lshr(loaded, BYTES([4] * (2 * LANES)))
                        products = [
                            b.add(b.call(multiply, [first, pieces[m]]), b.call(multiply, [second, pieces[2 + m]]))
                            for m in range(2)
                        ]
                        both[:] = [b.add(one, more) for one, more in zip(both, products)] if both else products
                for both, total in zip(sums_of, found):
                    pairs = b.shuffle_vector(*both, beside)
                    b.store(b.add(b.load(total), _products_of_pairs(v, pairs, HALVES([256, 1] * LANES))), total)
            by = v.broadcast(b.load(v.at(FLOAT, sizes, (INT64(1), g.index)), align=4))
            rest = v.broadcast(b.load(v.at(FLOAT, sums, (INT64(1), g.index)), align=4))
            for p, whole in enumerate(found):
                there = (g.index, b.mul(groups, INT64(p)))
                for base in (scales, offsets):
                    prefetch_address(b, _share_address(v, base, wide, there, AHEAD * PAIR, groups), level=2)
                product = v.mul(b.sitofp(b.load(whole), VECTOR), v.mul(_shares(v, scales, wide, there), by))
                b.store(v.add(b.load(totals[p]), product), totals[p])
                with b.if_then(b.icmp_signed("!=", offsets, INT64(0))):
                    shift = v.mul(rest, _shares(v, offsets, wide, there))
                    b.store(v.add(b.load(totals[p]), shift), totals[p])
        for p, total in enumerate(totals):
            v.store(b.load(total), to, (INT64(PANEL), INT64(p)))
        return context.get_dummy_value()

    return types.void(to, given, x, per_group, groups, group), make


def _broadcast_words(b: Any, word: Any) -> Any:
    """A vector of 2 · LANES bytes filled with a word of four."""
    kind = ir.VectorType(INT32, LANES // 2)
    first = b.insert_element(kind(ir.Undefined), word, INT32(0))
    return b.shuffle_vector(first, kind(ir.Undefined), kind([0] * (LANES // 2)))


def _codes(v: Vectors, at: Any, bits: int) -> list[Any]:
    """The codes of PANEL outputs in 2 · PANEL bytes, as int16: of two inputs, or with 4 bits twice of two."""
    b = v.builder
    if bits == 8:
        return [_load_bytes(v, at)]
    loaded = b.load(b.inttoptr(at, BYTES.as_pointer()), align=1)
    low, high = b.and_(loaded, BYTES([15] * (2 * LANES))), b.lshr(loaded, BYTES([4] * (2 * LANES)))
    return [b.zext(low, HALVES), b.zext(high, HALVES)]


def _share_address(v: Vectors, base: Any, wide: Any, there: tuple[Any, Any], panels: int, groups: Any) -> Any:
    """The address of the same group's scales or offsets, ``panels`` panels later."""
    b = v.builder
    number = b.mul(b.add(b.add(*there), b.mul(groups, INT64(panels))), INT64(PANEL))
    size = b.select(b.icmp_signed("!=", wide, INT64(0)), INT64(4), INT64(2))
    return b.add(base, b.mul(number, size))


def _shares(v: Vectors, base: Any, wide: Any, there: tuple[Any, Any]) -> Any:
    """Scales or offsets of a panel and a group, in float32; ``there`` is the group, and the groups before the panel."""
    b = v.builder
    number = b.mul(b.add(*there), INT64(PANEL))
    found = v.variable(0.0)
    with b.if_else(b.icmp_signed("!=", wide, INT64(0))) as (then, otherwise):
        with then:
            b.store(v.load(base, (INT64(1), number)), found)
        with otherwise:
            at = b.inttoptr(b.add(base, b.mul(number, INT64(2))), SHORT.as_pointer())
            b.store(b.fpext(b.load(at, align=2), VECTOR), found)
    return b.load(found)


grouped4_one_row, grouped8_one_row = _groups_side_by_side(4, 1, apart=True), _groups_side_by_side(8, 1)
grouped4_some_rows, grouped8_some_rows = (_groups_side_by_side(bits, INT8_SOME) for bits in (4, 8))
grouped4_many_rows, grouped8_many_rows = (_groups_side_by_side(bits, INT8_MANY) for bits in (4, 8))
