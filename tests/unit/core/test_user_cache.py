"""Caches are in folders that nobody else can write to, or there is none."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ensue.core.user_cache import temporary_cache, user_cache
from ensue.data import cache as token_cache


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty temporary folder, for a user whose home cannot be written."""
    (tmp_path / "file").write_text("in the way")
    monkeypatch.delenv("ENSUE_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "file" / "home"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path / "tmp"


def test_without_a_writable_home_the_cache_is_a_private_temporary_folder(temporary: Path) -> None:
    own = temporary / f"ensue-{os.getuid()}"
    assert user_cache("tokens") == own / "tokens"
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    assert temporary_cache() == own  # and again, now that it exists


def test_a_link_of_another_user_is_not_followed(temporary: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (temporary / f"ensue-{os.getuid()}").symlink_to(tmp_path / "theirs")
    assert temporary_cache() is None and user_cache("tokens") is None
    assert not list((tmp_path / "theirs").iterdir())


def test_a_folder_that_others_can_write_to_is_not_used(temporary: Path) -> None:
    own = temporary / f"ensue-{os.getuid()}"
    own.mkdir()
    own.chmod(0o777)
    assert temporary_cache() is None
    own.chmod(0o755)  # as older versions made it: nobody else can have written to it
    assert temporary_cache() == own and stat.S_IMODE(own.stat().st_mode) == 0o700


def test_a_folder_of_another_user_is_not_used(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (temporary / "ensue-77777").mkdir(mode=0o700)
    monkeypatch.setattr(os, "getuid", lambda: 77777)
    assert temporary_cache() is None


def test_a_user_without_a_home_has_a_cache(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    assert user_cache("tokens") == temporary / f"ensue-{os.getuid()}" / "tokens"


def test_token_files_go_to_a_folder_of_the_process_if_there_is_no_cache(temporary: Path) -> None:
    (temporary / f"ensue-{os.getuid()}").write_text("in the way")
    token_cache._process_folder.cache_clear()
    folder = token_cache.cache_folder()
    assert folder.parent == temporary and stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert token_cache.cache_folder() == folder
    token_cache._process_folder.cache_clear()


SCRIPT = """
from numba.core.caching import InTreeCacheLocator
InTreeCacheLocator.from_function = classmethod(lambda cls, function, file: None)  # as in a read-only installation
from ensue.data.tokenizers import word_scanning
from ensue.kernels import compile
double = compile.inner(lambda x: 2 * x)
print(double(21))
"""


def run_without_home(temporary: Path) -> subprocess.CompletedProcess[str]:
    """Compile in a new process of a read-only installation, for a user whose home cannot be written."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "XDG_"))}
    environment |= {"TMPDIR": str(temporary)}
    script = temporary.with_name("script.py")
    script.write_text(SCRIPT)
    return subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)


def test_kernels_are_cached_in_the_private_folder_without_a_home(temporary: Path) -> None:
    done = run_without_home(temporary)
    assert (done.returncode, done.stdout, done.stderr) == (0, "42\n", "")
    assert list((temporary / f"ensue-{os.getuid()}" / "kernels").iterdir())


def test_kernels_are_compiled_without_a_cache_and_one_note_says_so(temporary: Path) -> None:
    (temporary / f"ensue-{os.getuid()}").write_text("in the way")
    done = run_without_home(temporary)
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr
    assert done.stderr.count("\n") == 1 and "kernels are compiled at each start" in done.stderr
