from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensue.core.errors import InputError
from ensue.data import sources as sources_module
from ensue.data.dates import date_pairs
from ensue.data.pairs import MOST_HELD_OUT, Pairs, encode_pairs, held_out_pairs, read_pairs
from ensue.data.tokenizers.letters import ByteTokenizer, fit_chars
from ensue.data.tokenizers.word import fit_words, word_tokenizer

# Every character that some other tool takes for the end of a line, but for the newline itself.
BREAKS = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
sentences = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\n\t"), min_size=1, max_size=20)
sentences = sentences.filter(lambda text: bool(text.strip()) and not text.endswith("\r") and text[0] != "\ufeff")


def put(folder: Path, name: str, text: str | bytes) -> Path:
    data = text.encode() if isinstance(text, str) else text
    file = folder / name
    file.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return file


def complaint(*files: str | Path, columns: dict[str, str] | None = None) -> str:
    with pytest.raises(InputError) as caught:
        read_pairs(files, columns)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def pairs_of(*both: tuple[str, str]) -> Pairs:
    return Pairs([one for one, _ in both], [other for _, other in both], list(range(1, len(both) + 1)), "")


def table(pairs: Pairs) -> list[tuple[int, str, str]]:
    return list(zip(pairs.numbers, pairs.source, pairs.target, strict=True))


# Parallel files.


@pytest.mark.parametrize("names", [("a.en", "a.de"), ("a.en.gz", "a.de"), ("a.txt.gz", "b.txt.gz")])
@pytest.mark.parametrize("ends", [("\n", "\n"), ("\r\n", "\n"), ("\r\n", "\r\n")])
def test_two_files_are_parallel(tmp_path: Path, names: tuple[str, str], ends: tuple[str, str]) -> None:
    one = put(tmp_path, names[0], ends[0].join(["a b", "c"]) + ends[0])
    other = put(tmp_path, names[1], "\ufeff" + ends[1].join(["A B", "C"]))
    pairs = read_pairs([one, str(other)])
    assert table(pairs) == [(1, "a b", "A B"), (2, "c", "C")]
    assert pairs.understood == "two parallel files, 2 lines each"


def test_only_newlines_end_lines(tmp_path: Path) -> None:
    one = put(tmp_path, "a", "".join(f"x{mark}y\n" for mark in BREAKS + "\r"))
    other = put(tmp_path, "b", "".join(f"{number}\n" for number in range(len(BREAKS) + 1)))
    assert read_pairs([one, other]).source == [f"x{mark}y" for mark in BREAKS + "\r"]


