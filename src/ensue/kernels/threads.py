"""Runs compiled loops on torch's own threads.

Where memory is slow, passes over it count: a loop that does at once what takes torch six operations is several times as
fast. Threads of its own would compete with torch's for the same cores (an OpenMP thread keeps its core busy while it
waits), so the loop runs on torch's OpenMP threads. Where torch has another OpenMP, plain operations run instead.

A loop is a C function of one argument, a row of int64s: the number of chunks of work that are taken, then sizes and
addresses of arrays (see ensue.kernels.compile). Every thread takes chunks until none is left. The chunks depend on the
work only, so the result does not depend on the number of threads or their order.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from ensue.kernels.machine_code import code_allowed

PART = 64
"""Rows of a chunk of work."""
ROWS, LANES = 8, 16
"""A tile of a matrix product, which fits into registers: matrices have at least ROWS rows and whole LANES columns."""
ORDINARY = (Tensor, nn.Parameter)

Step = TypeVar("Step")


class Counter(Protocol):
    """What counts operations on fake tensors."""

    times: int
    """How often an operation counts."""

    def loop(self, name: str, arguments: tuple[Any, ...]) -> None:
        """Count one of our loops."""


_counted: Counter | None = None


@contextmanager
def counted(counter: Counter) -> Iterator[None]:
    """Let ``counter`` count loops over fake tensors, which have shapes but no data, instead of running them."""
    global _counted  # noqa: PLW0603 - read at every call of a loop, so it has to be cheap
    before, _counted = _counted, counter
    try:
        yield
    finally:
        _counted = before


def _only_counted(one: Any) -> bool:
    """True for a fake tensor inside ``counted``; other threads may have real ones."""
    return _counted is not None and isinstance(one, FakeTensor)


def rounds(steps: Sequence[Step], over: Tensor) -> Iterator[Step]:
    """Yield the steps of a loop in Python, which are of the same size but for the last, which may be smaller.

    Over fake tensors inside ``counted`` only the first and the last are run: the first counts for all before the last.
    """
    counter = _counted
    if counter is None or len(steps) < 3 or not _only_counted(over):
        yield from steps
        return
    before, counter.times = counter.times, counter.times * (len(steps) - 1)
    try:
        yield steps[0]
    finally:
        counter.times = before
    yield steps[-1]


def is_fake(tensor: Tensor) -> bool:
    """True for a tensor that has a shape but no data."""
    return tensor.is_meta or isinstance(tensor, FakeTensor)


def real_tensors() -> AbstractContextManager[Any]:
    """A block in which new tensors are real also inside ``counted``: for values that are cached."""
    return nullcontext() if _counted is None else _disable_current_modes()


@cache
def torch_threads() -> Any:
    """GOMP_parallel(function, argument, threads, flags) of the OpenMP that torch runs on, or None.

    It is None too where the system allows no new machine code (SELinux, systemd): plain operations run then.
    """
    if sys.platform == "linux" and not code_allowed():
        return None
    try:
        start = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")).GOMP_parallel
    except (OSError, AttributeError):
        return None
    start.argtypes, start.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint), None
    return start


@cache
def barrier() -> int:
    """The address of GOMP_barrier(), at which threads wait for each other; 0 where torch has another OpenMP."""
    if torch_threads() is None:
        return 0
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    found = getattr(library, "GOMP_barrier", None)
    return 0 if found is None else int(ctypes.cast(found, ctypes.c_void_p).value or 0)


@cache
def let_others_run() -> int:
    """The address of sched_yield(), by which a thread that waits lets others of the system run."""
    return int(ctypes.cast(ctypes.CDLL(None).sched_yield, ctypes.c_void_p).value or 0)


def loopable(*tensors: Tensor) -> bool:
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
    """Run a loop on torch's threads. ``rows`` is the size of the work; arrays are passed as tensors."""
    if _counted is not None and any(_only_counted(one) for one in arguments):
        _counted.loop(loop.name, arguments)
        return
    numbers = [one if isinstance(one, int) else one.data_ptr() for one in arguments]
    row = (ctypes.c_int64 * (len(numbers) + 2))(0, rows, *numbers)
    threads = max(1, min(torch.get_num_threads(), rows // PART))
    torch_threads()(loop.address, ctypes.addressof(row), threads, 0)
