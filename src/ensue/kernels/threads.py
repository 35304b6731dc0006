"""Loops of our own on the threads that torch has already.

Where memory is slow, passes over it count: a loop that does at once what takes torch six operations is several times
as fast. Threads of its own would fight with torch's for the same cores (one of OpenMP keeps its core busy while it
waits), so it is handed to torch's OpenMP. Where torch has another, there are no such loops, and plain operations do.

A loop is a C function of one argument, a row of 64-bit numbers: how many parts of the work are taken already, then
whatever it needs, arrays as addresses (see ensue.kernels.elementwise_loops). Every thread takes parts until none is
left. What the parts
are depends on the work only, so the result does not depend on how many threads there are or which is first.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

PART = 64
"""How many rows are a part of the work."""
ROWS, LANES = 8, 16
"""A piece of a product of matrices, as much as fits into registers: no matrix has fewer rows, or part of the lanes."""
ORDINARY = (Tensor, nn.Parameter)

Counter = Callable[[str, tuple[Any, ...]], None]
"""Is told the name of a loop and what it is given."""
_counted: Counter | None = None


@contextmanager
def counted(counter: Counter) -> Iterator[None]:
    """A block in which tensors have no numbers: loops are taken where they would be, but are only counted."""
    global _counted  # noqa: PLW0603 - asked at every call of a loop, so it has to cost nothing
    before, _counted = _counted, counter
    try:
        yield
    finally:
        _counted = before


def _only_counted(one: Any) -> bool:
    """Whether this has no numbers, and it is known; other threads may have tensors that do."""
    return _counted is not None and isinstance(one, FakeTensor)


def numberless(tensor: Tensor) -> bool:
    """Whether a tensor has a shape, but no numbers that could be looked at."""
    return tensor.is_meta or isinstance(tensor, FakeTensor)


def with_numbers() -> AbstractContextManager[Any]:
    """A block in which tensors have numbers again, where they have none: for what is kept longer than a count."""
    return nullcontext() if _counted is None else _disable_current_modes()


@cache
def torch_threads() -> Any:
    """GOMP_parallel(function, argument, threads, flags) of the OpenMP that torch runs on, or None."""
    try:
        start = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")).GOMP_parallel
    except (OSError, AttributeError):
        return None
    start.argtypes, start.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint), None
    return start


def reachable(*tensors: Tensor) -> bool:
    """True if a loop can run over these tensors: float32 on the CPU, and torch's threads are known."""
    for tensor in tensors:
        if type(tensor) not in ORDINARY and not _only_counted(tensor):
            return False
        if tensor.device.type != "cpu" or tensor.dtype != torch.float32:
            return False
    return (
        not torch.compiler.is_compiling()
        and torch._C._get_tracing_state() is None  # torch.jit.trace
        and torch_threads() is not None
    )


def run(loop: Any, rows: int, *arguments: Tensor | int) -> None:
    """Run a loop over so many rows on as many threads as torch uses; arrays are given as contiguous tensors."""
    if _counted is not None and any(_only_counted(one) for one in arguments):
        _counted(loop.__name__, arguments)
        return
    numbers = [one if isinstance(one, int) else one.data_ptr() for one in arguments]
    row = (ctypes.c_int64 * (len(numbers) + 2))(0, rows, *numbers)
    threads = max(1, min(torch.get_num_threads(), rows // PART))
    torch_threads()(loop.address, ctypes.addressof(row), threads, 0)
