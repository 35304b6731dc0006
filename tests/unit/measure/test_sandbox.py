"""The sandbox holds against code that does harm, and says what the code tried."""

import os
import signal
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ensue.core.errors import InputError
from ensue.measure.sandbox import execution
from ensue.measure.sandbox.execution import OUTCOMES, Limits, missing_protections, run_program
from ensue.measure.sandbox.seccomp import ALLOW, AND, EQUAL, KILL, LOAD, REFUSE, RETURN, SOME_BIT, seccomp_filter
from ensue.measure.sandbox.syscalls import ALLOWED, ARCHITECTURES

protected = pytest.mark.skipif(bool(missing_protections()), reason="; ".join(missing_protections()))


def outcome(code, tests="", **limits):
    result = run_program(code, tests, Limits(**limits))
    assert result.outcome in OUTCOMES
    return result.outcome


CODE = "def double(x):\n    return {}\n"


@protected
@pytest.mark.parametrize(
    ("body", "expected", "error"),
    [
        ("2 * x", "passed", ""),
        ("x", "wrong answer", "AssertionError"),
        ("2 * y", "exception", "NameError"),
        ("2 *", "syntax error", "SyntaxError"),
        ("double(x)", "exception", "RecursionError"),
        ("bytearray(10 * 2**30)", "memory", "MemoryError"),
        ("exit_now", "exception", "NameError"),
    ],
)
def test_how_a_program_ends_is_said(body, expected, error):
    result = run_program(CODE.format(body), "assert double(3) == 6")
    assert (result.outcome, result.error) == (expected, error)


@protected
def test_code_is_a_module_whose_main_part_does_not_run():
    code = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass A:\n    x: int = 1\n"
    )
    assert outcome(code + "if __name__ == '__main__':\n    raise SystemExit\n", "assert A().x == 1") == "passed"


@protected
def test_loops_and_sleeps_time_out():
    assert outcome("while True: pass", cpu=1) == "time-out"
    assert outcome("import time; time.sleep(60)", wall=0.3) == "time-out"
    ignoring = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"
    assert outcome(ignoring, wall=0.3) == "time-out"


LIBC = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
HARM = {
    "a fork bomb": "import os\nfor _ in range(50):\n    os.fork()",
    "a command": "import subprocess; subprocess.run(['true'])",
    "replacing the process": "import os; os.execv('/bin/true', ['true'])",
    "a thread": "import threading; threading.Thread(target=print).start()",
    "a socket": "import socket; socket.create_connection(('127.0.0.1', 9), 1)",
    "a socket of another kind": "import socket; socket.socket(socket.AF_UNIX)",
    "a pair of sockets": "import socket; socket.socketpair()",
    "a signal to all": "import os; os.kill(-1, 0)",
    "a signal to the parent": "import os; os.kill(os.getppid(), 0)",
    "a signal to the group": "import os; os.kill(0, 0)",
    "a signal by a file's owner": "import fcntl, os; fcntl.fcntl(0, fcntl.F_SETOWN, os.getppid())",
    "writing elsewhere": "open('{outside}/new', 'w')",
    "changing a file": "open('{outside}/kept', 'a')",
    "emptying a file": "import os; os.truncate('{outside}/kept', 0)",
    "emptying a library": "import os; os.open(os.__file__, os.O_RDONLY | os.O_TRUNC)",
    "deleting a file": "import os; os.remove('{outside}/kept')",
    "moving a file": "import os; os.rename('{outside}/kept', 'mine')",
    "a link": "import os; os.symlink('{outside}', 'link')",
    "another mode": "import os; os.chmod('{outside}/kept', 0)",
    "reading elsewhere": "open('{outside}/kept').read()",
    "reading the home folder": "import os; os.listdir('{home}')",
    "reading processes": "open('/proc/self/maps').read()",
    "a folder": "import os; os.mkdir('more')",
    "a long file": "open('long', 'wb').write(bytes(2**21))",
    "many files": "i = 0\nwhile True:\n    open(str(i), 'wb').write(bytes(2**18))\n    i += 1",
    "other namespaces": LIBC + "if libc.unshare(0x10000000) < 0: raise OSError(ctypes.get_errno(), '')",
    "a process to trace": LIBC + "if libc.ptrace(16, 1, 0, 0) < 0: raise OSError(ctypes.get_errno(), '')",
}


