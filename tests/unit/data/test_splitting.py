from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_files import pairs_of, table

from ensue.core.errors import InputError
from ensue.data.reading import read_pieces
from ensue.data.splitting import MAX_HELD_OUT_PAIRS, hold_out, hold_out_pairs


def texts(path: Path, share: float = 0.1, limit: int | None = None) -> tuple[str, str]:
    train, valid = hold_out([path], share, limit)
    whole = "".join(piece.text for piece in read_pieces([path]))
    parts = ["".join(piece.text for piece in read_pieces(part)) for part in (train, valid)]
    assert parts[0] + parts[1] == whole and all(parts)
    for part in (train, valid):
        assert list(read_pieces(part))[-1].ends
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


def test_one_long_line_does_not_take_the_training_text(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("short\n" + "x" * 10_000)
    assert len(texts(file)[1]) < 2000


@pytest.mark.parametrize("source", ["hello"])
def test_the_error_for_a_short_text_has_a_hint(source: str) -> None:
    with pytest.raises(InputError, match=r"5 bytes are too few .* --valid"):
        hold_out([source])


def test_the_share_must_be_between_0_and_1() -> None:
    with pytest.raises(InputError, match="between 0 and 1"):
        hold_out(["hello"], 1.5)


# Pairs.


@settings(max_examples=80, deadline=None)
@given(
    numbers=st.lists(st.integers(0, 40), min_size=2, max_size=80),
    share=st.floats(0.01, 0.9),
    least=st.integers(1, 3),
)
def test_parts_join_to_the_whole_and_copies_stay_together(numbers: list[int], share: float, least: int) -> None:
    pairs = pairs_of(*[(f"s{number}", f"t{number}") for number in numbers])
    try:
        train, valid = hold_out_pairs(pairs, share, least)
    except InputError:
        assert len(numbers) < 2 * least or max(map(numbers.count, numbers)) > 1 or share > 0.5
        return
    assert sorted(table(train) + table(valid)) == table(pairs)
    assert not set(train.source) & set(valid.source)
    assert least <= len(valid) <= max(least, round(share * len(numbers))) and len(train) >= least
    assert train.numbers == sorted(train.numbers) and valid.numbers == sorted(valid.numbers)


def test_the_sample_is_the_same_whatever_the_order_and_fair() -> None:
    both = [(f"s{number}", f"t{number}") for number in range(5_000)]
    _, valid = hold_out_pairs(pairs_of(*both), 0.1)
    _, again = hold_out_pairs(pairs_of(*reversed(both)), 0.1)
    assert len(valid) == 500 and set(valid.source) == set(again.source)
    assert 2_200 < np.mean(valid.numbers) < 2_800


def test_at_most_two_thousand_are_held_out() -> None:
    pairs = pairs_of(*[(str(number), "t") for number in range(2 * MAX_HELD_OUT_PAIRS + 50)])
    assert len(hold_out_pairs(pairs, 0.9)[1]) == MAX_HELD_OUT_PAIRS == 2_000


def test_too_few_pairs_are_not_split() -> None:
    with pytest.raises(InputError, match=r"1 pair \(1 different\) are too few .*--valid"):
        hold_out_pairs(pairs_of(("a", "b")), 0.5)
    with pytest.raises(InputError, match=r"9 pairs \(1 different\)"):
        hold_out_pairs(pairs_of(*[("a", "b")] * 9), 0.5)
    with pytest.raises(InputError, match="between 0 and 1"):
        hold_out_pairs(pairs_of(("a", "b"), ("c", "d")), 1.0)


def test_a_text_that_was_cut_inside_a_character_has_changed(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text("a" * 1000, encoding="utf-8")
    train, _ = hold_out([file])
    file.write_text("é" * 1000 if train[0].stop % 2 else "a" + "é" * 1000, encoding="utf-8")
    with pytest.raises(InputError, match="the text changes while it is read"):
        list(read_pieces(train))
