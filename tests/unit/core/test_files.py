"""Files that are there whole or not at all."""

from pathlib import Path

import pytest

from ensue.core.errors import InputError
from ensue.core.files import atomic_file, write_text


def test_a_path_through_a_file_is_a_one_line_error(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("kept", encoding="utf-8")
    for path in (tmp_path / "taken" / "x.txt", tmp_path / "taken" / "deeper" / "x.txt"):
        said = r"x\.txt: a part of this path is a file, not a folder"
        with pytest.raises(InputError, match=said), atomic_file(path) as temporary:
            temporary.write_text("new", encoding="utf-8")
    assert (tmp_path / "taken").read_text(encoding="utf-8") == "kept"


def test_a_failed_write_keeps_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("old", encoding="utf-8")
    with pytest.raises(ZeroDivisionError), atomic_file(path) as temporary:
        temporary.write_text("new", encoding="utf-8")
        1 / 0  # noqa: B018
    assert [file.read_text(encoding="utf-8") for file in tmp_path.iterdir()] == ["old"]


def test_a_folder_in_which_nothing_can_be_created_is_a_one_line_error(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(Path, "mkdir", lambda *_, **__: None)  # as in /proc, whose folder is there but takes no file
    path = tmp_path / "gone" / "x.txt"
    with pytest.raises(InputError, match=r"gone/x\.txt: cannot be created; choose another path"):
        write_text(path, "text")
