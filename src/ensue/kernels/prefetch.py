"""Prefetching: ask for memory before it is needed, so that a compiled loop does not wait for it."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

CACHE_LINE = 16
"""32-bit numbers in a cache line, which come from memory together."""


@intrinsic  # type: ignore[untyped-decorator]
def prefetch(typing: Any, array: Any, index: Any) -> Any:
    """Prefetch an element of a contiguous array by its flat index. An index outside the array does no harm."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind, index_kind = signature.args
        data = context.make_array(kind)(context, builder, values[0]).data
        element = builder.gep(data, [context.cast(builder, values[1], index_kind, types.intp)])
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = builder.module.declare_intrinsic(
            "llvm.prefetch", [pointer], ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        )
        read, all_levels, data_cache = (number(value) for value in (0, 3, 1))
        builder.call(function, [builder.bitcast(element, pointer), read, all_levels, data_cache])
        return context.get_dummy_value()

    return types.void(array, index), generate
