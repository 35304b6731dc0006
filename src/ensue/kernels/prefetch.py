"""Prefetching: ask for memory before it is needed, so that a compiled loop does not wait for it."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

CACHE_LINE = 16
"""32-bit numbers in a cache line, which come from memory together."""


def prefetch_address(builder: Any, address: Any, level: int = 3) -> None:
    """Prefetch the cache line at an address, an integer or a pointer, into caches of ``level`` and slower ones.

    3 is the fastest cache. An address that is not the program's does no harm.
    """
    pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
    function = builder.module.declare_intrinsic(
        "llvm.prefetch", [pointer], ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
    )
    cast = builder.bitcast if isinstance(address.type, ir.PointerType) else builder.inttoptr
    read, data_cache = number(0), number(1)
    builder.call(function, [cast(address, pointer), read, number(level), data_cache])


@intrinsic  # type: ignore[untyped-decorator]
def prefetch(typing: Any, array: Any, index: Any) -> Any:
    """Prefetch an element of a contiguous array by its flat index. An index outside the array does no harm."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind, index_kind = signature.args
        data = context.make_array(kind)(context, builder, values[0]).data
        element = builder.gep(data, [context.cast(builder, values[1], index_kind, types.intp)])
        prefetch_address(builder, element)
        return context.get_dummy_value()

    return types.void(array, index), generate
