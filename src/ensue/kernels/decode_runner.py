"""Runs decode programs, and keeps those of a model.

A program is valid as long as the model's modules and the addresses of its weights are the same; that is checked at
every step, in one pass over the modules.

Legend: R rows, D width.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ensue.core.forks import free_lock
from ensue.kernels.autograd_guards import plain
from ensue.kernels.decode_caches import CacheGroup, group_caches
from ensue.kernels.decode_program import FEW, LINE, OUT, OUTPUTS, RANGES, ROWS, CacheView, DecodeProgram, NotCompilable
from ensue.kernels.decode_states import MatrixGroup
from ensue.kernels.dict_versions import DictVersions, Places, available
from ensue.kernels.kernel import forced
from ensue.kernels.loops import Loops
from ensue.kernels.threads import LANES, let_others_run, loopable, torch_threads

decode_loops = Loops("ensue.kernels.decode_loops")

PAGE = 4096
"""The workspaces of two threads begin a multiple of this apart, so that none writes where another reads."""


class DecodeRunner:
    """A program and its workspaces."""

    def __init__(self, program: DecodeProgram, x: Tensor) -> None:
        self.program, self.x = program, x
        self.code = np.array(program.code, np.int64)
        self.outputs = int(self.code[program.answers[0], 3])
        self.own = self.shared = self.counters = torch.empty(0, dtype=torch.uint8)
        self.lock = free_lock()

    def run(self, x: Tensor, caches: Sequence[CacheView]) -> Tensor:
        """x (R, D) → the program's output (R, out). ``caches`` are what its instructions attend to, in order."""
        return self.run_groups(x, group_caches(self.program.attends, caches))

    def run_groups(self, x: Tensor, groups: Sequence[CacheGroup | MatrixGroup]) -> Tensor:
        """The same where caches, and states that are matrices, are grouped already.

        One call at a time: workspaces and instructions are shared.
        """
        rows, code = len(x), self.code
        assert rows <= self.program.rows
        with self.lock:
            self.program.refresh()
            answer = _output(rows, self.outputs)
            self.x[:rows] = x
            code[self.program.answers, OUT] = answer.data_ptr()
            for group in groups:
                group.write(code, rows)
            columns, threads = max((group.columns for group in groups), default=0), torch.get_num_threads()
            argument = self._argument(rows, columns, threads)
            torch_threads()(decode_loops.interpret.address, ctypes.addressof(argument), threads, 0)
        return answer

    def _argument(self, rows: int, columns: int, threads: int) -> Any:
        """The interpreter's argument, with a workspace for each thread and one for all, and counters at 0."""
        high = -(-rows // LANES) * LANES
        floats = max(3 * self.program.head_width + columns + 2 * LANES, high * (3 * OUTPUTS + LANES) + 2 * OUTPUTS)
        columns += 2 * LANES
        prepared = 4 * high * (1 + self.program.inputs)  # sizes of rows, and the rows
        each = -(-(4 * floats + 8 * columns + (prepared if rows <= FEW else 0)) // PAGE) * PAGE
        code, counted = self.code, len(self.code) * (RANGES + LINE * threads)
        self.own = _at_least(self.own, threads * each)
        self.shared = _at_least(self.shared, prepared)
        self.counters = _at_least(self.counters, counted)
        ctypes.memset(self.counters.data_ptr(), 0, counted)
        own, shared, counters = self.own.data_ptr(), self.shared.data_ptr(), self.counters.data_ptr()
        sizes = each, floats, columns, shared, threads, counters
        return (ctypes.c_int64 * 12)(0, rows, len(code), code.ctypes.data, let_others_run(), own, *sizes)


def _output(rows: int, width: int) -> Tensor:
    """A new tensor for a program's output."""
    return torch.empty(rows, width, dtype=torch.float32, device="cpu")


def _at_least(workspace: Tensor, size: int) -> Tensor:
    """The workspace, or a larger one where it has fewer than ``size`` bytes."""
    with torch.inference_mode(False):
        return workspace if len(workspace) >= size else torch.empty(size, dtype=torch.uint8, device="cpu")


class Fingerprint:
    """The modules of a model and the addresses of its weights: what a program depends on.

    ``holds`` is asked at every step, of a thousand objects that the step's weights have driven out of the processor's
    cache. So it compares the versions of their dicts, and looks at the objects only where one has changed.
    """

    def __init__(self, model: nn.Module) -> None:
        self.modules = list(model.modules())  # kept alive, so that no other object gets the id of one of them
        self.attributes = [module.__dict__ for module in self.modules]
        self.stored = [one for own in self.attributes for one in own["_parameters"].values() if one is not None]
        self.addresses = [*map(Tensor.data_ptr, self.stored)]
        self.tables = [own[name] for own in self.attributes for name in ("_modules", "_parameters", "_buffers")]
        self.parts = self._parts()
        self.usable = bool(self.stored) and loopable(*self.stored) and plain(self.stored[0])
        hooks = [own[name] for own in self.attributes for name in ("_forward_hooks", "_forward_pre_hooks")]
        every = [*self.attributes, *self.tables, *hooks]
        self.versions = DictVersions(every) if self.usable and available() else None
        buffers = [one for own in self.attributes for one in own["_buffers"].values() if one is not None]
        self.places = Places(buffers if self.usable else [])
        self.same = self._looks_same()

    def holds(self) -> bool:
        """Whether the model is the same, and a program may run.

        None may where a module is in training mode, where one is hooked, compiled or has a ``forward`` of its own, and
        where weights are not float32 on the CPU.
        """
        every = torch.nn.modules.module
        if every._global_forward_hooks or every._global_forward_pre_hooks or torch_threads() is None:
            return False
        if self.versions is None:
            self.same = self._looks_same()
        elif not self.versions.unchanged():
            self.same = False  # should anything interrupt what follows: nobody would look again
            self.versions.remember()
            self.same = self._looks_same()
        if not self.same or not self.usable or [*map(Tensor.data_ptr, self.stored)] != self.addresses:
            return False
        return self.places.unchanged() and loopable() and plain(self.stored[0])

    def _parts(self) -> list[int]:
        """The ids of all submodules, parameters and buffers."""
        return [id(one) for table in self.tables for one in table.values()]

    def _looks_same(self) -> bool:
        """Whether all modules have the same parts and nothing that runs beside their ``forward``."""
        for own in self.attributes:
            if own["training"] or own["_forward_hooks"] or own["_forward_pre_hooks"] or "forward" in own:
                return False
            if own.get("_compiled_call_impl"):
                return False
        return self._parts() == self.parts


class ProgramCache:
    """The programs of a model, compiled when first needed, and again where weights or modules are others."""

    def __init__(self) -> None:
        self.runners: dict[int, DecodeRunner] = {}
        self.found: Fingerprint | None = None
        """Of the model that the programs are for."""
        self.refused = False
        """Whether no program could be compiled for it."""
        self.lock = free_lock()

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
