"""Caches are in folders that nobody else can write to, or there is none."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ensue.core import compile_cache
from ensue.core.user_cache import temporary_cache, trusted, user_cache
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


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a path belong to another user who is not root."""
    if os.getuid() == 0:
        os.chown(path, 77777, 77777)
    else:
        monkeypatch.setattr(os, "getuid", lambda: 77777)


@pytest.mark.parametrize(
    ("own", "above", "kept"),
    [
        (0o700, 0o755, True),
        (0o755, 0o1777, True),  # as in the temporary folder
        (0o777, 0o755, False),
        (0o1777, 0o755, False),  # others could add files
        (0o757, 0o755, False),
        (0o755, 0o777, False),  # others could move it away
    ],
)
def test_a_folder_is_trusted_if_nobody_else_can_write_there(tmp_path: Path, own: int, above: int, kept: bool) -> None:
    folder = tmp_path / "above" / "own"
    folder.mkdir(parents=True)
    folder.chmod(own)
    folder.parent.chmod(above)
    assert trusted(folder) is kept
    assert trusted(folder / "not there") is False


@pytest.mark.parametrize("which", ["own", "above"])
def test_a_folder_of_or_in_a_folder_of_another_user_is_not_trusted(
    tmp_path: Path, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "above" / "own"
    folder.mkdir(parents=True)
    assert trusted(folder)
    give_away(folder if which == "own" else folder.parent, monkeypatch)
    assert not trusted(folder)


def test_a_group_of_others_may_not_write(tmp_path: Path) -> None:
    import grp
    import pwd

    tmp_path.chmod(0o775)
    user, group = pwd.getpwuid(os.getuid()), grp.getgrgid(tmp_path.stat().st_gid)
    alone = (user.pw_gid, user.pw_name) == (group.gr_gid, group.gr_name) and set(group.gr_mem) <= {user.pw_name}
    assert trusted(tmp_path) is alone
    others = [one for one in (*os.getgroups(), *((77777,) if os.getuid() == 0 else ())) if one != user.pw_gid]
    if others:
        os.chown(tmp_path, -1, others[0])
        assert not trusted(tmp_path)


def test_a_link_is_trusted_as_what_it_leads_to_and_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "own").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "open")
    (tmp_path / "open" / "link").symlink_to(tmp_path / "own")
    assert trusted(tmp_path / "link") and trusted(tmp_path / "open" / "link")
    (tmp_path / "open").chmod(0o777)
    assert not trusted(tmp_path / "link") and not trusted(tmp_path / "open" / "link")


@pytest.fixture
def chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that NUMBA_CACHE_DIR names."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "chosen"))
    compile_cache.chosen_folder.cache_clear()
    yield tmp_path / "chosen"
    compile_cache.chosen_folder.cache_clear()


def test_numbas_folder_is_used_unless_others_can_write_to_it(chosen: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert compile_cache.chosen_folder() == chosen and stat.S_IMODE(chosen.stat().st_mode) == 0o700
    chosen.chmod(0o777)
    compile_cache.chosen_folder.cache_clear()
    assert compile_cache.chosen_folder() is None
    compile_cache.chosen_folder.cache_clear()
    assert compile_cache.chosen_folder() is None
    assert [one.message for one in caplog.records if str(chosen) in one.message] == [
        f"NUMBA_CACHE_DIR ({chosen}) is not used: others can write to it or to a folder above it"
    ]


SCRIPT = """
from numba.core.caching import InTreeCacheLocator
InTreeCacheLocator.from_function = classmethod(lambda cls, function, file: None)  # as in a read-only installation
from ensue.data.tokenizers import word_scanning
from ensue.kernels import compile
double = compile.inner(lambda x: 2 * x)
print(double(21))
"""


def run_without_home(temporary: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Compile in a new process of a read-only installation, for a user whose home cannot be written."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "XDG_"))}
    environment |= {"TMPDIR": str(temporary), **more}
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


def test_numba_neither_reads_nor_writes_a_folder_that_others_can_write_to(temporary: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    theirs.chmod(0o777)
    done = run_without_home(temporary, NUMBA_CACHE_DIR=str(theirs))
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr
    assert done.stderr.count("\n") == 1 and f"({theirs}) is not used" in done.stderr
    assert not list(theirs.iterdir())
    assert list((temporary / f"ensue-{os.getuid()}" / "kernels").iterdir())