@settings(max_examples=60, deadline=None)
@given(both=st.lists(st.tuples(sentences, sentences), min_size=1, max_size=8), end=st.sampled_from(["\n", "\r\n"]))
def test_what_was_written_in_parallel_or_with_tabs_is_read(
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


def test_unequal_files_are_refused_with_both_numbers(tmp_path: Path) -> None:
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


def test_nothing_but_empty_sides_is_refused(tmp_path: Path) -> None:
    one, other = put(tmp_path, "a", "a\n\n"), put(tmp_path, "b", "\nB\n")
    assert "no pair with both sides" in complaint(one, other)
    assert "no pair in this file" in complaint(put(tmp_path, "c", "\n \n\n"))


# Columns.


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.txt", "a", "a.tsv.gz"])
def test_tabs_are_seen_whatever_the_ending(tmp_path: Path, name: str) -> None:
    pairs = read_pairs([put(tmp_path, name, 'Hi, you.\tHallo, "du".\r\nGo\tGeh\tattribution\r\n')])
    assert table(pairs) == [(1, "Hi, you.", 'Hallo, "du".'), (2, "Go", "Geh")]
    assert pairs.understood == "tab-separated, columns 1 and 2, no header"


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.txt"])
def test_commas_are_seen_whatever_the_ending(tmp_path: Path, name: str) -> None:
    text = '"Hi, you.",Hallo\n\n"He said ""go"".",Geh\n"two\nlines",zwei\nend,Ende\n'
    notes: list[str] = []
    pairs = read_pairs([put(tmp_path, name, text)], notes=notes)
    expected = [(1, "Hi, you.", "Hallo"), (3, 'He said "go".', "Geh"), (4, "two lines", "zwei"), (6, "end", "Ende")]
    assert table(pairs) == expected
    assert pairs.understood == "comma-separated, columns 1 and 2, no header"
    assert "(line 2)" in notes[0] and "newlines inside 1 pair" in notes[1] and "(line 4)" in notes[1]


@pytest.mark.parametrize("header", ["en\tde", "source\ttarget", "English\tGerman", "sentence_eng\tsentence_deu"])
def test_a_header_is_seen_and_said(tmp_path: Path, header: str) -> None:
    pairs = read_pairs([put(tmp_path, "a.tsv", f"{header}\nHi\tHallo\n")])
    assert table(pairs) == [(2, "Hi", "Hallo")]
    assert pairs.understood == f"tab-separated, columns {' and '.join(header.split(chr(9)))}, with a header"


@pytest.mark.parametrize("line", ["no\tnein", "Hi\tHallo", "Text.\tText.", "en\ten", "go\tes"])
def test_short_sentences_are_no_header(tmp_path: Path, line: str) -> None:
    pairs = read_pairs([put(tmp_path, "a.tsv", f"{line}\nHi\tHallo\n")])
    assert pairs.numbers == [1, 2] and "no header" in pairs.understood


def test_columns_can_be_chosen(tmp_path: Path) -> None:
    plain = put(tmp_path, "a.tsv", "7\tHallo\tHi\n8\tGeh\tGo\n")
    assert table(read_pairs([plain], {"source": "3", "target": "2"})) == [(1, "Hi", "Hallo"), (2, "Go", "Geh")]
    named = put(tmp_path, "b.csv", "Nr,Deutsch,Englisch\n7,Hallo,Hi\n")
    pairs = read_pairs([named], {"source": "englisch", "target": "Deutsch"})
    assert table(pairs) == [(2, "Hi", "Hallo")]
    assert pairs.understood == "comma-separated, columns Englisch and Deutsch, with a header"
    known = put(tmp_path, "c.tsv", "id\ttarget\tsource\n7\tHallo\tHi\n")
    assert table(read_pairs([known])) == [(2, "Hi", "Hallo")]


def test_wrong_columns_are_said(tmp_path: Path) -> None:
    file = put(tmp_path, "a.tsv", "en\tde\nHi\tHallo\n")
    assert "no column 'fr'" in complaint(file, columns={"source": "fr", "target": "de"})
    assert "en, de" in complaint(file, columns={"source": "fr", "target": "de"})
    assert "columns 2 and 2" in complaint(file, columns={"source": "2"})
    assert "columns 0 and 2" in complaint(file, columns={"source": "0"})
    assert "2 columns where 5 are needed" in complaint(file, columns={"target": "5"})
    assert "2 columns where 5 are needed" in complaint(file, columns={"source": "de", "target": "5"})
    assert "did you mean 'source'" in complaint(file, columns={"sorce": "1"})
    assert "one file" in complaint(file, file, columns={"source": "1"})


def test_lines_with_too_few_columns_are_named(tmp_path: Path) -> None:
    file = put(tmp_path, "a.tsv", "Hi\tHallo\nGo\tGeh\nalone\n")
    assert complaint(file).startswith(f"{file}:3: 1 column where 2 are needed")


def test_commas_of_sentences_are_not_taken_for_columns(tmp_path: Path) -> None:
    file = put(tmp_path, "a.txt", "A dog, a cat\nA man, a boy, a ball\n")
    assert complaint(file).startswith(f"{file}:2: 3 columns where the first line has 2")
    assert "one column" in complaint(put(tmp_path, "b.txt", "A dog\nA cat\n"))


def test_an_open_quotation_mark_is_named(tmp_path: Path) -> None:
    file = put(tmp_path, "a.csv", 'Hi,Hallo\nGo,"Geh\nx,y\n')
    assert complaint(file).startswith(f"{file}:2: not comma-separated")


def test_standard_input_has_tabs(monkeypatch: pytest.MonkeyPatch) -> None:
    sources_module._spooled.cache_clear()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"Hi\tHallo\n\nGo\tGeh\n")))
    notes: list[str] = []
    assert table(read_pairs(["-"], notes=notes)) == [(1, "Hi", "Hallo"), (3, "Go", "Geh")]
    assert notes == ["standard input: left out 1 pair with an empty side (line 2)"]
    sources_module._spooled.cache_clear()


# JSONL.


