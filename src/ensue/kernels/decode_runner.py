"""Runs decode programs, and keeps those of a model.

A program is valid as long as the model's modules and the addresses of its weights are the same; that is checked at
every step, in one pass over the modules.

Legend: R rows, D width.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ensue.kernels.autograd_guards import plain
from ensue.kernels.decode_program import FEW, OUT, OUTPUTS, ROWS, CacheView, DecodeProgram, NotCompilable
from ensue.kernels.kernel import forced
from ensue.kernels.threads import LANES, barrier, loopable, torch_threads

PAGE = 4096
"""The workspaces of two threads begin a multiple of this apart, so that none writes where another reads."""


class DecodeRunner:
    """A program and its workspaces."""

    def __init__(
        self, program: DecodeProgram, x: Tensor, fingerprint: list[int], modules: Sequence[nn.Module] = ()
    ) -> None:
        self.program, self.x, self.fingerprint = program, x, fingerprint
        self.modules = modules  # kept alive, so that no other module gets the id of one of them
        self.code = np.array(program.code, np.int64)
        self.own = self.shared = torch.empty(0, dtype=torch.uint8)
        self.lock = threading.Lock()

    def run(self, x: Tensor, caches: Sequence[CacheView], rotation: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """x (R, D) → the program's output (R, out). ``rotation`` is cos and sin of the rows' rotary positions.

        One call at a time: workspaces and instructions are shared.
        """
        from ensue.kernels import decode_loops  # importing numba takes long

        rows, code = len(x), self.code
        assert rows <= self.program.rows
        with self.lock:
            self.program.refresh()
            answer = _output(rows, int(code[self.program.answers[0], 3]))
            self.x[:rows] = x
            code[:, [1, -1]] = 0
            code[self.program.answers, OUT] = answer.data_ptr()
            columns = self._point_to(caches, rotation, rows)
            argument = self._argument(rows, columns)
            torch_threads()(decode_loops.interpret.address, ctypes.addressof(argument), torch.get_num_threads(), 0)
        return answer

    def _argument(self, rows: int, columns: int) -> Any:
        """The interpreter's argument, with a workspace for each thread and one for all."""
        high = -(-rows // LANES) * LANES
        floats = max(self.program.head_width + columns + 2 * LANES, high * (3 * OUTPUTS + LANES) + 2 * OUTPUTS)
        columns += 2 * LANES
        prepared = 4 * high * (1 + self.program.inputs)  # sizes of rows, and the rows
        each = -(-(4 * floats + 8 * columns + (prepared if rows <= FEW else 0)) // PAGE) * PAGE
        self.own = _at_least(self.own, torch.get_num_threads() * each)
        self.shared = _at_least(self.shared, prepared)
        own, shared, code = self.own.data_ptr(), self.shared.data_ptr(), self.code
        return (ctypes.c_int64 * 10)(
            0, rows, len(code), code.ctypes.data, barrier(), own, each, floats, columns, shared
        )

    def _point_to(self, caches: Sequence[CacheView], rotation: tuple[Tensor, Tensor] | None, rows: int) -> int:
        """Write the addresses of caches into the instructions; returns the most columns of one."""
        code, most = self.code, 0
        cos, sin, apart = 0, 0, 0
        if rotation is not None:
            cos, sin = rotation[0].data_ptr(), rotation[1].data_ptr()
            apart = rotation[0].shape[-1] if len(rotation[0]) > 1 else 0
        for at, view in zip(self.program.attends, caches, strict=True):
            keys, values, lengths = view.keys, view.values, view.lengths
            assert keys.stride() == values.stride() and keys.stride(-1) == 1
            assert keys.dtype == values.dtype == torch.float32 and lengths.dtype == torch.int64
            assert len(lengths) == rows and lengths.is_contiguous() and keys.shape[1] == code[at, 23]
            code[at, 9:14] = keys.data_ptr(), values.data_ptr(), keys.stride(0), keys.stride(1), lengths.data_ptr()
            code[at, 15:18] = (cos, sin, apart) if code[at, 4] else (0, 0, 0)
            code[at, 18] = 0 if view.index is None else view.index.data_ptr()
            code[at, 19:23] = keys.stride(2), view.each, 0, 0
            if view.seen is not None:
                assert view.seen.is_contiguous() and len(view.seen) == rows
                code[at, 21:23] = view.seen.data_ptr(), view.seen.shape[1]
            most = max(most, keys.shape[2])
        return most


def _output(rows: int, width: int) -> Tensor:
    """A new tensor for a program's output."""
    return torch.empty(rows, width, dtype=torch.float32, device="cpu")


def _at_least(workspace: Tensor, size: int) -> Tensor:
    """The workspace, or a larger one where it has fewer than ``size`` bytes."""
    with torch.inference_mode(False):
        return workspace if len(workspace) >= size else torch.empty(size, dtype=torch.uint8, device="cpu")


def fingerprint(model: nn.Module) -> list[int] | None:
    """The modules of a model and the addresses of its weights; None where no program may run.

    That is where a module is in training mode, where one is hooked, compiled or has a ``forward`` of its own, and where
    weights are not float32 on the CPU.
    """
    every = torch.nn.modules.module
    if every._global_forward_hooks or every._global_forward_pre_hooks or not barrier():
        return None
    modules: list[int] = []
    weights: list[Tensor] = []
    left: list[nn.Module | None] = [model]
    while left:
        module = left.pop()
        if module is None:
            continue
        own = module.__dict__
        if own["training"] or own["_forward_hooks"] or own["_forward_pre_hooks"]:
            return None
        if "forward" in own or own.get("_compiled_call_impl"):
            return None
        modules.append(id(module))
        if own["_parameters"]:
            weights += [weight for weight in own["_parameters"].values() if weight is not None]
        if own["_modules"]:
            left += own["_modules"].values()
    if not loopable(*weights) or not plain(weights[0]):
        return None
    return modules + [weight.data_ptr() for weight in weights]


class ProgramCache:
    """The programs of a model, compiled when first needed, and again where weights or modules are others."""

    def __init__(self) -> None:
        self.runners: dict[int, DecodeRunner] = {}
        self.refused: list[int] = []
        """The fingerprint for which no program could be compiled."""
        self.lock = threading.Lock()

    def __reduce__(self) -> tuple[type[ProgramCache], tuple[()]]:
        """A copy of a model has its own weights, and so its own programs."""
        return ProgramCache, ()

    def runner(self, model: nn.Module, rows: int, compile: Callable[[DecodeProgram], Tensor]) -> DecodeRunner | None:
        """Runs the model's program for ``rows`` rows; None where there can be none. ``compile`` returns its input.

        ``use("reference", "decode")`` runs operations one by one instead.
        """
        if forced("decode") == "reference" or not 0 < rows <= ROWS[-1] or torch.is_grad_enabled():
            return None
        found = fingerprint(model)
        if found is None:
            return None
        size = next(most for most in ROWS if rows <= most)
        with self.lock:
            if self.refused == found:
                return None
            if size in self.runners and self.runners[size].fingerprint == found:
                return self.runners[size]
            try:
                program = DecodeProgram(size)
                self.runners[size] = DecodeRunner(program, compile(program), found, list(model.modules()))
            except NotCompilable:
                self.runners, self.refused = {}, found
            return self.runners.get(size)
