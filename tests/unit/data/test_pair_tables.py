from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from pair_files import complaint, put, table

from ensue.data import sources as sources_module
from ensue.data.pairs import read_pairs

# Columns.


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.txt", "a", "a.tsv.gz"])
def test_tabs_are_detected_whatever_the_suffix(tmp_path: Path, name: str) -> None:
    pairs = read_pairs([put(tmp_path, name, 'Hi, you.\tHallo, "du".\r\nGo\tGeh\tattribution\r\n')])
    assert table(pairs) == [(1, "Hi, you.", 'Hallo, "du".'), (2, "Go", "Geh")]
    assert pairs.description == "tab-separated, columns 1 and 2, no header"


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.txt"])
def test_commas_are_detected_whatever_the_suffix(tmp_path: Path, name: str) -> None:
    text = '"Hi, you.",Hallo\n\n"He said ""go"".",Geh\n"two\nlines",zwei\nend,Ende\n'
    notes: list[str] = []
    pairs = read_pairs([put(tmp_path, name, text)], notes=notes)
    expected = [(1, "Hi, you.", "Hallo"), (3, 'He said "go".', "Geh"), (4, "two lines", "zwei"), (6, "end", "Ende")]
    assert table(pairs) == expected
    assert pairs.description == "comma-separated, columns 1 and 2, no header"
    assert "(line 2)" in notes[0] and "newlines inside 1 pair" in notes[1] and "(line 4)" in notes[1]


@pytest.mark.parametrize("header", ["en\tde", "source\ttarget", "English\tGerman", "sentence_eng\tsentence_deu"])
def test_a_header_is_detected_and_noted(tmp_path: Path, header: str) -> None:
    pairs = read_pairs([put(tmp_path, "a.tsv", f"{header}\nHi\tHallo\n")])
    assert table(pairs) == [(2, "Hi", "Hallo")]
    assert pairs.description == f"tab-separated, columns {' and '.join(header.split(chr(9)))}, with a header"


@pytest.mark.parametrize("line", ["no\tnein", "Hi\tHallo", "Text.\tText.", "en\ten", "go\tes"])
def test_short_sentences_are_not_taken_for_a_header(tmp_path: Path, line: str) -> None:
    pairs = read_pairs([put(tmp_path, "a.tsv", f"{line}\nHi\tHallo\n")])
    assert pairs.numbers == [1, 2] and "no header" in pairs.description


def test_columns_can_be_chosen(tmp_path: Path) -> None:
    plain = put(tmp_path, "a.tsv", "7\tHallo\tHi\n8\tGeh\tGo\n")
    assert table(read_pairs([plain], {"source": "3", "target": "2"})) == [(1, "Hi", "Hallo"), (2, "Go", "Geh")]
    named = put(tmp_path, "b.csv", "Nr,Deutsch,Englisch\n7,Hallo,Hi\n")
    pairs = read_pairs([named], {"source": "englisch", "target": "Deutsch"})
    assert table(pairs) == [(2, "Hi", "Hallo")]
    assert pairs.description == "comma-separated, columns Englisch and Deutsch, with a header"
    known = put(tmp_path, "c.tsv", "id\ttarget\tsource\n7\tHallo\tHi\n")
    assert table(read_pairs([known])) == [(2, "Hi", "Hallo")]


def test_wrong_columns_are_errors(tmp_path: Path) -> None:
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


def test_the_error_for_an_open_quotation_mark_names_the_line(tmp_path: Path) -> None:
    file = put(tmp_path, "a.csv", 'Hi,Hallo\nGo,"Geh\nx,y\n')
    assert complaint(file).startswith(f"{file}:2: not comma-separated")


def test_standard_input_has_tabs(monkeypatch: pytest.MonkeyPatch) -> None:
    sources_module._spool.cache_clear()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"Hi\tHallo\n\nGo\tGeh\n")))
    notes: list[str] = []
    assert table(read_pairs(["-"], notes=notes)) == [(1, "Hi", "Hallo"), (3, "Go", "Geh")]
    assert notes == ["standard input: left out 1 pair with an empty side (line 2)"]
    sources_module._spool.cache_clear()


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
def test_fields_are_inferred(
    tmp_path: Path, name: str, record: dict[str, object], columns: dict[str, str] | None, fields: str
) -> None:
    text = f"\ufeff\n{json.dumps(record)}\r\n\n{json.dumps(record, ensure_ascii=False)}"
    notes: list[str] = []
    pairs = read_pairs([put(tmp_path, name, text)], columns, notes)
    assert table(pairs) == [(2, "Hi", "Hallo"), (4, "Hi", "Hallo")]
    assert pairs.description == f"JSONL, fields {fields}"
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
def test_errors_in_a_record_name_the_line(tmp_path: Path, line: str, said: str) -> None:
    file = put(tmp_path, "a.jsonl", '{"source": "Hi", "target": "Hallo"}\n' + line + "\n")
    assert complaint(file).startswith(f"{file}:2: {said}")


def test_fields_that_cannot_be_guessed_are_listed(tmp_path: Path) -> None:
    file = put(tmp_path, "a.jsonl", '{"en": "Hi", "de": "Hallo", "fr": "Salut"}\n')
    assert "there is en, de, fr" in complaint(file)
    assert "both the field 'en'" in complaint(file, columns={"source": "en", "target": "en"})
    assert "no pair" in complaint(put(tmp_path, "b.jsonl", "\n\n"))
