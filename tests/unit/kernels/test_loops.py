"""Compiled loops are loaded from a cache of machine code, without numba, and give what numba's functions give."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from ensue.kernels import loops
from ensue.kernels.loops import Loop, cache_file, machine_code_runs
from ensue.kernels.machine_code import UNDEFINED, UnsupportedObject, load_function, read_object

PACKAGE = Path(loops.__file__).parent
MODULES = (*(file.stem for file in sorted(PACKAGE.glob("*_loops.py"))), "tiles")
C_LIBRARY = {"malloc", "free", "write", "abort", "memset", "memcpy", "memmove", "expf"}
MADE = """
import numpy as np
from numba import carray

from ensue.kernels.compile import inner, loop, next_chunk, pointer

@inner
def squared(x):
    return x * x

@loop
def squares(a):
    \"\"\"y = x² + n by way of an array of its own.\"\"\"
    x, y = carray(pointer(a[2]), a[1], np.float64), carray(pointer(a[3]), a[1], np.float64)
    n = next_chunk(a)
    while n < a[1]:
        own = np.zeros(3 + n)
        own[:] = squared(x[n])
        y[n] = own[2] + n
        n = next_chunk(a)

@loop
def reshaped(a):
    \"\"\"The same with a function of numba's runtime that is not in the C library.\"\"\"
    x, y = carray(pointer(a[2]), a[1], np.float64), carray(pointer(a[3]), a[1], np.float64)
    wide = x[: a[1] // 2 * 2].reshape(a[1] // 2, 2)
    for n in range(len(wide)):
        y[2 * n], y[2 * n + 1] = wide[n, 0] ** 2 + 2 * n, wide[n, 1] ** 2 + 2 * n + 1
"""
SCRIPT = """
import ctypes, sys
from ensue.kernels import loops
from ensue.kernels.loops import Loop
if {numba}:
    loops.machine_code_runs = lambda: False
name, count = {name!r}, 6
x, y = (ctypes.c_double * count)(*range(count)), (ctypes.c_double * count)()
row = (ctypes.c_int64 * 4)(0, count, ctypes.addressof(x), ctypes.addressof(y))
ctypes.CFUNCTYPE(None, ctypes.c_void_p)(Loop("made", name).address)(ctypes.addressof(row))
print([int(one) for one in y], "numba" in sys.modules)
"""
RESULT = str([n * n + n for n in range(6)])

here = pytest.mark.skipif(not machine_code_runs(), reason="no machine code on this system")


def run_made(folder: Path, name: str = "squares", numba: bool = False) -> str:
    (folder / "made.py").write_text(MADE)
    path = os.pathsep.join([str(folder), str(PACKAGE.parents[1])])
    given = {**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(folder / "cache")}
    script = SCRIPT.format(name=name, numba=numba)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=given)
    return done.stdout.strip()


@here
def test_a_loop_is_compiled_once_and_then_runs_without_numba(tmp_path: Path) -> None:
    assert run_made(tmp_path) == f"{RESULT} True"
    (file,) = (tmp_path / "cache").glob("made.squares.*.o")
    machine = ".".join(file.name.split(".")[:3])
    stale, other = file.with_name(f"{machine}.0.o"), file.with_name("made.squares.1.0.o")
    assert run_made(tmp_path) == f"{RESULT} False"
    file.rename(stale)
    other.touch()
    assert run_made(tmp_path) == f"{RESULT} True"
    assert file.exists() and other.exists() and not stale.exists()  # another machine's code is kept


def test_numba_runs_a_loop_where_there_is_no_machine_code(tmp_path: Path) -> None:
    assert run_made(tmp_path, numba=True) == f"{RESULT} True"
    assert not [*tmp_path.rglob("*.o")]


def test_a_loop_that_needs_more_than_the_c_library_is_left_to_numba(tmp_path: Path) -> None:
    assert [run_made(tmp_path, "reshaped") for _ in range(2)] == [f"{RESULT} True"] * 2
    assert not [*tmp_path.rglob("*.o")]


@here
@pytest.mark.parametrize("module", MODULES)
def test_every_loop_of_ours_is_machine_code_that_needs_the_c_library_alone(module: str) -> None:
    found = [one for one in vars(import_module(f"ensue.kernels.{module}")).values() if isinstance(one, Loop)]
    assert found
    for one in found:
        assert one.address
        file = cache_file(one.module, one.name)
        if file is not None and file.exists():
            tables = read_object(file.read_bytes())
            needed = {tables.text(symbol) for symbol in tables.symbols if symbol.section == UNDEFINED and symbol.name}
            assert needed <= C_LIBRARY, one


@pytest.mark.parametrize("code", [b"", b"\x7fELF" + bytes(60), b"\x7fELF\x02\x01" + bytes(80)])
def test_what_is_no_object_is_refused(code: bytes) -> None:
    with pytest.raises(UnsupportedObject):
        load_function(code, "f")
