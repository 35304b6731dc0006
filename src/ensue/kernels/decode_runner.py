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
from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.kernels.autograd_guards import plain
from ensue.kernels.decode_program import FEW, OUT, OUTPUTS, ROWS, CacheView, DecodeProgram, NotCompilable
from ensue.kernels.kernel import forced
from ensue.kernels.loops import Loops
from ensue.kernels.threads import LANES, barrier, loopable, torch_threads

decode_loops = Loops("ensue.kernels.decode_loops")

CACHED = (torch.float32, torch.bfloat16)
"""Types of keys and values that a program can read."""
PAGE = 4096
"""The workspaces of two threads begin a multiple of this apart, so that none writes where another reads."""


class DecodeRunner:
    """A program and its workspaces."""

    def __init__(self, program: DecodeProgram, x: Tensor) -> None:
        self.program, self.x = program, x
        self.code = np.array(program.code, np.int64)
        self.own = self.shared = torch.empty(0, dtype=torch.uint8)
        self.lock = threading.Lock()

    def run(self, x: Tensor, caches: Sequence[CacheView]) -> Tensor:
        """x (R, D) → the program's output (R, out). ``caches`` are what its instructions attend to, in order.

        One call at a time: workspaces and instructions are shared.
        """
        rows, code = len(x), self.code
        assert rows <= self.program.rows
        with self.lock:
            self.program.refresh()
            answer = _output(rows, int(code[self.program.answers[0], 3]))
            self.x[:rows] = x
            code[:, 1] = code[:, -1] = 0
            code[self.program.answers, OUT] = answer.data_ptr()
            columns = self._point_to(caches, rows)
            argument = self._argument(rows, columns)
            torch_threads()(decode_loops.interpret.address, ctypes.addressof(argument), torch.get_num_threads(), 0)
        return answer

    def _argument(self, rows: int, columns: int) -> Any:
        """The interpreter's argument, with a workspace for each thread and one for all."""
        high = -(-rows // LANES) * LANES
        floats = max(2 * self.program.head_width + columns + 2 * LANES, high * (3 * OUTPUTS + LANES) + 2 * OUTPUTS)
        columns += 2 * LANES
        prepared = 4 * high * (1 + self.program.inputs)  # sizes of rows, and the rows
        each = -(-(4 * floats + 8 * columns + (prepared if rows <= FEW else 0)) // PAGE) * PAGE
        self.own = _at_least(self.own, torch.get_num_threads() * each)
        self.shared = _at_least(self.shared, prepared)
        own, shared, code = self.own.data_ptr(), self.shared.data_ptr(), self.code
        return (ctypes.c_int64 * 10)(
            0, rows, len(code), code.ctypes.data, barrier(), own, each, floats, columns, shared
        )

    def _point_to(self, caches: Sequence[CacheView], rows: int) -> int:
        """Write the addresses of caches into the instructions; returns the most columns of one.

        Caches of a model are mostly alike, so each kind of them is described once.
        """
        code = self.code
        kinds: list[tuple[CacheView, list[int], list[CacheView]]] = []
        for number, view in zip(self.program.attends, caches, strict=True):
            for first, numbers, views in kinds:
                if view.alike(first):
                    numbers.append(number)
                    views.append(view)
                    break
            else:
                kinds.append((view, [number], [view]))
        for first, numbers, views in kinds:
            at = np.array(numbers)
            assert (code[at, 23] == first.keys.shape[1]).all()
            self._check(first, rows)
            code[at, 9] = [view.keys.data_ptr() for view in views]
            code[at, 10] = [view.values.data_ptr() for view in views]
            self._describe(at, first)
        return max((first.keys.shape[2] for first, _, _ in kinds), default=0)

    def _describe(self, at: NDArray[np.int64], view: CacheView) -> None:
        """Write all that is not the address of keys and values into instructions that are alike."""
        code, (row, head, step, _) = self.code, view.keys.stride()
        code[at, 11:14] = row, head, view.lengths.data_ptr()
        code[at, 15:18] = 0
        if view.rotation is not None:
            cos, sin = view.rotation
            code[at, 15:18] = cos.data_ptr(), sin.data_ptr(), cos.shape[-1] if len(cos) > 1 else 0
        code[at, 18] = 0 if view.index is None else view.index.data_ptr()
        code[at, 19:23] = step, view.each, 0, 0
        code[at, 24] = view.keys.dtype == torch.bfloat16
        if view.seen is not None:
            code[at, 21:23] = view.seen.data_ptr(), view.seen.shape[1]

    @staticmethod
    def _check(view: CacheView, rows: int) -> None:
        keys, values, lengths = view.keys, view.values, view.lengths
        assert keys.stride() == values.stride() and keys.stride(-1) == 1
        assert keys.dtype == values.dtype and keys.dtype in CACHED and lengths.dtype == torch.int64
        assert len(lengths) == rows and lengths.is_contiguous()
        assert view.seen is None or (view.seen.is_contiguous() and len(view.seen) == rows)


def _output(rows: int, width: int) -> Tensor:
    """A new tensor for a program's output."""
    return torch.empty(rows, width, dtype=torch.float32, device="cpu")


def _at_least(workspace: Tensor, size: int) -> Tensor:
    """The workspace, or a larger one where it has fewer than ``size`` bytes."""
    with torch.inference_mode(False):
        return workspace if len(workspace) >= size else torch.empty(size, dtype=torch.uint8, device="cpu")


class Fingerprint:
    """The modules of a model and the addresses of its weights: what a program depends on.

    ``holds`` is asked at every step, so it looks at what is kept here instead of walking the model.
    """

    def __init__(self, model: nn.Module) -> None:
        self.modules = list(model.modules())  # kept alive, so that no other object gets the id of one of them
        self.attributes = [module.__dict__ for module in self.modules]
        self.stored = [one for own in self.attributes for one in own["_parameters"].values() if one is not None]
        self.buffers = [one for own in self.attributes for one in own["_buffers"].values()]
        self.ids, self.addresses = self._ids(), [weight.data_ptr() for weight in self.stored]

    def _ids(self) -> list[int]:
        """The ids of all submodules, parameters and buffers."""
        every = self.attributes
        found = [id(one) for own in every for one in own["_modules"].values()]
        found += [id(one) for own in every if own["_parameters"] for one in own["_parameters"].values()]
        return found + [id(one) for own in every if own["_buffers"] for one in own["_buffers"].values()]

    def holds(self) -> bool:
        """Whether the model is the same, and a program may run.

        None may where a module is in training mode, where one is hooked, compiled or has a ``forward`` of its own, and
        where weights are not float32 on the CPU.
        """
        every = torch.nn.modules.module
        if every._global_forward_hooks or every._global_forward_pre_hooks or not barrier():
            return False
        for own in self.attributes:
            if own["training"] or own["_forward_hooks"] or own["_forward_pre_hooks"] or "forward" in own:
                return False
            if own.get("_compiled_call_impl"):
                return False
        if self._ids() != self.ids or [weight.data_ptr() for weight in self.stored] != self.addresses:
            return False
        return bool(self.stored) and loopable(*self.stored) and plain(self.stored[0])


class ProgramCache:
    """The programs of a model, compiled when first needed, and again where weights or modules are others."""

    def __init__(self) -> None:
        self.runners: dict[int, DecodeRunner] = {}
        self.found: Fingerprint | None = None
        """Of the model that the programs are for."""
        self.refused = False
        """Whether no program could be compiled for it."""
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
        size = next(most for most in ROWS if rows <= most)
        with self.lock:
            if self.found is None or not self.found.holds():
                self.runners, self.refused, self.found = {}, False, Fingerprint(model)
                if not self.found.holds():
                    return None
            if not self.refused and size not in self.runners:
                try:
                    program = DecodeProgram(size)
                    self.runners[size] = DecodeRunner(program, compile(program))
                except NotCompilable:
                    self.runners, self.refused = {}, True
            return self.runners.get(size)
