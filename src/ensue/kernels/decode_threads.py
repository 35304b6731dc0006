"""How the threads that play a tape share its work: each takes the next part, and they wait for each other.

A part is taken by adding one to a number that all of them see. What is here is compiled into
ensue.kernels.decode_loops.
"""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ensue.kernels.elementwise_loops import OPTIONS as USUAL
from ensue.kernels.simd import WHOLE

OPTIONS = {**USUAL, "error_model": "numpy"}
"""As other loops, but what is divided by 0 is no error: a thread that left would let the others wait for ever."""

NOTHING = ir.VoidType()


def piece(function: Any) -> Any:
    """Compile a piece of the loop."""
    return numba.njit(**OPTIONS)(function)


@intrinsic  # type: ignore[untyped-decorator]
def next_part(context: Any, address: Any) -> Any:
    """The number at an address, which is one more from then on: nobody else gets it."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        there = builder.inttoptr(arguments[0], WHOLE.as_pointer())
        return builder.atomic_rmw("add", there, WHOLE(1), "seq_cst")

    return types.int64(types.int64), make


@intrinsic  # type: ignore[untyped-decorator]
def call(context: Any, address: Any) -> Any:
    """Call a C function that takes and gives nothing."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function = builder.inttoptr(arguments[0], ir.FunctionType(NOTHING, []).as_pointer())
        builder.call(function, [])
        return context.get_dummy_value()

    return types.void(types.int64), make
