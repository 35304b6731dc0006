"""On a terminal, one line is printed while kernels compile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
from ensue.core import compile_notice

compile_notice.set_printer(print)
import made

print([made.twice(3), made.thrice(3)])
"""
MODULE = """
import numba
from ensue.core.compile_notice import watch

watch()
twice = numba.njit(cache=True)(lambda x: 2 * x)


@numba.njit(cache=True)
def thrice(x):
    return 3 * x
"""


def test_the_notice_is_printed_once_and_only_without_a_cache(tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text(MODULE.replace("watch()\n", "watch()\nwatch()\n"))
    script = SCRIPT.format(folder=str(tmp_path))
    said = [subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True) for _ in "ab"]
    first, second = (one.stdout.splitlines() for one in said)
    assert len(first) == 2 and first[0].startswith("compiling") and first[1] == second[0] == "[6, 9]"
    assert len(second) == 1


def test_nothing_is_printed_without_a_printer(tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text(MODULE)
    script = SCRIPT.format(folder=str(tmp_path)).replace("compile_notice.set_printer(print)\n", "")
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (said.stdout, said.stderr) == ("[6, 9]\n", "")