@pytest.mark.parametrize(
    ("record", "columns", "fields"),
    [
        ({"id": "7", "target": "Hallo", "source": "Hi"}, None, "source and target"),
        ({"id": 7, "en": "Hi", "de": "Hallo"}, None, "en and de"),
        ({"id": "7", "de": "Hallo", "en": "Hi"}, {"source": "en", "target": "de"}, "en and de"),
        ({"id": "7", "translation": {"en": "Hi", "de": "Hallo"}}, None, "en and de"),
        ({"translation": {"de": "Hallo", "en": "Hi", "fr": "Salut"}}, {"source": "en", "target": "de"}, "en and de"),
    ],
)
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_fields_are_found(
    tmp_path: Path, name: str, record: dict[str, object], columns: dict[str, str] | None, fields: str
) -> None:
    text = f"\ufeff\n{json.dumps(record)}\r\n\n{json.dumps(record, ensure_ascii=False)}"
    notes: list[str] = []
    pairs = read_pairs([put(tmp_path, name, text)], columns, notes)
    assert table(pairs) == [(2, "Hi", "Hallo"), (4, "Hi", "Hallo")]
    assert pairs.understood == f"JSONL, fields {fields}"
    assert "(lines 1, 3)" in notes[0]


def test_newlines_in_a_record_become_spaces_and_are_noted(tmp_path: Path) -> None:
    notes: list[str] = []
    file = put(tmp_path, "a.jsonl", json.dumps({"source": "a\r\nb", "target": "A\nB\u2028C"}))
    assert table(read_pairs([file], notes=notes)) == [(1, "a b", "A B\u2028C")]
    assert "newlines inside 1 pair became spaces (line 1)" in notes[0]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"source": "a"}', "there is no field 'target'"),
        ('{"source": "a", "target": 3}', "the field 'target' is not text but int"),
        ('{"source": "a", "target": "\\ud800"}', "half of a surrogate pair"),
    ],
)
def test_what_is_wrong_in_a_record_is_said_with_its_line(tmp_path: Path, line: str, said: str) -> None:
    file = put(tmp_path, "a.jsonl", '{"source": "Hi", "target": "Hallo"}\n' + line + "\n")
    assert complaint(file).startswith(f"{file}:2: {said}")


def test_fields_that_cannot_be_guessed_are_listed(tmp_path: Path) -> None:
    file = put(tmp_path, "a.jsonl", '{"en": "Hi", "de": "Hallo", "fr": "Salut"}\n')
    assert "there is en, de, fr" in complaint(file)
    assert "both the field 'en'" in complaint(file, columns={"source": "en", "target": "en"})
    assert "no pair" in complaint(put(tmp_path, "b.jsonl", "\n\n"))


# Files that cannot be used.


def test_files_that_cannot_be_used_are_said(tmp_path: Path) -> None:
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


# The corpus dates.


def test_dates_is_a_corpus_and_a_path_of_that_name_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = read_pairs(["dates"])
    assert list(zip(pairs.source, pairs.target)) == date_pairs("train")
    assert pairs.numbers[:2] == [1, 2] and "dates" in pairs.understood
    monkeypatch.chdir(tmp_path)
    put(tmp_path, "dates", "Hi\tHallo\n")
    assert table(read_pairs([Path("dates")])) == table(read_pairs(["./dates"])) == [(1, "Hi", "Hallo")]


# A held-out part.


@settings(max_examples=80, deadline=None)
@given(
    numbers=st.lists(st.integers(0, 40), min_size=2, max_size=80),
    share=st.floats(0.01, 0.9),
    least=st.integers(1, 3),
)
def test_parts_join_to_the_whole_and_copies_stay_together(numbers: list[int], share: float, least: int) -> None:
    pairs = pairs_of(*[(f"s{number}", f"t{number}") for number in numbers])
    try:
        train, valid = held_out_pairs(pairs, share, least)
    except InputError:
        assert len(numbers) < 2 * least or max(map(numbers.count, numbers)) > 1 or share > 0.5
        return
    assert sorted(table(train) + table(valid)) == table(pairs)
    assert not set(train.source) & set(valid.source)
    assert least <= len(valid) <= max(least, round(share * len(numbers))) and len(train) >= least
    assert train.numbers == sorted(train.numbers) and valid.numbers == sorted(valid.numbers)


def test_the_sample_is_the_same_whatever_the_order_and_fair() -> None:
    both = [(f"s{number}", f"t{number}") for number in range(5_000)]
    _, valid = held_out_pairs(pairs_of(*both), 0.1)
    _, again = held_out_pairs(pairs_of(*reversed(both)), 0.1)
    assert len(valid) == 500 and set(valid.source) == set(again.source)
    assert 2_200 < np.mean(valid.numbers) < 2_800


