"""Compiled loops are cached on disk, and compiled again when any kernel's source changes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import ensue

SCRIPT = "from ensue.kernels import tiles; print(tiles.transpose_matrix.cache_hits)"


def cache_hits(source: Path, cache: Path) -> int:
    """How often a new process finds the loop that transposes matrices in numba's cache."""
    environment = os.environ | {"PYTHONPATH": str(source), "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_the_cache_is_used_until_any_kernel_source_changes(tmp_path: Path) -> None:
    source = tmp_path / "src"
    shutil.copytree(Path(ensue.__file__).parent, source / "ensue", ignore=shutil.ignore_patterns("__pycache__"))
    cache = tmp_path / "cache"
    assert cache_hits(source, cache) == 0
    assert cache_hits(source, cache) == 1
    for name in ("simd.py", "threads.py", "a_new_file.py"):  # not the file that the loop is in
        with (source / "ensue" / "kernels" / name).open("a", encoding="utf-8") as file:
            file.write("# changed\n")
        assert cache_hits(source, cache) == 0, name
        assert cache_hits(source, cache) == 1, name