@protected
@pytest.mark.parametrize("harm", HARM)
def test_harm_is_forbidden(harm, tmp_path):
    kept = tmp_path / "kept"
    kept.write_text("all of it")
    before = Path(os.__file__).read_bytes()
    assert outcome(HARM[harm].replace("{outside}", str(tmp_path)).replace("{home}", str(Path.home()))) == "forbidden"
    assert kept.read_text() == "all of it" and [*tmp_path.iterdir()] == [kept]
    assert Path(os.__file__).read_bytes() == before


@protected
@pytest.mark.parametrize(
    "early",
    [
        "import os; os._exit(0)",
        "import sys; sys.exit(0)",
        "raise SystemExit",
        "import atexit, os; atexit.register(lambda: os._exit(0)); os._exit(0)",
        'import os, sys; os.write(int(sys.argv[1]), b\'{"outcome": "passed"}\'); os._exit(0)',
        "import os; os.closerange(0, 64)",
        "import builtins\nbuiltins.AssertionError = type('Other', (BaseException,), {})",
        "import builtins\nbuiltins.exec = builtins.compile = lambda *given: None",
        'import json\njson.dumps = lambda given: \'{"outcome": "passed", "error": "", "message": ""}\'',
        "import __main__, os\n__main__.fail = __main__.outcome_of = os._exit = lambda *given: b''",
        "import os, sys; os.write(int(sys.argv[1]), b'[' * 60_000); os._exit(0)",
        "import sys\nframe = sys._getframe(1)\nframe.f_locals['checks'] = compile('', '', 'exec')",  # works since 3.13
        'import os, sys; os.write(int(sys.argv[1]), b\'{"outcome": "setup"}\'); os._exit(0)',
        "{tracer}\nsys._getframe(1).f_trace = tracer\nsys.settrace(tracer)",
        "{tracer}\nsys.settrace(tracer)",
        "{tracer}\ndel sys.modules['sys']\nimport sys\nsys._getframe(1).f_trace = tracer\nsys.settrace(tracer)",
        "{tracer}\nimport gc\nfor one in gc.get_objects():\n    for each in gc.get_referents(one):\n"
        "        if getattr(each, '__name__', '') == 'settrace': each(tracer)\nsys._getframe(1).f_trace = tracer",
        "{tracer}\nimport threading\nsys._getframe(1).f_trace = tracer\nthreading.settrace_all_threads(tracer)",  # 3.12
        "import sys\ndef line(code, number):\n    tracer(sys._getframe(1), 'line', None)\n{tracer}\n"
        "one, lines = sys.monitoring, sys.monitoring.events.LINE\none.use_tool_id(1, 'x')\n"  # 3.12
        "one.register_callback(1, lines, line)\none.set_events(1, lines)",
    ],
)
def test_a_program_that_ends_early_or_plays_tricks_does_not_pass(early):
    assert outcome(early.replace("{tracer}", TRACER), "assert False") != "passed"


TRACER = """
import sys
def tracer(frame, event, given):
    if event == "line":  # a trace function may jump: out of the handler of the exception, over the tests
        try:
            frame.f_lineno = max(line for *_, line in frame.f_code.co_lines() if line)
        except ValueError:
            return tracer
    return tracer
"""


@protected
def test_code_that_uses_a_debugger_or_profiler_goes_on_without_it():
    code = 'import doctest, sys\ndef f():\n    """\n    >>> f()\n    1\n    """\n    return 1\n'
    code += "doctest.run_docstring_examples(f, {'f': f})\nsys.settrace(None)\nsys.setprofile(lambda *given: 1 / 0)\n"
    assert outcome(code, "assert f() == 1") == "passed"


