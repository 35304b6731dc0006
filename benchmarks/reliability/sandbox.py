"""Attacks on the sandbox that runs generated programs: how each ends, and that nothing outside has changed.

python -m benchmarks.reliability.sandbox

Every attack runs three times (``--short``: once), with a file outside that may not change, a secret that may not be
read and tests that fail, so that a program which passes has faked it. Afterwards there must be no process and no folder
left of it.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from benchmarks.record import record
from benchmarks.reliability.row import Row
from ensue.measure.sandbox.execution import Limits, check_protections, run_program

LIBC = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
FAILED = " < 0: raise OSError(ctypes.get_errno(), '')\n"
JUMP = """
import sys
def tracer(frame, event, given):
    if event == "line":
        try:
            frame.f_lineno = max(line for *_, line in frame.f_code.co_lines() if line)
        except ValueError:
            return tracer
    return tracer
"""


class Attack(NamedTuple):
    """A program that tries something, and how it should end."""

    what: str
    code: str
    ends: tuple[str, ...]


STOPPED, FAKED = ("forbidden",), ("wrong answer", "exited", "exception")
ATTACKS = (
    Attack("fork bomb", "import os\nwhile True:\n    os.fork()", STOPPED),
    Attack("endless loop", "while True:\n    pass", ("time-out",)),
    Attack(
        "endless loop that ignores every signal",
        "import signal\nfor n in (1, 2, 15, 24):\n    signal.signal(n, signal.SIG_IGN)\nwhile True:\n    pass",
        ("time-out",),
    ),
    Attack("sleep", "import time\ntime.sleep(600)", ("time-out",)),
    Attack("10 GB of memory", "x = bytearray(10 * 2**30)", ("memory",)),
    Attack("memory bit by bit", "x = []\nwhile True:\n    x.append(bytes(2**20))", ("memory",)),
    Attack("endless output", "import os\nfor _ in range(2**14):\n    os.write(1, bytes(2**16))", FAKED),
    Attack("endless report", "import os, sys\nwhile True:\n    os.write(int(sys.argv[1]), bytes(2**16))", FAKED),
    Attack("writing a file outside", "open('{outside}/kept', 'w')", STOPPED),
    Attack("deleting a file outside", "import os\nos.remove('{outside}/kept')", STOPPED),
    Attack(
        "emptying a file opened for reading", "import os\nos.open('{outside}/kept', os.O_RDONLY | os.O_TRUNC)", STOPPED
    ),
    Attack(
        "filling the disk with files",
        "i = 0\nwhile True:\n    open(str(i), 'wb').write(bytes(2**20))\n    i += 1",
        STOPPED,
    ),
    Attack(
        "filling the disk with deleted files",
        "import os\nkept = []\nwhile True:\n    kept.append(os.open('x', 66))\n"
        "    os.unlink('x')\n    os.write(kept[-1], bytes(2**20))",
        ("exception",),
    ),
    Attack(
        "a symbolic link to a file outside", "import os\nos.symlink('{outside}/kept', 'x')\nopen('x', 'w')", STOPPED
    ),
    Attack("a hard link to a file outside", "import os\nos.link('{outside}/kept', 'x')\nopen('x', 'w')", STOPPED),
    Attack("a link by way of /proc", "open('/proc/self/root{outside}/kept', 'w')", STOPPED),
    Attack("a path with ..", "open('../' * 20 + '{outside}/kept', 'w')", STOPPED),
    Attack("reading a secret", "raise ValueError(open('{outside}/secret').read())", STOPPED),
    Attack("reading /etc/passwd", "raise ValueError(open('/etc/passwd').read())", STOPPED),
    Attack("reading the environment", "import os\nraise ValueError(os.environ['ENSUE_SECRET'])", ("exception",)),
    Attack("reading the parent's environment", "import os\nopen(f'/proc/{os.getppid()}/environ').read()", STOPPED),
    Attack("reading its own memory map", "open('/proc/self/maps').read()", STOPPED),
    Attack("TCP", "import socket\nsocket.create_connection(('127.0.0.1', 9), 1)", STOPPED),
    Attack("UDP", "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM)", STOPPED),
    Attack("a socket of a file", "import socket\nsocket.socket(socket.AF_UNIX)", STOPPED),
    Attack("killing the parent", "import os\nos.kill(os.getppid(), 9)", STOPPED),
    Attack("killing everything", "import os\nos.kill(-1, 9)", STOPPED),
    Attack(
        "a signal through a descriptor's owner",
        "import fcntl, os\nfcntl.fcntl(0, fcntl.F_SETOWN, os.getppid())",
        STOPPED,
    ),
    Attack("ptrace of the parent", LIBC + "import os\nif libc.ptrace(16, os.getppid(), 0, 0)" + FAILED, STOPPED),
    Attack(
        "the parent's memory",
        LIBC + "import os\nx = (ctypes.c_void_p * 2)()\nif libc.process_vm_readv(os.getppid(), x, 1, x, 1, 0)" + FAILED,
        STOPPED,
    ),
    Attack(
        "limits of the parent",
        LIBC + "import os\nx = (ctypes.c_ulong * 2)()\nif libc.prlimit(os.getppid(), 0, x, None)" + FAILED,
        STOPPED,
    ),
    Attack("a command", "import subprocess\nsubprocess.run(['touch', '{outside}/new'])", STOPPED),
    Attack("another program in its place", "import os\nos.execv(__import__('sys').executable, ['python'])", STOPPED),
    Attack("another namespace", LIBC + "if libc.unshare(0x10000000)" + FAILED, STOPPED),
    Attack("a system call of 32 bits", LIBC + "if libc.syscall(0x40000000 | 57)" + FAILED, STOPPED),
    Attack("exit with success", "import sys\nsys.exit(0)", FAKED),
    Attack("exit with success, without cleaning up", "import os\nos._exit(0)", FAKED),
    Attack("exit in the tested function", "import os\ndef f(x):\n    os._exit(0)", FAKED),
    Attack(
        "a forged report", 'import os, sys\nos.write(int(sys.argv[1]), b\'{"outcome": "passed"}\')\nos._exit(0)', FAKED
    ),
    Attack(
        "replaced exec, exit and report",
        "import builtins, os, __main__\nbuiltins.exec = lambda *_, **__: None\n"
        "__main__.fail = os._exit = os.write = lambda *_: None",
        FAKED,
    ),
    Attack("replaced AssertionError", "import builtins\nbuiltins.AssertionError = KeyError", FAKED),
    Attack(
        "a trace function that jumps over the verdict",
        JUMP + "sys._getframe(1).f_trace = tracer\nsys.settrace(tracer)",
        FAKED,
    ),
    Attack("a trace function that jumps over the tests", JUMP + "sys.settrace(tracer)", FAKED),
    Attack(
        "a trace function of a new sys",
        JUMP + "del sys.modules['sys']\nimport sys\nsys._getframe(1).f_trace = tracer\nsys.settrace(tracer)",
        FAKED,
    ),
    Attack(
        "the secret of the verdict, by the garbage collector",
        "import gc, os, sys\nfor one in gc.get_objects():\n"
        "    for found in gc.get_referents(one):\n        if type(found) is bytes and len(found) == int(sys.argv[2]):\n"
        "            os.write(int(sys.argv[1]), found)\n            os._exit(0)",
        FAKED,
    ),
)
TESTS = "assert f(1) == 2\n"
SECRET = "a-secret-of-the-user"


def processes(place: Path) -> set[str]:
    """The processes whose working folder is below ``place``, or was."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if str(path.readlink()).startswith(str(place)):
                found.add(path.parent.name)
        except OSError:
            continue
    return found


