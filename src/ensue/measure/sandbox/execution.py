"""Run a Python program and its tests in a process of its own that can do little else.

    result = run_program(code, tests)      # Execution(outcome="passed", …)

The process has limits on CPU time, wall time, memory, open files and the size of files. It has no network and cannot
make processes or threads. It writes only into a temporary folder, which is deleted afterwards, and reads only Python's
and the system's libraries. See decision 39 for how, and SECURITY.md for what is promised.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import platform
import secrets
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ensue.core.errors import InputError
from ensue.measure.sandbox.seccomp import seccomp_filter
from ensue.measure.sandbox.syscalls import ARCHITECTURES

CHILD = Path(__file__).with_name("child.py")
OUTCOMES = {
    "passed": "all tests hold",
    "wrong answer": "an assertion of the tests fails",
    "exception": "the code or a test raises something else",
    "syntax error": "the code is not Python",
    "time-out": "CPU or wall time ran out",
    "memory": "it asked for more memory than it may have",
    "forbidden": "it tried something that is not allowed: files outside its folder, network, processes",
    "exited": "it ended before its tests did",
}
POLL = 20
"""Milliseconds between two looks at the folder of a running program."""
MAX_RESULT = 65536
SECRET_BYTES = 16
REPORTED = ("outcome", "error", "message")
MAX_TEXT = 300
"""Characters of a report that are kept."""
READABLE = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo", "/etc/ld.so.cache", "/etc/localtime")
DEVICES = ("/dev/urandom", "/dev/zero")


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What a program may use."""

    cpu: int = 3
    """Seconds of CPU time."""
    wall: float = 20.0
    """Seconds on the clock; more than CPU time, since the machine may be busy."""
    memory: int = 512 * 2**20
    """Bytes of address space."""
    file_size: int = 2**20
    """Bytes of one file."""
    folder_size: int = 16 * 2**20
    """Bytes of all files in its folder."""
    folder_files: int = 256
    """Number of files in its folder."""
    open_files: int = 20
    """Descriptors. It bounds files that are open and deleted, which no look at the folder finds."""

    @property
    def resources(self) -> dict[str, int]:
        """The limits by the names of ``resource``."""
        return {
            "CPU": self.cpu,
            "AS": self.memory,
            "FSIZE": self.file_size,
            "NOFILE": self.open_files,
            "NPROC": 1,
            "CORE": 0,
        }


@dataclass(frozen=True, slots=True)
class Execution:
    """How a program ended."""

    outcome: str
    """A name of ``OUTCOMES``."""
    error: str = ""
    """The class of the exception, or the name of the signal."""
    message: str = ""
    seconds: float = 0.0


@cache
def landlock_version() -> int:
    """The version of Landlock that the kernel has; 0 if none."""
    if sys.platform != "linux":
        return 0
    from ensue.measure.sandbox.child import CREATE_RULESET

    found: int = ctypes.CDLL(None).syscall(ctypes.c_long(CREATE_RULESET), None, ctypes.c_long(0), ctypes.c_long(1))
    return max(0, found)


@cache
def has_seccomp() -> bool:
    """True if the kernel filters system calls and the filter is written for this machine."""
    if sys.platform != "linux" or platform.machine() not in ARCHITECTURES or sys.maxsize < 2**32:
        return False
    with suppress(OSError):
        return "\nSeccomp:" in Path("/proc/self/status").read_text(encoding="utf-8")
    return False


def missing_protections() -> list[str]:
    """What this platform lacks to run code safely; empty if nothing."""
    missing = [] if landlock_version() else ["Landlock (Linux 5.13 or newer), which restricts files"]
    return missing + (
        [] if has_seccomp() else ["seccomp (Linux on x86-64 or arm64), which forbids network and processes"]
    )


def check_protections(allow_unprotected: bool = False) -> None:
    """Raise InputError if this platform cannot run code safely, unless the user wants it all the same."""
    if os.name != "posix":
        raise InputError("generated code is not run here: this platform has no limits for processes", hint="use Linux")
    missing = missing_protections()
    if missing and not allow_unprotected:
        hint = "use Linux 5.13 or newer"
        raise InputError(f"generated code is not run here: this platform has no {' and no '.join(missing)}", hint=hint)


