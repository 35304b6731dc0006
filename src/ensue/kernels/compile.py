"""Compiles loops with numba. ensue.kernels.loops does so on first use, and caches them on disk.

A loop is a C function that every thread runs (see ensue.kernels.threads). Its argument ``a`` is a row of 64-bit
integers: ``a[0]`` counts the chunks of work that are taken, the rest are sizes and addresses of arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.core.ccallback import CFunc
from numba.core.sigutils import normalize_signature
from numba.extending import intrinsic

from ensue.core.compile_cache import enable_cache
from ensue.core.compile_notice import watch
from ensue.kernels.loop_object import emit_object
from ensue.kernels.loops import Loop, source_stamp

watch()

ARGUMENT = types.CPointer(types.int64)
OPTIONS: dict[str, Any] = {"fastmath": {"reassoc", "contract"}, "error_model": "numpy"}
"""Sums may be reordered, so that they use vectors. Division by zero raises nothing: a thread that left its loop would
let the others wait for ever."""
EXACT: dict[str, Any] = {"error_model": "numpy"}
"""Each operation is rounded as torch rounds it."""


def cached(compiled: Any) -> Any:
    """Cache a compiled function on disk, if a folder can be written, until ``source_stamp`` changes."""
    if enable_cache(compiled):
        compiled._cache._cache_file._source_stamp = source_stamp()
    return compiled


class LoopSource(Loop):
    """A loop and the function it is compiled from, when it is first needed."""

    def __init__(self, function: Callable[[Any], None], options: dict[str, Any]) -> None:
        super().__init__(function.__module__, function.__name__)
        self.function, self.options = function, options

    def compile(self) -> Any:
        """Compile it, or load it from numba's cache; ``address`` of the result is a C function."""
        signature = normalize_signature(types.void(ARGUMENT))
        compiled = cached(CFunc(self.function, signature, locals={}, options=self.options))
        compiled.compile()
        return compiled

    def object_code(self) -> bytes:
        """Compile it to an object file (ELF) that needs the C library only."""
        return emit_object(self.function, ARGUMENT, self.options)


def loop(function: Callable[[Any], None]) -> LoopSource:
    """Compile a loop to a C function (decorator)."""
    return LoopSource(function, OPTIONS)


def exact_loop(function: Callable[[Any], None]) -> LoopSource:
    """Compile a loop whose results are bit-identical to those of torch's operations (decorator)."""
    return LoopSource(function, EXACT)


def inner(function: Callable[..., Any]) -> Any:
    """Compile a function that loops call (decorator)."""
    return cached(numba.njit(**OPTIONS)(function))


@intrinsic  # type: ignore[untyped-decorator]
def next_chunk(context: Any, counter: Any) -> Any:
    """Take the next chunk of work: the number at a pointer or an address, which is incremented atomically."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (at,) = arguments
        if signature.args[0] != ARGUMENT:
            at = builder.inttoptr(at, ir.IntType(64).as_pointer())
        return builder.atomic_rmw("add", at, ir.Constant(ir.IntType(64), 1), "seq_cst")

    return types.int64(ARGUMENT if counter == ARGUMENT else types.int64), make


@intrinsic  # type: ignore[untyped-decorator]
def pointer(context: Any, address: Any) -> Any:
    """An address as the pointer that ``carray`` takes."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), make


@intrinsic  # type: ignore[untyped-decorator]
def call(context: Any, address: Any) -> Any:
    """Call the C function ``void f(void)`` at an address."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function = builder.inttoptr(arguments[0], ir.FunctionType(ir.VoidType(), []).as_pointer())
        builder.call(function, [])
        return context.get_dummy_value()

    return types.void(types.int64), make
