"""Files are compared with their digests; large ones are read again only when they have changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ensue.core import manifest
from ensue.core.errors import InputError
from ensue.core.manifest import MANIFEST, damaged_files, digests_of, forget, read_manifest, write_manifest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files and their manifest."""
    (tmp_path / "a").write_bytes(b"one")
    (tmp_path / "b").write_bytes(b"two")
    write_manifest(tmp_path, digests_of(tmp_path, ("b", "a")))
    return tmp_path


def wrong(folder: Path, **how: bool) -> dict[str, str]:
    return dict(damaged_files(folder, read_manifest(folder, ("a",)), **how))


def test_changed_and_missing_files_are_found(folder: Path) -> None:
    assert wrong(folder) == {}
    (folder / "a").write_bytes(b"onf")
    (folder / "b").unlink()
    assert wrong(folder) == {"a": "is damaged: its SHA-256 is not the one in manifest.json", "b": "is missing"}


def test_each_changed_byte_of_a_manifest_is_found(folder: Path) -> None:
    text = (folder / MANIFEST).read_bytes()
    for position in range(len(text)):
        for bit in (1, 32):  # another character, another case
            changed = bytearray(text)
            changed[position] ^= bit
            (folder / MANIFEST).write_bytes(changed)
            try:
                found = wrong(folder)
            except InputError as error:
                found = {"manifest": str(error)}
            assert found, (position, bit, changed)
    for size in range(len(text)):
        (folder / MANIFEST).write_bytes(text[:size])
        with pytest.raises(InputError, match=r"manifest\.json: is damaged"):
            wrong(folder)


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", ""])
def test_a_manifest_lists_only_files_inside_its_folder(tmp_path: Path, name: str) -> None:
    write_manifest(tmp_path, {name: "0" * 64})
    with pytest.raises(InputError, match="not a list of files and digests"):
        read_manifest(tmp_path, ())


def test_half_a_surrogate_pair_in_a_manifest_is_damage(folder: Path) -> None:
    text = (folder / MANIFEST).read_text(encoding="utf-8")
    (folder / MANIFEST).write_text(text.replace('"b"', '"\\ud800"'), encoding="utf-8")
    with pytest.raises(InputError, match=r"manifest\.json: is damaged: not as it was written"):
        wrong(folder)


def test_a_required_file_must_be_listed(folder: Path) -> None:
    with pytest.raises(InputError, match=r"manifest\.json: is damaged: weights is not in it"):
        read_manifest(folder, ("a", "weights"))


def test_a_forgotten_file_may_change(folder: Path) -> None:
    forget(folder, "b")
    (folder / "b").write_bytes(b"another")
    assert wrong(folder) == {}
    (folder / MANIFEST).write_text("{", encoding="utf-8")
    forget(folder, "a")
    assert not (folder / MANIFEST).exists()


@pytest.fixture
def large(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Three bytes count as large here; the files that are hashed are collected."""
    hashed: list[Path] = []

    def counted(path: Path) -> str:
        hashed.append(path)
        return digest(path)

    digest = manifest.sha256
    monkeypatch.setattr(manifest, "LARGE", 3)
    monkeypatch.setattr(manifest, "SETTLED_SECONDS", -1.0)
    monkeypatch.setattr(manifest, "sha256", counted)
    monkeypatch.setattr(manifest, "_marker_folder", lambda: folder)
    return hashed


def test_a_large_file_is_hashed_once_until_it_changes(folder: Path, large: list[Path]) -> None:
    assert wrong(folder, remember=True) == {} and len(large) == 2
    assert wrong(folder, remember=True) == {} and len(large) == 2
    assert wrong(folder) == {} and len(large) == 4  # a full check
    before = (folder / "a").stat()
    (folder / "a").write_bytes(b"0ne")
    os.utime(folder / "a", ns=(before.st_atime_ns, before.st_mtime_ns))  # the time of its change still shows it
    assert list(wrong(folder, remember=True)) == ["a"]
    assert list(wrong(folder, remember=True)) == ["a"]  # damage is not remembered


def test_a_file_that_has_just_changed_is_not_remembered(
    folder: Path, large: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "SETTLED_SECONDS", 60.0)
    assert wrong(folder, remember=True) == {} and wrong(folder, remember=True) == {}
    assert len(large) == 4


def test_a_cache_that_is_full_does_not_matter(folder: Path, large: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "touch", full)
    assert wrong(folder, remember=True) == {} and wrong(folder, remember=True) == {}
    assert len(large) == 4
