"""Compiled loops are loaded from a cache of machine code, without numba, and give what numba's functions give."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from ensue.kernels import loops
from ensue.kernels.loops import Loop, cache_file, machine_code_runs, stored
from ensue.kernels.machine_code import UNDEFINED, UnsupportedObject, load_function, read_object

PACKAGE = Path(loops.__file__).parent
MODULES = (*(file.stem for file in sorted(PACKAGE.glob("*_loops.py"))), "tiles")
C_LIBRARY = {"malloc", "free", "write", "abort", "memset", "memcpy", "memmove", "expf", "log2f"}
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

@loop
def waits(a):
    \"\"\"Count for ever.\"\"\"
    while next_chunk(a) >= 0:
        pass
"""
WAITS = """
import ctypes, threading
from ensue.kernels.loops import Loop
row = (ctypes.c_int64 * 1)()
run = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(Loop("made", "waits").address)
for one in (row, run):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))  # the thread uses them to the end
threading.Thread(target=run, args=(ctypes.addressof(row),), daemon=True).start()
while not row[0]:
    pass
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
DENIED = """
import ctypes, sys
import torch
from ensue.kernels.rms_norm import rms_norm
from ensue.kernels.threads import loopable
PR_SET_MDWE, REFUSE_EXEC_GAIN = 65, 1
if ctypes.CDLL(None).prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0):
    sys.exit("this system cannot forbid new machine code")
x, weight = torch.randn(64, 64), torch.randn(64)
torch.testing.assert_close(rms_norm(x, weight, 1e-6), torch.nn.functional.rms_norm(x, (64,), weight, 1e-6))
print(loopable(x), "numba" in sys.modules)
"""
RESULT = str([n * n + n for n in range(6)])

here = pytest.mark.skipif(not machine_code_runs(), reason="no machine code on this system")


def run_made(folder: Path, name: str = "squares", numba: bool = False) -> str:
    return run_script(folder, SCRIPT.format(name=name, numba=numba))


def run_script(folder: Path, script: str) -> str:
    (folder / "made.py").write_text(MADE)
    path = os.pathsep.join([str(folder), str(PACKAGE.parents[1])])
    given = {**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(folder / "cache")}
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
            tables = read_object(stored(file) or b"")
            needed = {tables.text(symbol) for symbol in tables.symbols if symbol.section == UNDEFINED and symbol.name}
            assert needed <= C_LIBRARY, one


def own_arrays(function: ast.FunctionDef) -> set[str]:
    """The variables of a function that are arrays of its own."""
    makers = {"empty", "zeros"}
    return {
        name.id
        for made in ast.walk(function)
        if isinstance(made, ast.Assign) and any(getattr(one, "attr", "") in makers for one in ast.walk(made.value))
        for target in made.targets
        for name in ast.walk(target)
        if isinstance(name, ast.Name)
    }


def test_arrays_are_read_inside_the_loop_that_needs_them() -> None:
    """Numba frees an array after its last use as it stands in the source, whoever still has its address."""
    found, early = 0, []
    for file in sorted(PACKAGE.glob("*_loops.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for function in (one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)):
            loops_of = [one for one in function.body if isinstance(one, ast.While | ast.For)]
            inside = {one.id for loop in loops_of for one in ast.walk(loop) if isinstance(one, ast.Name)}
            arrays = own_arrays(function)
            found += len(arrays)
            early += [f"{file.name}: {function.name}: {name}" for name in arrays - inside]
    assert found > 20 and not early


class Made(Loop):
    """A loop whose compiled object is given."""

    def __init__(self, code: bytes) -> None:
        super().__init__("made", "given")
        self.code, self.compiled = code, 0

    def _source(self) -> Made:
        return self

    def object_code(self) -> bytes:
        self.compiled += 1
        return self.code


@here
def test_a_damaged_file_is_never_run_but_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "cache_folder", lambda: tmp_path)
    loaded: list[bytes] = []

    def load(code: bytes, name: str) -> int:
        loaded.append(code)
        return 1

    monkeypatch.setattr(loops, "load_function", load)
    code = bytes(range(256)) * 4
    assert Made(code).address
    file = cache_file("made", "given")
    assert file is not None
    whole = file.read_bytes()
    flipped = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in (0, 300, 1023, 1024, len(whole) - 1)]
    for damaged in (b"", whole[:31], whole[:32], whole[:500], whole[:-1], whole + b"\0", bytes(len(whole)), *flipped):
        file.write_bytes(damaged)
        again = Made(code)
        assert again.address and again.compiled == 1 and file.read_bytes() == whole
    assert set(loaded) == {code}
    last = Made(code)
    assert last.address and not last.compiled


@here
@pytest.mark.parametrize("way", ["mode", "owner"])
def test_code_that_somebody_else_could_have_written_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Not even with the right digest beside it."""
    monkeypatch.setattr(loops, "cache_folder", lambda: tmp_path)
    loaded: list[bytes] = []
    monkeypatch.setattr(loops, "load_function", lambda code, name: loaded.append(code) or 1)
    file = cache_file("made", "given")
    assert file is not None
    loops.store(file, b"theirs")
    if way == "mode":
        file.chmod(0o666)
    elif os.getuid() == 0:
        os.chown(file, 77777, -1)
    else:
        monkeypatch.setattr(os, "getuid", lambda: 77777)
    assert stored(file) is None
    made = Made(b"ours")
    assert made.address and made.compiled == 1 and loaded == [b"ours"]


@here
def test_a_cache_that_others_can_write_to_holds_no_machine_code(tmp_path: Path) -> None:
    run_made(tmp_path)
    cache = tmp_path / "cache"
    (file,) = cache.glob("made.squares.*.o")
    cache.chmod(0o777)
    script = "from ensue.kernels import loops; print(loops.cache_folder())"
    assert run_script(tmp_path, script) != str(cache)
    cache.chmod(0o700)
    assert run_script(tmp_path, script) == str(cache) and file.exists()


@here
def test_numba_runs_a_cached_loop_where_its_machine_code_cannot_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "cache_folder", lambda: tmp_path)
    file = cache_file("made", "given")
    assert file is not None
    loops.store(file, b"code")
    made = Made(b"code")
    monkeypatch.setattr(made, "_compiled_by_numba", lambda: 7)
    assert made.address == 7 and not made.compiled


@here
def test_a_thread_may_run_a_loop_while_the_process_ends(tmp_path: Path) -> None:
    assert [run_script(tmp_path, WAITS) for _ in range(2)] == ["", ""]  # compiled, and from the cache


@here
def test_plain_operations_run_where_the_system_allows_no_new_machine_code(tmp_path: Path) -> None:
    try:
        assert run_script(tmp_path, DENIED) == "False False"
    except subprocess.CalledProcessError as error:
        if "cannot forbid" not in error.stderr:
            raise
        pytest.skip("only Linux 6.3 and later can forbid it")


@pytest.mark.parametrize("code", [b"", b"\x7fELF" + bytes(60), b"\x7fELF\x02\x01" + bytes(80)])
def test_what_is_no_object_is_refused(code: bytes) -> None:
    with pytest.raises(UnsupportedObject):
        load_function(code, "f")
