"""A forked process can compile, load and decode, whatever the other threads of its parent were doing."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from ensue.core import forks
from ensue.data.tokenizers import word_table
from ensue.kernels.decode_runner import ProgramCache
from ensue.kernels.loops import Loop
from ensue.models import ngram

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks on this system")
TOO_LONG = 20
"""Seconds after which a process that waits for ever is ended."""
SPAN = 0.2
"""Seconds that a thread keeps a lock while its process forks."""


def fork_and(work: Callable[[], object]) -> int:
    """Fork; return the exit status of a child that does this work: 0 if it came to its end."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    try:
        signal.alarm(TOO_LONG)
        work()
    except BaseException:
        os._exit(1)
    os._exit(0)


class Held:
    """A thread that holds a lock when the block begins, and for a moment more."""

    def __init__(self, lock: AbstractContextManager[object], forever: bool = False) -> None:
        self.lock, self.forever = lock, forever
        self.taken, self.ended = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with self.lock:
            self.taken.set()
            self.ended.wait() if self.forever else time.sleep(SPAN)

    def __enter__(self) -> None:
        self.thread.start()
        assert self.taken.wait(TOO_LONG)

    def __exit__(self, *error: object) -> None:
        self.ended.set()
        self.thread.join()


def test_a_fork_waits_for_a_thread_that_loads_a_loop(monkeypatch):
    loading, loaded = threading.Event(), []

    def load(loop: Loop) -> int:
        loading.set()
        time.sleep(SPAN)
        loaded.append(loop.name)
        return 7

    monkeypatch.setattr(Loop, "_loaded", load)
    monkeypatch.setattr(Loop, "_compiled_by_numba", load)
    thread = threading.Thread(target=lambda: Loop("any", "first").address)
    thread.start()
    assert loading.wait(TOO_LONG)

    def work() -> None:
        assert loaded == ["first"]  # not half of it
        assert Loop("any", "second").address == 7

    assert fork_and(work) == 0
    thread.join()
    assert Loop("any", "third").address == 7  # and the parent holds nothing


def test_a_fork_waits_for_a_thread_in_which_numba_compiles():
    from numba.core.compiler_lock import global_compiler_lock

    def work() -> None:
        with global_compiler_lock, forks.compiling:
            pass

    with Held(global_compiler_lock):
        assert fork_and(work) == 0
    with Held(global_compiler_lock):  # another thread can have it
        pass


def test_a_thread_that_compiles_can_fork_itself():
    with forks.compiling:
        assert fork_and(lambda: Loop("any", "one")) == 0


def test_a_fork_is_not_stopped_by_a_thread_that_waits_for_its_turn_to_load_a_loop(monkeypatch):
    for way in ("_loaded", "_compiled_by_numba"):
        monkeypatch.setattr(Loop, way, lambda loop: 7)
    thread = threading.Thread(target=lambda: Loop("any", "first").address)
    with forks.compiling:
        thread.start()
        time.sleep(SPAN)
        assert fork_and(lambda: Loop("any", "second").address == 7 or os._exit(1)) == 0
    thread.join()


def test_a_program_that_another_thread_runs_is_free_in_a_forked_process():
    programs = ProgramCache()
    with Held(programs.lock, forever=True):
        assert fork_and(lambda: programs.lock.acquire(timeout=TOO_LONG) or os._exit(1)) == 0
        assert programs.lock.locked()  # still in the parent


@pytest.mark.parametrize("module", [word_table, ngram])
def test_kept_threads_are_new_ones_in_a_forked_process(module):
    both = threading.Barrier(2)
    assert sorted(module._pool(2).map(lambda _: both.wait(TOO_LONG), range(2))) == [0, 1]  # both threads are there
    assert fork_and(lambda: list(module._pool(2).map(abs, [-3, -4])) == [3, 4] or os._exit(1)) == 0
    assert list(module._pool(2).map(abs, [-5])) == [5]
