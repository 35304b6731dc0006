"""Commands as people type them: in this process where that is enough, else in one of their own."""

import contextlib
import io
import json
import os
import random
import signal
import subprocess
import sys
from dataclasses import dataclass

from ensue.cli.main import main

TINY = ("--set", "train.steps=4", "--set", "hidden=16", "--set", "train.batch=4", "--set", "train.eval_every=4")
WORDS = ("the", "students", "opened", "their", "books", "and", "proctor", "started", "clock", "while", "rain", "fell")


@dataclass(frozen=True)
class Answer:
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        """Standard output as the one strict JSON object it should be."""
        assert self.out.count("\n") == 1 and self.out.endswith("\n"), self.out

        def refuse(word):
            raise AssertionError(f"{word} is not JSON")

        value = json.loads(self.out, parse_constant=refuse)
        assert isinstance(value, dict)
        return value


def ensue(*words, output=io.StringIO):
    """Run a command in this process; ``output`` makes its standard output."""
    out, err, before, code = output(), io.StringIO(), sys.argv, 0
    sys.argv = ["ensue", *map(str, words)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as end:
        code = end.code or 0
    finally:
        sys.argv = before
    return Answer(code, out.getvalue(), err.getvalue())


def started(*words, **how):
    """Start a command in a process of its own, on one thread.

    Tests may run in a background shell, which ignores SIGINT and passes that on to its children.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **how.pop("env", {})}
    command = [sys.executable, "-m", "ensue", *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with sigint_enabled():
        return subprocess.Popen(command, env=environment, text=True, **pipes, **how)


@contextlib.contextmanager
def sigint_enabled():
    """Have processes that are started inside obey SIGINT."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        if handler is signal.SIG_IGN:
            signal.signal(signal.SIGINT, handler)


def finished(process, text=None):
    """Wait for a process and answer what it said."""
    out, err = process.communicate(text, timeout=120)
    return Answer(process.returncode, out, err)


def sentences(lines, seed=0):
    """A text of so many lines."""
    chance = random.Random(seed)
    return "".join(" ".join(chance.choices(WORDS, k=8)) + "\n" for _ in range(lines))
