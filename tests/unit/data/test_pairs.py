from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_files import complaint, put, sentences, table

from ensue.data.dates import date_pairs
from ensue.data.pairs import read_pairs

# Every character that some other tool takes for the end of a line, but for the newline itself.
BREAKS = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"


@pytest.mark.parametrize("names", [("a.en", "a.de"), ("a.en.gz", "a.de"), ("a.txt.gz", "b.txt.gz")])
@pytest.mark.parametrize("ends", [("\n", "\n"), ("\r\n", "\n"), ("\r\n", "\r\n")])
def test_two_files_are_parallel(tmp_path: Path, names: tuple[str, str], ends: tuple[str, str]) -> None:
    one = put(tmp_path, names[0], ends[0].join(["a b", "c"]) + ends[0])
    other = put(tmp_path, names[1], "\ufeff" + ends[1].join(["A B", "C"]))
    pairs = read_pairs([one, str(other)])
    assert table(pairs) == [(1, "a b", "A B"), (2, "c", "C")]
    assert pairs.description == "two parallel files, 2 lines each"


def test_only_newlines_end_lines(tmp_path: Path) -> None:
    one = put(tmp_path, "a", "".join(f"x{mark}y\n" for mark in BREAKS + "\r"))
    other = put(tmp_path, "b", "".join(f"{number}\n" for number in range(len(BREAKS) + 1)))
    assert read_pairs([one, other]).source == [f"x{mark}y" for mark in BREAKS + "\r"]


@settings(max_examples=60, deadline=None)
@given(both=st.lists(st.tuples(sentences, sentences), min_size=1, max_size=8), end=st.sampled_from(["\n", "\r\n"]))
def test_pairs_written_as_parallel_files_or_with_tabs_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, both: list[tuple[str, str]], end: str
) -> None:
    folder = tmp_path_factory.getbasetemp()  # one for all examples, which write over each other
    expected = [(number, *pair) for number, pair in enumerate(both, start=1)]
    one, other = (put(folder, name, "".join(pair[at] + end for pair in both)) for at, name in enumerate("ab"))
    assert table(read_pairs([one, other])) == expected
    tabs = put(folder, "c", "source\ttarget" + end + "".join("\t".join(pair) + end for pair in both))
    assert table(read_pairs([tabs])) == [(number + 1, *pair) for number, *pair in expected]
    records = "".join(json.dumps({"source": pair[0], "target": pair[1]}) + end for pair in both)
    assert table(read_pairs([put(folder, "d.jsonl", records)])) == expected


def test_the_error_for_unequal_files_names_both_lengths(tmp_path: Path) -> None:
    one, other = put(tmp_path, "a", "a\nb\nc\n"), put(tmp_path, "b", "A\nB\n\n\n")
    said = complaint(one, other)
    assert "3 lines and 4 lines" in said and "not parallel" in said and str(one) in said


def test_empty_sides_are_left_out_and_counted(tmp_path: Path) -> None:
    one, other = put(tmp_path, "a", "a\n \nc\n\ne\n"), put(tmp_path, "b", "A\nB\n\u3000\n\nE\n")
    notes: list[str] = []
    assert table(read_pairs([one, other], notes=notes)) == [(1, "a", "A"), (5, "e", "E")]
    assert len(notes) == 1 and "3 pairs with an empty side (lines 2, 3, 4)" in notes[0]
    many = put(tmp_path, "c", "a\tb\n" + "\t\n" * 9)
    notes.clear()
    read_pairs([many], notes=notes)
    assert "9 pairs with an empty side (lines 2, 3, 4, 5, 6, …)" in notes[0]


def test_nothing_but_empty_sides_is_an_error(tmp_path: Path) -> None:
    one, other = put(tmp_path, "a", "a\n\n"), put(tmp_path, "b", "\nB\n")
    assert "no pair with both sides" in complaint(one, other)
    assert "no pair in this file" in complaint(put(tmp_path, "c", "\n \n\n"))


def test_unusable_files_are_errors(tmp_path: Path) -> None:
    good = put(tmp_path, "good", "a\nb\n")
    assert "no such file" in complaint(good, tmp_path / "missing")
    assert "no such file" in complaint(tmp_path / "missing.jsonl")
    assert "folder" in complaint(tmp_path)
    assert "not the name of a file" in complaint("x" * 5000)
    assert "empty" in complaint(good, put(tmp_path, "empty", ""))
    assert complaint(good, put(tmp_path, "zero", b"a\n\0\n")).startswith(f"{tmp_path / 'zero'}:2: binary")
    assert complaint(good, put(tmp_path, "latin", b"a\nb\xe9\n")).startswith(f"{tmp_path / 'latin'}:2: not UTF-8")
    assert complaint(put(tmp_path, "l.jsonl", b'\n{"a": "\xe9"}\n')).startswith(f"{tmp_path / 'l.jsonl'}:2: not UTF-8")
    assert "UTF-16" in complaint(put(tmp_path, "wide", "a\tb\n".encode("utf-16")))
    (tmp_path / "bad.gz").write_bytes(b"a\tb\n")
    assert "gzip" in complaint(tmp_path / "bad.gz")
    assert "3 files" in complaint(good, good, good)
    assert "0 files" in complaint()
    assert "JSONL" in complaint(good, put(tmp_path, "a.jsonl", "{}\n"))
    assert "has no translations" in complaint("pydoc")
    assert "alone" in complaint("dates", good)


def test_dates_is_a_corpus_and_a_path_of_that_name_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = read_pairs(["dates"])
    assert list(zip(pairs.source, pairs.target)) == date_pairs("train")
    assert pairs.numbers[:2] == [1, 2] and "dates" in pairs.description
    monkeypatch.chdir(tmp_path)
    put(tmp_path, "dates", "Hi\tHallo\n")
    assert table(read_pairs([Path("dates")])) == table(read_pairs(["./dates"])) == [(1, "Hi", "Hallo")]
