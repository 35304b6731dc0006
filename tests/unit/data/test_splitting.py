from __future__ import annotations

import json
from pathlib import Path

import pytest

from ensue.core.errors import InputError
from ensue.data.reading import pieces
from ensue.data.splitting import held_out


def texts(path: Path, share: float = 0.1, limit: int | None = None) -> tuple[str, str]:
    train, valid = held_out([path], share, limit)
    whole = "".join(piece.text for piece in pieces([path]))
    parts = ["".join(piece.text for piece in pieces(part)) for part in (train, valid)]
    assert parts[0] + parts[1] == whole and all(parts)
    for part in (train, valid):
        assert list(pieces(part))[-1].ends
    return parts[0], parts[1]


def test_cut_is_at_a_line_end_near_the_share(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("".join(f"{n} a line of a text\n" for n in range(1000)))
    train, valid = texts(file)
    assert train.endswith("\n")
    assert abs(len(valid) - 0.1 * file.stat().st_size) < 40


def test_cut_prefers_the_end_of_a_document(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps({"text": f"{n}\nmore\nlines"}) + "\n" for n in range(1000)))
    train, valid = texts(file)
    assert train.endswith("lines") and valid.startswith("9")


def test_limit_keeps_the_tail_short(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("ten bytes\n" * 500_000)
    assert len(texts(file, 0.1, 1000)[1]) == 1000


def test_text_on_one_line_is_cut_before_a_space(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("word " * 1000)
    assert texts(file)[1].startswith(" word")


@pytest.mark.parametrize("limit", [1, 2, 3, None])
def test_text_without_space_is_cut_between_characters(tmp_path: Path, limit: int | None) -> None:
    file = tmp_path / "a.txt"
    for letters in (100, 101, 102, 103):
        file.write_text("🎈" * letters)
        texts(file, 0.1, limit)


def test_one_long_line_does_not_swallow_the_training_text(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("short\n" + "x" * 10_000)
    assert len(texts(file)[1]) < 2000


@pytest.mark.parametrize("source", ["hello"])
def test_text_too_short_to_split_says_how_to_mend(source: str) -> None:
    with pytest.raises(InputError, match=r"5 bytes are too few .* --valid"):
        held_out([source])


def test_share_must_be_a_share() -> None:
    with pytest.raises(InputError, match="between 0 and 1"):
        held_out(["hello"], 1.5)
