"""Sharing the work of one instruction among threads, none of which waits for a thread that has taken nothing.

An instruction's work is numbered chunks. A thread takes chunks until none is left, says how many it has finished, and
waits until all are. A barrier would wait for every thread; this waits for chunks, so a thread that the system has not
scheduled yet costs the others nothing: they do its share, and when it comes it skips the finished instructions. On
a busy machine a barrier costs a turn of the scheduler, and a decode step has hundreds of them.

``BOARD`` in ensue.kernels.decode_program says where counters are. ensue.kernels.decode_loops is compiled with these.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic

from ensue.kernels.compile import call, inner, next_chunk
from ensue.kernels.simd import INT64

SPINS = 4096
"""How often a waiting thread looks at a counter before it yields the CPU."""


@intrinsic  # type: ignore[untyped-decorator]
def read_counter(context: Any, address: Any) -> Any:
    """The number at an address; what other threads wrote before they changed it is seen after it."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(builder.inttoptr(arguments[0], INT64.as_pointer()), "acquire", 8)

    return types.int64(types.int64), make


@intrinsic  # type: ignore[untyped-decorator]
def add_to_counter(context: Any, address: Any, count: Any) -> Any:
    """Add to the number at an address; whoever reads it sees what this thread wrote before."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address, count = arguments
        return builder.atomic_rmw("add", builder.inttoptr(address, INT64.as_pointer()), count, "seq_cst")

    return types.int64(types.int64, types.int64), make


@intrinsic  # type: ignore[untyped-decorator]
def pause(context: Any) -> Any:
    """Tell the processor that this thread waits for another."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if binding.get_process_triple().startswith("x86_64"):
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(builder.module.declare_intrinsic("llvm.x86.sse2.pause", (), kind), [])
        return context.get_dummy_value()

    return types.void(), make


@inner
def finish_chunks(counter: int, done: int, chunks: int, give_way: int) -> None:
    """Add the chunks that this thread has finished, and wait until all are; ``give_way`` is the address of a function
    that lets other threads of the system run."""
    if done:
        add_to_counter(counter, done)
    looks = 0
    while read_counter(counter) < chunks:
        looks += 1
        if looks < SPINS:
            pause()
        else:
            call(give_way)


@inner
def take_chunk(counter: int, chunks: int) -> int:
    """The number of a chunk that nobody has taken, or one that is not below ``chunks``."""
    return next_chunk(counter) if read_counter(counter) < chunks else chunks


@inner
def begin_range(part: int, parts: int, chunks: int) -> int:
    """The first chunk of one of ``parts`` ranges of about the same size."""
    return part * chunks // parts