def run_program(
    code: str, tests: str = "", limits: Limits | None = None, *, allow_unprotected: bool = False
) -> Execution:
    """Run code as a module, then tests in it, and say how it ended.

    Raises InputError where a protection is missing, unless ``allow_unprotected``: then it runs with those there are.
    """
    check_protections(allow_unprotected)
    limits = limits or Limits()
    folder = tempfile.mkdtemp(prefix="ensue-code-")
    try:
        return _run(code, tests, limits, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(code: str, tests: str, limits: Limits, folder: str) -> Execution:
    secret, start = secrets.token_bytes(SECRET_BYTES), time.monotonic()
    with _started(folder) as (process, results):
        machine = platform.machine()
        spec = {
            "code": code,
            "tests": tests,
            "folder": folder,
            "limits": limits.resources,
            "landlock": landlock_version(),
            "readable": [*READABLE, *DEVICES, sysconfig.get_path("stdlib"), str(Path(sys.base_prefix) / "lib")],
            "filter": base64.b64encode(seccomp_filter(machine, process.pid)).decode() if has_seccomp() else "",
        }
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin:
            process.stdin.write(secret + json.dumps(spec).encode())
        answer, why = _wait(results, limits, folder, start)
    seconds = time.monotonic() - start
    if why is not None:
        return Execution(*why, seconds=seconds)
    if answer.startswith(secret):
        if answer == secret:
            return Execution("passed", seconds=seconds)
        what = f"the sandbox cannot be set up ({answer[SECRET_BYTES:].decode(errors='replace')})"
        raise InputError(what, hint="nothing was run; use Linux 5.13 or newer, outside of another sandbox")
    ended = _reported(answer.replace(folder.encode(), b"."))
    return Execution(*(ended or _without_report(process.returncode, seconds, limits)), seconds=seconds)


@contextmanager
def _started(folder: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The process and the descriptor its outcome comes from; at the end its whole session is killed."""
    results, writing = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-S", "-s", "-P", "-B", str(CHILD), str(writing), str(SECRET_BYTES)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={"HOME": folder, "TMPDIR": folder, "LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "PYTHONUTF8": "1"},
            pass_fds=(writing,),
            start_new_session=True,
        )
    except OSError as error:
        os.close(results)
        raise InputError(f"Python cannot be started ({error.strerror})", where=sys.executable) from error
    finally:
        os.close(writing)
    try:
        yield process, results
    finally:
        os.close(results)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # the process is not reaped yet, so the number is its own
        process.wait()


def _wait(results: int, limits: Limits, folder: str, start: float) -> tuple[bytes, tuple[str, str, str] | None]:
    """What the process wrote until it ended, and the outcome if it broke a limit that this side watches."""
    answer, waiting = b"", select.poll()
    waiting.register(results, select.POLLIN | select.POLLHUP)
    while len(answer) < MAX_RESULT:
        if time.monotonic() - start > limits.wall:
            return answer, ("time-out", "", f"more than {limits.wall:g} s")
        if _too_large(folder, limits):
            return answer, ("forbidden", "", "it filled its folder")
        if waiting.poll(POLL):
            piece = os.read(results, MAX_RESULT)
            if not piece:
                break
            answer += piece
    return answer, None


def _too_large(folder: str, limits: Limits) -> bool:
    """True if the files of a program are more, or larger in all, than they may be."""
    size = 0
    with os.scandir(folder) as entries:
        for number, entry in enumerate(entries, 1):
            with suppress(OSError):  # it was deleted meanwhile
                size += entry.stat(follow_symlinks=False).st_size
            if number > limits.folder_files or size > limits.folder_size:
                return True
    return False


def _reported(answer: bytes) -> tuple[str, str, str] | None:
    """The failure that the process reports; None if it reports nothing, or something else."""
    try:
        report = json.loads(answer)
        outcome, error, message = (_encodable(str(report[name]))[:MAX_TEXT] for name in REPORTED)
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
    return (outcome, error, message) if outcome in OUTCOMES and outcome != "passed" else None


def _encodable(text: str) -> str:
    """The text with a question mark for each half of a surrogate pair, which no file in UTF-8 can hold."""
    return text.encode("utf-8", "replace").decode()


def _without_report(code: int, seconds: float, limits: Limits) -> tuple[str, str, str]:
    """The outcome of a process that ended without a report, by its exit code or signal."""
    if code >= 0:
        return "exited", "", f"with code {code} before its tests ended"
    name = signal.Signals(-code).name
    if name == "SIGXCPU" or (name == "SIGKILL" and seconds >= limits.cpu):
        return "time-out", name, f"more than {limits.cpu} s of CPU time"
    if name == "SIGKILL":
        return "exited", name, "its report was closed, or it was killed"
    return "exception", name, "the interpreter crashed"
