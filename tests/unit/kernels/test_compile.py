"""Compiled loops are cached on disk, and compiled again when any kernel's source changes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ensue
from ensue.kernels.loops import machine_code_runs

MACHINE_CODE = """
import sys
from ensue.kernels.loops import Loop

assert Loop("ensue.kernels.tiles", "transpose_matrix").address
print(int("numba" not in sys.modules))
"""
BY_NUMBA = "from ensue.kernels import tiles; print(tiles.transpose_matrix.compile().cache_hits)"
SCRIPTS = [MACHINE_CODE, BY_NUMBA] if machine_code_runs() else [BY_NUMBA]


def cache_hits(script: str, source: Path, cache: Path) -> int:
    """Whether a new process finds the loop that transposes matrices in the cache."""
    environment = os.environ | {"PYTHONPATH": str(source), "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_cache_is_used_until_any_kernel_source_changes(script: str, tmp_path: Path) -> None:
    source = tmp_path / "src"
    shutil.copytree(Path(ensue.__file__).parent, source / "ensue", ignore=shutil.ignore_patterns("__pycache__"))
    cache = tmp_path / "cache"
    assert cache_hits(script, source, cache) == 0
    assert cache_hits(script, source, cache) == 1
    for name in ("simd.py", "threads.py", "a_new_file.py"):  # not the file that the loop is in
        with (source / "ensue" / "kernels" / name).open("a", encoding="utf-8") as file:
            file.write("# changed\n")
        assert cache_hits(script, source, cache) == 0, name
        assert cache_hits(script, source, cache) == 1, name