@protected
def test_files_that_are_open_and_deleted_are_bounded():
    code = "import os\nkept = []\ntry:\n    while True:\n        kept.append(os.open('x', os.O_CREAT | os.O_RDWR))\n"
    code += "        os.unlink('x')\n        os.write(kept[-1], bytes(2**20))\nexcept OSError:\n    pass\n"
    assert outcome(code, f"assert len(kept) * 2**20 <= {Limits().folder_size}") == "passed"


@protected
def test_the_secret_is_not_found_from_inside():
    """Code that tries every bytes object that a frame, a module or a container leads to as the secret."""
    code = """
import gc, os, sys
size, found, seen = int(sys.argv[2]), set(), set()
frame, todo = sys._getframe(), [sys.modules, *gc.get_objects()]
while frame:
    todo += [frame.f_locals, frame.f_globals, frame.f_builtins, frame.f_code.co_consts]
    frame = frame.f_back
while todo:
    one = todo.pop()
    if id(one) in seen:
        continue
    seen.add(id(one))
    if type(one) is bytes and len(one) == size:
        found.add(one)
    todo += gc.get_referents(one)
for secret in found:
    os.write(int(sys.argv[1]), secret)
os._exit(0)
"""
    assert outcome(code, "assert False") == "exited"


@protected
def test_output_is_dropped_and_a_closed_one_harms_nobody():
    assert outcome("import sys\nfor _ in range(10_000): print('x' * 1000)", "assert True") == "passed"
    assert outcome("import sys, os\nsys.stdout.close()\nos.close(1)\nos.close(2)", "assert True") == "passed"


@protected
def test_small_files_can_be_written_in_its_own_folder_which_is_empty_and_deleted():
    code = "import os, tempfile\nassert os.listdir() == [] and os.getcwd() == os.environ['HOME']\n"
    code += "with tempfile.NamedTemporaryFile() as file:\n    file.write(b'x')\n"
    code += (
        "with open('a', 'w') as file:\n    file.write('text')\nassert open('a').read() == 'text'\nprint(os.getcwd())\n"
    )
    assert outcome(code + "raise OSError(os.getcwd())") == "exception"
    result = run_program(code + "raise OSError(os.getcwd())")
    assert result.message == "."


@protected
def test_nothing_of_the_environment_or_of_installed_packages_is_seen(monkeypatch):
    monkeypatch.setenv("SECRET", "42")
    assert outcome("import os; assert 'SECRET' not in os.environ and 'PATH' not in os.environ") == "passed"
    result = run_program("import numpy")
    assert (result.outcome, result.error) == ("exception", "ModuleNotFoundError")
    assert outcome("import sys; assert sys.stdin.read() == ''") == "passed"


@protected
def test_limits_cannot_be_raised():
    code = "import resource as r\nsoft, hard = r.getrlimit(r.RLIMIT_AS)\nassert 0 < soft == hard\n"
    assert outcome(code + "r.setrlimit(r.RLIMIT_AS, (soft // 2, hard))") == "exception"


@protected
def test_the_standard_library_works():
    names = "bz2 collections csv ctypes datetime decimal fractions functools hashlib heapq itertools json lzma math"
    names += " random re sqlite3 statistics string typing unicodedata zlib"
    code = f"import {', '.join(names.split())}\nx = hashlib.md5(b'a').hexdigest(), datetime.datetime.now()"
    assert outcome(code, "assert random.random() < 1") == "passed"