def test_at_most_two_thousand_are_held_out() -> None:
    pairs = pairs_of(*[(str(number), "t") for number in range(2 * MOST_HELD_OUT + 50)])
    assert len(held_out_pairs(pairs, 0.9)[1]) == MOST_HELD_OUT == 2_000


def test_too_few_pairs_are_not_split() -> None:
    with pytest.raises(InputError, match=r"1 pair \(1 different\) are too few .*--valid"):
        held_out_pairs(pairs_of(("a", "b")), 0.5)
    with pytest.raises(InputError, match=r"9 pairs \(1 different\)"):
        held_out_pairs(pairs_of(*[("a", "b")] * 9), 0.5)
    with pytest.raises(InputError, match="between 0 and 1"):
        held_out_pairs(pairs_of(("a", "b"), ("c", "d")), 1.0)


# Tokens.


@settings(max_examples=60, deadline=None)
@given(both=st.lists(st.tuples(sentences, sentences), min_size=1, max_size=8))
def test_tokens_say_the_sentences_and_end_in_end_marks(both: list[tuple[str, str]]) -> None:
    source, target = ByteTokenizer(), fit_chars(one for _, one in both)
    tokens = encode_pairs(pairs_of(*both), source, target, most=100)
    assert len(tokens) == len(both) and tokens.unknown == (0, 0) and tokens.surcharge == 0
    for place, (one, other) in enumerate(both):
        ids, said = tokens.pair(place)
        assert ids.dtype == said.dtype == np.int32
        assert ids[-1] == source.end and source.decode(ids) == one
        assert said[-1] == target.end and target.decode(said) == other
    assert tokens.source_at[0] == 0 and tokens.source_at[-1] == len(tokens.source)
    assert tokens.bytes == len("".join(f"{other}\n" for _, other in both).encode())
    assert tokens.words == sum(len(other.split()) + 1 for _, other in both)


def test_long_pairs_are_left_out_with_their_lines() -> None:
    pairs = Pairs(["a", "bbbb", "c", "d"], ["A", "B", "CCCC", "D"], [3, 5, 8, 9], "")
    notes: list[str] = []
    tokens = encode_pairs(pairs, ByteTokenizer(), ByteTokenizer(), most=4, notes=notes)
    assert tokens.lines.tolist() == [3, 9] and tokens.bytes == 4
    assert notes == ["left out 2 pairs with more than 4 tokens on a side (lines 5, 8)"]
    assert len(encode_pairs(pairs, ByteTokenizer(), ByteTokenizer(), most=5, notes=notes)) == 4 and len(notes) == 1
    with pytest.raises(InputError, match=r"4 pairs with more than 1 tokens .*lines 3, 5, 8, 9"):
        encode_pairs(pairs, ByteTokenizer(), ByteTokenizer(), most=1)


def test_unknown_words_are_counted_on_each_side_and_charged_on_the_target() -> None:
    known = fit_words([("the cat sat\nthe dog sat\n", True, True)])
    tokens = encode_pairs(pairs_of(("the cow ran", "the dog"), ("cat", "the emu")), known, known, most=9)
    assert tokens.unknown == (2, 1)
    assert tokens.target.tolist()[-2:] == [known.unknown, known.end]
    assert tokens.surcharge == pytest.approx(known.surcharge("the dog\nthe emu\n")[0])
    assert tokens.surcharge > encode_pairs(pairs_of(("cat", "the dog")), known, known, most=9).surcharge


def test_a_tokenizer_that_refuses_names_the_line() -> None:
    strict = word_tokenizer(["a", "</s>"])
    with pytest.raises(InputError, match="line 2: the word 'b' is not in the vocabulary"):
        encode_pairs(pairs_of(("a", "a"), ("a", "b")), strict, strict, most=9)


def test_the_hash_sees_every_token_and_every_border() -> None:
    def hashed(*both: tuple[str, str]) -> str:
        return encode_pairs(pairs_of(*both), ByteTokenizer(), ByteTokenizer(), most=9).hash

    hashes = {hashed(("ab", "c")), hashed(("a", "bc")), hashed(("ab", "d")), hashed(("ab", "c"), ("ab", "c"))}
    assert len(hashes) == 4 and hashed(("ab", "c")) in hashes
