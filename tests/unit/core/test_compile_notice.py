"""Who waits for a compiler is told so, once, and nobody who does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
from ensue.core import compiling

compiling.tell(print)
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


def test_it_is_said_once_and_only_while_nothing_is_kept(tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text(MODULE.replace("watch()\n", "watch()\nwatch()\n"))
    script = SCRIPT.format(folder=str(tmp_path))
    said = [subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True) for _ in "ab"]
    first, second = (one.stdout.splitlines() for one in said)
    assert len(first) == 2 and first[0].startswith("compiling") and first[1] == second[0] == "[6, 9]"
    assert len(second) == 1


def test_nobody_is_told_who_did_not_ask(tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text(MODULE)
    script = SCRIPT.format(folder=str(tmp_path)).replace("compiling.tell(print)\n", "")
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (said.stdout, said.stderr) == ("[6, 9]\n", "")
