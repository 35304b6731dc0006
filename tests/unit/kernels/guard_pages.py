"""Tensors that end, or begin, at a page nobody may touch: a loop that reads or writes beyond them crashes at once.

Compiled loops get addresses, so nothing checks their bounds. With ENSUE_GUARD_PAGES=1 the tests of kernels run them on
such tensors: every argument of a loop is copied to guarded memory and back, decode programs keep their buffers,
weights, workspaces and outputs there, and the arrays that loops allocate are there too, and gone once they are freed.
"""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ensue.kernels import (
    add_norm,
    blocked_attention,
    cross_entropy,
    decode_program,
    decode_runner,
    dropout,
    feed_forward,
    gated_feed_forward,
    grouped,
    gru,
    machine_code,
    matmul,
    rms_norm,
    rotary,
    short_attention,
    threads,
)
from ensue.kernels.decode_caches import group_caches
from ensue.kernels.decode_states import MatrixGroup
from ensue.kernels.loop_object import HEADER_SIZE
from ensue.nn import decode_compiler

LIBC = ctypes.CDLL(None, use_errno=True)
PAGE = mmap.PAGESIZE
MAP = LIBC.mmap
MAP.restype, MAP.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
ANONYMOUS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
ALIGNMENT = 32
"""How numba aligns arrays."""


def guarded(size: int, at_end: bool = True) -> Tensor:
    """``size`` bytes between two pages that cannot be read or written; they touch the second, or the first."""
    pages = -(-size // PAGE)
    region = mmap.mmap(-1, (pages + 2) * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(region))
    for page in (start, start + (pages + 1) * PAGE):
        if LIBC.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(PAGE), 0):  # PROT_NONE
            raise OSError(ctypes.get_errno(), "mprotect")
    offset = PAGE + pages * PAGE - size if at_end else PAGE
    with torch.inference_mode(False), torch.device("cpu"):
        return torch.frombuffer(region, dtype=torch.uint8, count=size, offset=offset) if size else torch.empty(0)


def copied(x: Tensor) -> Tensor:
    """A contiguous tensor in guarded memory."""
    with torch.inference_mode(False):
        space = guarded(x.numel() * x.element_size())
        return space.view(x.dtype).view(x.shape).copy_(x) if x.numel() else x


class _Region:
    """Some memory and its copy in guarded memory."""

    def __init__(self, at: int, size: int) -> None:
        self.at, self.size, self.copy = at, size, guarded(size)
        ctypes.memmove(self.copy.data_ptr(), at, size)

    def write_back(self) -> None:
        """Copy it back."""
        ctypes.memmove(self.at, self.copy.data_ptr(), self.size)