@protected
def test_the_process_ends_with_the_one_that_started_it(tmp_path):
    sleep = "import time; open('ready', 'w').close(); time.sleep(60)"
    starter = f"from ensue.measure.sandbox.execution import *; run_program({sleep!r}, '', Limits(wall=60))"
    process = subprocess.Popen([sys.executable, "-c", starter], env=os.environ | {"TMPDIR": str(tmp_path)})
    assert soon(lambda: [*tmp_path.glob("*/ready")])
    (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.kill()
    process.wait()
    ended = soon(lambda: not Path(f"/proc/{child}").exists() or state(child) == "Z")
    if not ended:
        os.kill(int(child), signal.SIGKILL)
    assert ended


def soon(condition):
    """Wait until a condition holds, for at most ten seconds."""
    for _ in range(500):
        if condition():
            return True
        threading.Event().wait(0.02)
    return False


def state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@protected
def test_messages_can_be_written_to_files():
    result = run_program("raise ValueError('half \\ud800')")
    assert (result.outcome, result.message) == ("exception", "half ?") and result.message.encode()


def test_without_a_protection_code_is_refused_in_one_line(monkeypatch):
    monkeypatch.setattr(execution, "landlock_version", lambda: 0)
    with pytest.raises(InputError, match=r"not run here: this platform has no Landlock .* use Linux 5.13 or newer\)?$"):
        run_program("x = 1")
    assert run_program("x = 1", allow_unprotected=True).outcome == "passed"


def test_a_protection_that_cannot_be_set_up_stops_the_program(monkeypatch, tmp_path):
    monkeypatch.setattr(execution, "seccomp_filter", lambda machine, pid: b"\xff" * 8)
    monkeypatch.setattr(execution, "has_seccomp", lambda: True)
    monkeypatch.setattr(execution, "check_protections", lambda allow: None)
    with pytest.raises(InputError, match="the sandbox cannot be set up"):
        run_program(f"open('{tmp_path}/new', 'w')", allow_unprotected=True)
    assert not [*tmp_path.iterdir()]


def decide(program, architecture, number, *arguments):
    """Run a filter as the kernel does."""
    data = struct.pack("<IIQ6Q", number, architecture, 0, *arguments, *[0] * (6 - len(arguments)))
    code, at, value = [struct.unpack_from("<HBBI", program, place) for place in range(0, len(program), 8)], 0, 0
    while True:
        operation, yes, no, operand = code[at]
        at += 1
        match operation:
            case 0x20:
                (value,) = struct.unpack_from("<I", data, operand)
            case 0x54:
                value &= operand
            case 0x15:
                at += yes if value == operand else no
            case 0x45:
                at += yes if value & operand else no
            case 0x06:
                return operand


@pytest.mark.parametrize(("machine", "fork", "socket"), [("x86_64", 56, 41), ("aarch64", 220, 198)])
def test_the_filter_allows_its_list_and_refuses_the_rest(machine, fork, socket):
    assert {LOAD, EQUAL, SOME_BIT, AND, RETURN} == {0x20, 0x15, 0x45, 0x54, 0x06}
    column, architecture = ARCHITECTURES[machine]
    program, pid = seccomp_filter(machine, 4242), 4242
    number = {name: numbers[column] for name, numbers in ALLOWED.items() if numbers[column] is not None}
    assert len(set(number.values())) == len(number)

    def asked(name, *arguments):
        return decide(program, architecture, number[name], *arguments)

    assert decide(program, 0x40000003, number["read"]) == KILL  # 32-bit calls
    assert decide(program, architecture, 0x40000000 | number["read"]) == REFUSE  # calls of the x32 kind
    assert {decide(program, architecture, call) for call in (fork, 435, socket, 425, 1000)} == {REFUSE}
    listed = set(number.values())
    assert all(decide(program, architecture, call) == REFUSE for call in range(500) if call not in listed)
    assert asked("read") == asked("mmap", 1, 2, 3) == ALLOW
    assert asked("kill", pid) == asked("tgkill", pid) == ALLOW
    assert asked("kill", 1) == asked("kill", 0) == asked("kill", 2**64 - 1) == asked("kill", 2**32 - pid) == REFUSE
    assert asked("prlimit64", 0, 9, 0) == ALLOW
    assert asked("prlimit64", 0, 9, 8) == asked("prlimit64", 0, 9, 2**32) == REFUSE
    assert asked("openat", 0, 0, 0) == asked("openat", 0, 0, 0o1 | 0o100 | 0o1000) == ALLOW
    assert asked("openat", 0, 0, 0o1000) == asked("openat", 0, 0, 0o1000 | 0o2000000) == REFUSE
    assert asked("fcntl", 0, 1) == asked("fcntl", 0, 1030) == ALLOW
    assert asked("fcntl", 0, 8) == asked("ioctl", 0, 0x5412) == REFUSE  # F_SETOWN, TIOCSTI
