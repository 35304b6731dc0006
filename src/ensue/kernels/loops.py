"""Compiled loops, by name: loaded from a cache of machine code, or compiled by numba where it has none.

Importing numba and loading functions from its own cache takes most of a second and 130 MB. Machine code needs neither,
so a process whose loops are all in the cache imports no numba. Where machine code cannot be loaded (a processor other
than x86-64, a system other than Linux), numba compiles a loop and caches it in its own way.
"""

from __future__ import annotations

import os
import platform
import sys
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ensue.core.compile_cache import BESIDE, NOTE, chosen_folder, private_folder
from ensue.core.errors import InputError
from ensue.core.files import atomic_file
from ensue.core.forks import compiling
from ensue.core.notes import note_once
from ensue.core.user_cache import only_ours
from ensue.kernels.machine_code import UnsupportedObject, load_function

ENTRY = "ensue_loop"
"""The name of a loop's function in its object."""
DIGITS = 16
DIGEST = 32
"""Bytes of the SHA-256 at the end of a cached object."""


class Loop:
    """A loop of a module: a C function that every thread runs (see ensue.kernels.threads)."""

    address: int
    """Where its machine code is; it is loaded or compiled when this is first asked for."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def __repr__(self) -> str:
        return f"Loop({self.module}.{self.name})"

    def __getattr__(self, name: str) -> Any:
        """Load or compile it when ``address`` is first asked for; afterwards that is an ordinary attribute.

        A ``cached_property`` has a lock of its own before Python 3.12, which a forked process could not open.
        """
        if name != "address":
            raise AttributeError(name)
        with compiling:
            if name not in vars(self):
                self.address = self._loaded() if machine_code_runs() else self._compiled_by_numba()
        return self.address

    def _loaded(self) -> int:
        file = cache_file(self.module, self.name)
        cached = None if file is None else stored(file)
        code = self._source().object_code() if cached is None else cached
        try:
            address = load_function(code, ENTRY)
        except UnsupportedObject:
            return self._compiled_by_numba()
        if cached is None:
            note_once(NOTE) if file is None else store(file, code)
        return address

    def _compiled_by_numba(self) -> int:
        return int(self._source().compile().address)

    def _source(self) -> Any:
        """The decorated function (see ensue.kernels.compile.LoopSource)."""
        return getattr(import_module(self.module), self.name)


class Loops:
    """The loops of a module, as attributes. The module is imported when one of them has to be compiled."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Loop:
        if name.startswith("_"):
            raise AttributeError(name)
        loop = Loop(self._module, name)
        setattr(self, name, loop)
        return loop


@cache
def source_stamp() -> str:
    """A digest of every kernel's source. Caches are refreshed when it changes.

    By itself numba watches the one file a function is in, but kernels are compiled from functions of several files.
    """
    files = sorted(Path(__file__).parent.glob("*.py"))
    return sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


@cache
def machine_stamp() -> str:
    """A digest of all else that machine code depends on: the processor, the compiler and its settings."""
    settings = sorted((name, value) for name, value in os.environ.items() if name.startswith("NUMBA_"))
    parts = (processor(), version("numba"), version("llvmlite"), settings)
    return sha256(repr(parts).encode()).hexdigest()


@cache
def processor() -> str:
    """The name and the abilities of this processor; empty where the system does not tell."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
            first = [*iter(lambda: lines.readline().strip(), "")]  # all processors are alike: those after it are left
    except OSError:
        return ""
    wanted = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags")
    return "\n".join(line for line in first if line.partition(":")[0].strip() in wanted)


def machine_code_runs() -> bool:
    """Whether machine code can be loaded and cached here."""
    return sys.platform == "linux" and platform.machine() == "x86_64" and sys.maxsize > 2**32 and bool(processor())


@cache
def cache_folder() -> Path | None:
    """Where machine code is cached: in ``$NUMBA_CACHE_DIR``, beside the sources, or with the user's other caches.

    It is run as it is, so a folder that another user could have prepared is never used.
    """
    if (chosen := chosen_folder()) is not None:
        return chosen
    beside = Path(__file__).parent / BESIDE
    if os.access(beside if beside.exists() else beside.parent, os.W_OK | os.X_OK):
        return beside
    return private_folder()


def cache_file(module: str, name: str) -> Path | None:
    """The file of a loop's machine code, for these sources and this machine; None where nothing can be cached."""
    folder = cache_folder()
    stamps = f"{machine_stamp()[:DIGITS]}.{source_stamp()[:DIGITS]}"
    return None if folder is None else folder / f"{module.rpartition('.')[2]}.{name}.{stamps}.o"


def stored(file: Path) -> bytes | None:
    """The machine code in a file; None if it cannot be read, others can write to it, or it is damaged.

    It is compiled again then.
    """
    try:
        with file.open("rb") as opened:
            if file.parent.name != BESIDE and not only_ours(os.fstat(opened.fileno())):
                return None
            data = opened.read()
    except OSError:  # also where another process removed it just now
        return None
    code, digest = data[:-DIGEST], data[-DIGEST:]
    return code if sha256(code).digest() == digest else None


def store(file: Path, code: bytes) -> None:
    """Write machine code and its SHA-256, and remove the code of earlier sources.

    One line is noted if the folder is not writable.
    """
    try:
        with atomic_file(file) as temporary:
            temporary.write_bytes(code + sha256(code).digest())
        for other in file.parent.glob(f"{'.'.join(file.name.split('.')[:3])}.*.o"):
            if other != file:
                other.unlink(missing_ok=True)
    except (InputError, OSError):
        note_once(NOTE)
