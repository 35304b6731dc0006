"""Freed memory stays with the process where the C library can be told."""

import subprocess
import sys

import pytest

from ensue.core import memory

COUNT = """
import resource, sys
import torch
from ensue.core.memory import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def work():
    block = torch.ones(16, 1 << 20)  # 64 MB
    del block
for _ in range(20):
    work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(word):
    done = subprocess.run([sys.executable, "-c", COUNT, word], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(memory.platform.libc_ver()[0] != "glibc", reason="another C library")
def test_freed_blocks_are_reused_without_page_faults():
    assert faults("keep") < faults("leave") / 10


def test_another_c_library_is_not_changed(monkeypatch):
    monkeypatch.setattr(memory.platform, "libc_ver", lambda: ("", ""))
    assert memory.keep_freed_memory() is False


@pytest.mark.parametrize(("largest", "expected"), [(1 << 40, [1 << 30]), (1 << 25, [1 << 30, 1 << 25]), (0, None)])
def test_a_smaller_threshold_is_tried_if_the_library_rejects_the_first(monkeypatch, largest, expected):
    asked = {memory.MMAP: [], memory.TRIM: []}

    class Library:
        @staticmethod
        def mallopt(what, size):
            asked[what].append(size)
            return int(what == memory.TRIM or size <= largest)

    monkeypatch.setattr(memory.platform, "libc_ver", lambda: ("glibc", "2.31"))
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: Library)
    assert memory.keep_freed_memory() is (expected is not None)
    assert asked[memory.TRIM] == ([] if expected is None else [1 << 30])
    if expected is not None:
        assert asked[memory.MMAP] == expected


def test_threads_share_arenas_where_the_library_can_be_told(monkeypatch):
    assert memory.share_arenas() is (memory.platform.libc_ver()[0] == "glibc")
    monkeypatch.setattr(memory.platform, "libc_ver", lambda: ("", ""))
    assert memory.share_arenas() is False
