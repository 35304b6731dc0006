"""The process inside the sandbox: it gives up its own rights, then runs the code it was given.

It is started as a script, ``python -S -s -P -B child.py DESCRIPTOR BYTES``, and imports only the standard library. On
standard input it gets a secret of BYTES bytes and, as JSON, the code, its tests, the limits, the folders and the
seccomp filter. If the tests end without an exception it writes the secret to the descriptor. If not, it writes the
outcome as JSON, without the secret: code that ends early, or that replaces functions of this file, cannot pass. Nor can
it trace its tests, since a trace function may jump over lines of every frame, also of this file.
"""

from __future__ import annotations

import base64
import ctypes
import errno
import gc
import json
import os
import resource
import stat
import struct
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any

MAX_MESSAGE = 300
MODULE = "candidate"
"""The name of the module that the code becomes. It is not __main__, so that a main part does not run."""

TRACING = ("settrace", "setprofile", "_settraceallthreads", "_setprofileallthreads", "register_callback")
"""What of ``sys`` and ``sys.monitoring`` (Python 3.12) sets functions that are called at every line, or could."""
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 22, 38
SECCOMP_MODE_FILTER, SIGKILL = 2, 9
CAPSET, CAPABILITY_VERSION = {"x86_64": 126, "aarch64": 91}, 0x20080522
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
"""System calls of Landlock."""
WRITE_FILE, READ_FILE, READ_DIR, REMOVE_FILE, MAKE_REG, TRUNCATE = 1 << 1, 1 << 2, 1 << 3, 1 << 5, 1 << 8, 1 << 14
FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""The number of rights over files that each version of Landlock knows."""


class SetupError(Exception):
    """A protection could not be put in place, so the code is not run."""


def call(name: str, *arguments: Any) -> int:
    """Call a function of the C library with integers and buffers; raise SetupError if it fails."""
    libc = ctypes.CDLL(None, use_errno=True)
    given = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result: int = getattr(libc, name)(*given)
    if result < 0:
        raise SetupError(f"{name} {arguments[0]}: {os.strerror(ctypes.get_errno())}")
    return result


def set_limits(limits: Mapping[str, int]) -> None:
    """Set the limits of the process so that it cannot raise them again; CPU time warns a second before it kills.

    Other systems than Linux, which run nothing unless the user insists, set those limits that they have.
    """
    for name, value in limits.items():
        number = getattr(resource, f"RLIMIT_{name}", None)
        if number is None:  # this platform has no such limit
            continue
        before = resource.getrlimit(number)[1]
        hard = value + (name == "CPU")
        hard = hard if before == resource.RLIM_INFINITY else min(hard, before)
        try:
            resource.setrlimit(number, (min(value, hard), hard))
        except (OSError, ValueError):
            if sys.platform == "linux":
                raise


def restrict_files(version: int, readable: Sequence[str], folder: str) -> None:
    """Let Landlock refuse every file but those below ``readable``, and writing anywhere but directly in ``folder``."""
    handled = (1 << FILE_RIGHTS[min(version, 5)]) - 1
    network, scope = (3 if version >= 4 else 0), (3 if version >= 6 else 0)  # no TCP; no signals to other processes
    rules = call("syscall", CREATE_RULESET, struct.pack("<QQQ", handled, network, scope), 24, 0)
    writing = READ_FILE | READ_DIR | WRITE_FILE | REMOVE_FILE | MAKE_REG | TRUNCATE
    rights = dict.fromkeys(readable, READ_FILE | READ_DIR)
    rights |= {folder: writing, os.devnull: READ_FILE | WRITE_FILE}
    for path, right in rights.items():
        try:
            one = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:  # this machine has no such folder
            continue
        kept = right & handled & (-1 if stat.S_ISDIR(os.fstat(one).st_mode) else READ_FILE | WRITE_FILE)
        call("syscall", ADD_RULE, rules, 1, struct.pack("<Qi", kept, one), 0)
        os.close(one)
    call("syscall", RESTRICT_SELF, rules, 0)
    os.close(rules)


def restrict_calls(filter_program: bytes) -> None:
    """Let the kernel run the seccomp filter at every system call from now on."""
    code = ctypes.create_string_buffer(filter_program, len(filter_program))
    # struct sock_fprog: a 16-bit count, padding, and the address of the instructions
    program = struct.pack("@HP", len(filter_program) // 8, ctypes.addressof(code))
    call("prctl", PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0)


def give_up_rights(spec: Mapping[str, Any]) -> None:
    """Put every protection in place that the platform has."""
    if sys.platform == "linux":
        call("prctl", PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)  # ends with the process that started it
        call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        capset = CAPSET.get(os.uname().machine)
        if capset is not None:
            call("syscall", capset, struct.pack("<Ii", CAPABILITY_VERSION, 0), bytes(24))
    if spec["landlock"]:
        restrict_files(spec["landlock"], spec["readable"], spec["folder"])
    set_limits(spec["limits"])
    if spec["filter"]:
        restrict_calls(base64.b64decode(spec["filter"]))


def forbid_tracing() -> None:
    """Replace what sets trace functions, in ``sys`` and in the copy that importing it again would restore."""
    owners = (sys, getattr(sys, "monitoring", None))
    tracing = [(name, getattr(owner, name)) for owner in owners for name in TRACING if hasattr(owner, name)]
    for found in gc.get_objects():
        for name, value in tracing if type(found) is dict else ():
            if found.get(name) is value:
                found[name] = ignore


def ignore(*_: Any) -> None:
    """Stands where trace functions are set: code that uses a debugger's or a profiler's functions goes on."""


def run() -> bytes:
    """Give up all rights, run the code as a module and the tests in it; return nothing (b"") if all of it holds.

    If a protection fails, return why; the code is not run. If the code fails, report that and end the process.
    """
    with os.fdopen(os.dup(0), "rb") as given:
        spec = json.load(given)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    try:
        give_up_rights(spec)
    except (SetupError, OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}".encode()
    checks = compile(spec["tests"], "<tests>", "exec")
    try:
        program = compile(spec["code"], "<code>", "exec")
    except (SyntaxError, ValueError, RecursionError, OverflowError) as error:
        fail("syntax error", error)
        raise
    except MemoryError as error:
        fail("memory", error)
        raise
    forbid_tracing()
    module = types.ModuleType(MODULE)
    sys.modules[MODULE] = module
    names = module.__dict__
    try:
        # One expression: exec and the tests are looked up before the code runs, which may replace what has a name.
        exec(checks, names, **(exec(program, names) or {}))  # type: ignore[func-returns-value]
    except BaseException as error:  # whatever the code raises is its outcome
        fail(outcome_of(error), error)
        raise  # ends the process if the code has replaced what ends it
    return b""


def outcome_of(error: BaseException) -> str:
    """The outcome that an exception stands for."""
    if isinstance(error, AssertionError):
        return "wrong answer"
    if isinstance(error, MemoryError):
        return "memory"
    if isinstance(error, SystemExit):
        return "exited"
    refused = isinstance(error, OSError) and error.errno in (errno.EPERM, errno.EACCES, errno.EFBIG)
    threads = isinstance(error, RuntimeError) and str(error) == "can't start new thread"
    return "forbidden" if refused or threads else "exception"


def fail(outcome: str, error: BaseException) -> None:
    """Report a failure and end; the message of an exception may be anything, so it is cut, and left out if it fails."""
    try:
        message = str(error)[:MAX_MESSAGE]
    except Exception as failure:
        message = f"(its message raises {type(failure).__name__})"
    name = type(error).__name__[:MAX_MESSAGE]
    os.write(int(sys.argv[1]), json.dumps({"outcome": outcome, "error": name, "message": message}).encode())
    os._exit(1)


if __name__ == "__main__":
    # The secret is on the interpreter's stack while the code runs: no name, frame or container leads to it.
    os.write(int(sys.argv[1]), os.read(0, int(sys.argv[2])).__add__(run()))
    os._exit(0)  # without what the code registered to run at exit