def attack_once(attack: Attack, outside: Path) -> tuple[str, str, float]:
    """Run an attack; return its outcome, what is wrong outside ("" if nothing), and the seconds."""
    (outside / "kept").write_text("all of it", encoding="utf-8")
    (outside / "secret").write_text(SECRET, encoding="utf-8")
    code = "def f(x):\n    return 1\n" + attack.code.replace("{outside}", str(outside))
    start = time.monotonic()
    ended = run_program(code, TESTS, Limits(cpu=1, wall=4))
    seconds, wrong = time.monotonic() - start, []
    if ended.outcome not in attack.ends:
        wrong.append(f"it ended as {ended.outcome} ({ended.error})")
    if (outside / "kept").read_text(encoding="utf-8") != "all of it" or len([*outside.iterdir()]) != 2:
        wrong.append("a file outside has changed")
    if SECRET in ended.message:
        wrong.append("the secret was read")
    if processes(outside.parent):
        wrong.append("a process is left")
    if [*Path(tempfile.gettempdir()).glob("ensue-code-*")]:
        wrong.append("its folder is left")
    return ended.outcome + (f", {ended.error}" if ended.error else ""), "; ".join(wrong), seconds


def measure(short: bool) -> list[Row]:
    """Run all attacks; one row each."""
    check_protections()
    os.environ["ENSUE_SECRET"] = SECRET
    rows, temporary = [], tempfile.tempdir
    with tempfile.TemporaryDirectory() as place:
        outside, tempfile.tempdir = Path(place) / "outside", place
        outside.mkdir()
        try:
            for attack in ATTACKS:
                found = [attack_once(attack, outside) for _ in range(1 if short else 3)]
                ended = "; ".join(sorted(Counter(one for one, _, _ in found)))
                wrong = next((text for _, text, _ in found if text), "")
                slowest = max(seconds for *_, seconds in found)
                measured = f"{ended}, {slowest:.1f} s" + (f": {wrong}" if wrong else "")
                rows.append(Row(f"sandbox: {attack.what}", " or ".join(attack.ends), measured, not wrong))
        finally:
            tempfile.tempdir = temporary
    return rows


def main() -> int:
    """Measure, print the rows and append them to the results."""
    rows = measure("--short" in sys.argv)
    for row in rows:
        print(f"{'holds' if row.holds else 'FAILS'}  {row.what}: {row.measured} (target: {row.target})")
    record("reliability", {"part": "sandbox", "rows": [row._asdict() for row in rows]})
    return int(not all(row.holds for row in rows))


if __name__ == "__main__":
    sys.exit(main())