class GuardedHeap:
    """malloc and free of loops: arrays end (within 32 bytes) where nobody may read or write, and are gone once freed.

    A loop is bound to it when it is loaded inside ``bound``. Threads without the GIL call it, so it takes the GIL.
    """

    def __init__(self) -> None:
        self.blocks: dict[int, tuple[int, int]] = {}
        self.malloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)(self._allocate)
        self.free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._release)

    def _allocate(self, size: int) -> int:
        pages = -(-size // PAGE)
        start = MAP(None, (pages + 1) * PAGE, mmap.PROT_READ | mmap.PROT_WRITE, ANONYMOUS, -1, 0)
        end = start + pages * PAGE
        if LIBC.mprotect(ctypes.c_void_p(end), ctypes.c_size_t(PAGE), 0):  # PROT_NONE
            raise OSError(ctypes.get_errno(), "mprotect")
        data = (end - (size - HEADER_SIZE - ALIGNMENT)) // ALIGNMENT * ALIGNMENT
        block = data - HEADER_SIZE  # so that the loop aligns its data to there
        self.blocks[block] = start, (pages + 1) * PAGE
        return block

    def _release(self, block: int) -> None:
        start, size = self.blocks.pop(block)
        LIBC.munmap(ctypes.c_void_p(start), ctypes.c_size_t(size))

    def bound(self, patch: pytest.MonkeyPatch) -> None:
        """Give this malloc and free to the loops that are loaded from now on."""
        outside = machine_code._outside
        own = {name: ctypes.cast(getattr(self, name), ctypes.c_void_p).value for name in ("malloc", "free")}
        patch.setattr(machine_code, "_outside", lambda name: own.get(name) or outside(name))


def guarded_run(run: Callable[..., None]) -> Callable[..., None]:
    """``threads.run`` on guarded copies of its arguments: once at the begin of a page for nothing, once at the end."""

    def twice(loop: Any, rows: int, *arguments: Tensor | int) -> None:
        tensors = [one for one in arguments if isinstance(one, Tensor)]
        if any(threads._only_counted(one) for one in tensors):
            run(loop, rows, *arguments)
            return
        storages = {one.untyped_storage().data_ptr(): one.untyped_storage() for one in tensors}
        for at_end in (False, True):
            copies = {at: guarded(storage.nbytes(), at_end) for at, storage in storages.items()}
            for at, copy in copies.items():
                if len(copy):
                    ctypes.memmove(copy.data_ptr(), at, len(copy))
            moved = []
            for one in arguments:
                if isinstance(one, Tensor) and one.numel():
                    at = one.untyped_storage().data_ptr()
                    moved.append(copies[at].data_ptr() + one.data_ptr() - at)
                else:
                    moved.append(one if isinstance(one, int) else 0)
            run(loop, rows, *moved)
        for at, copy in copies.items():
            if len(copy):
                ctypes.memmove(at, copy.data_ptr(), len(copy))

    return twice


def install(patch: pytest.MonkeyPatch) -> None:
    """Run all loops on guarded memory."""
    wrapped = guarded_run(threads.run)
    ours = (add_norm, blocked_attention, cross_entropy, dropout, feed_forward, gated_feed_forward, grouped, gru)
    for module in (*ours, matmul, rms_norm, rotary, short_attention):
        patch.setattr(module, "run", wrapped)

    def buffer(program: decode_program.DecodeProgram, width: int) -> Tensor:
        program.buffers.append(copied(torch.zeros(program.rows, width, dtype=torch.float32, device="cpu")))
        return program.buffers[-1]

    def at_least(workspace: Tensor, size: int) -> Tensor:
        return workspace if len(workspace) == size else guarded(size)

    weight, run, group = decode_program.DecodeProgram._weight, decode_runner.DecodeRunner.run_groups, group_caches
    waiting: list[tuple[Sequence[int], Sequence[Any]]] = []

    def remembered(numbers: Sequence[int], caches: Sequence[Any]) -> Any:
        waiting.append((numbers, caches))
        return group(numbers, caches)

    def views(self: Any, x: Tensor, groups: Any) -> Tensor:
        """Caches and matrices are copied to guarded memory for the run, and back."""
        numbers, caches = waiting.pop() if waiting else ((), ())
        held = [(one.keys, one.values) for one in caches]
        for one in caches:
            one.keys, one.values = copied(one.keys.contiguous()), copied(one.values.contiguous())
            one.lengths = copied(one.lengths)
            one.seen = None if one.seen is None else copied(one.seen)
            one.rotation = None if one.rotation is None else tuple(copied(part.contiguous()) for part in one.rotation)
        matrices = [one for one in groups if isinstance(one, MatrixGroup)]
        states = [(at, one, column) for one in matrices for row in one.addresses for column, at in enumerate(row) if at]
        moved = [_Region(int(at), 4 * math.prod(one.shape[: 4 if column < 2 else 3])) for at, one, column in states]
        places = {region.at: region.copy.data_ptr() for region in moved}
        guarded_groups = [
            replace(one, addresses=np.vectorize(lambda at: places.get(at, 0), otypes=[np.int64])(one.addresses))
            for one in matrices
        ]
        answer = run(self, x, [*group(numbers, caches), *guarded_groups])
        for region in moved:
            region.write_back()
        for one, (keys, values) in zip(caches, held, strict=True):
            keys.copy_(one.keys)
            values.copy_(one.values)
        return answer

    patch.setattr(decode_program.DecodeProgram, "buffer", buffer)
    patch.setattr(decode_program.DecodeProgram, "_weight", lambda self, one: weight(self, copied(one.detach())))
    patch.setattr(decode_runner, "_at_least", at_least)
    patch.setattr(
        decode_runner,
        "_output",
        lambda rows, width: copied(torch.empty(rows, width, device="cpu", dtype=torch.float32)),
    )
    patch.setattr(decode_runner.DecodeRunner, "run_groups", views)
    patch.setattr(decode_runner, "group_caches", remembered)
    patch.setattr(decode_compiler, "group_caches", remembered)
    patch.setattr(decode_compiler.Continued, "by", lambda *_: False)
