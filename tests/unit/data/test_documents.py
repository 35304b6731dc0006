from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pair_files import put

from ensue.data import reading
from ensue.data.documents import BLOCK_LINES, MAX_UNSPLIT_SENTENCES, read_documents, split_sentences
from ensue.data.sources import Slice
from ensue.data.text_pieces import PIECE_BYTES


def test_blank_lines_end_documents(tmp_path: Path) -> None:
    text = "One. Two!\nThree?\n \n\r\nFour.\n\n\n"
    expected = [["One.", "Two!", "Three?"], ["Four."]]
    assert read_documents([put(tmp_path, "a.txt", text)]) == expected
    assert read_documents(put(tmp_path, "a.txt.gz", "\ufeff" + text)) == expected


def test_top_level_headings_begin_documents(tmp_path: Path) -> None:
    text = (
        " \n = Lobster = \n \n It is blue . It is big . \n \n = = Life = = \n \n It eats . \n \n = Crab = \n Red . \n"
    )
    assert read_documents([put(tmp_path, "a", text)]) == [["It is blue .", "It is big .", "It eats ."], ["Red ."]]
    before = put(tmp_path, "b", "Preface.\n\nMore.\n = A = \nText.\n")
    assert read_documents([before]) == [["Preface.", "More."], ["Text."]]


def test_a_text_without_boundaries_is_cut_into_blocks_with_a_note(tmp_path: Path) -> None:
    notes: list[str] = []
    lines = [f"Sentence {n} ." for n in range(2 * BLOCK_LINES + 1)]
    file = put(tmp_path, "a", "\n".join(lines))
    found = read_documents([file], None, notes)
    assert (
        list(map(len, found)) == [BLOCK_LINES, BLOCK_LINES, 1] and [s for document in found for s in document] == lines
    )
    assert len(notes) == 1 and f"{file}: no document boundaries" in notes[0]
    notes.clear()
    assert read_documents([put(tmp_path, "b", "One. Two.")], None, notes) == [["One.", "Two."]] and not notes


def test_each_of_several_short_files_is_a_document(tmp_path: Path) -> None:
    short = put(tmp_path, "a", "One.\n" * 40)
    long = put(tmp_path, "b", "One.\n" * (MAX_UNSPLIT_SENTENCES + 1))
    notes: list[str] = []
    assert list(map(len, read_documents([short, short], None, notes))) == [40, 40] and not notes
    assert len(read_documents([tmp_path], None, notes)) == 1 + 1 + MAX_UNSPLIT_SENTENCES // BLOCK_LINES
    assert str(long) in notes[0]


def test_records_and_built_in_documents_keep_their_blank_lines(tmp_path: Path) -> None:
    lines = [{"text": "One.\n\nTwo."}, {"text": "Three."}]
    file = put(tmp_path, "a.jsonl", "\n".join(map(json.dumps, lines)))
    assert read_documents([file]) == [["One.", "Two."], ["Three."]]
    other = put(tmp_path, "b.jsonl", json.dumps({"body": "One. Two."}))
    assert read_documents([other], "body") == [["One.", "Two."]]
    assert read_documents(["hello"]) == [["hello"]]


def test_a_built_in_corpus_is_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [("pydoc:a", "One.\n\nTwo.\n"), ("pydoc:b", "Three.\n\nFour.\n")]
    monkeypatch.setattr(reading, "builtin_documents", lambda name: iter(texts))
    assert read_documents(["pydoc"]) == [["One.", "Two."], ["Three.", "Four."]]
    assert read_documents([Slice(("pydoc",), 0, 16)]) == [["One.", "Two."], ["Three"]]


def test_wrapped_paragraphs_are_joined_and_sentences_are_not(tmp_path: Path) -> None:
    wrapped = (
        "A loop is left where the statement is nested in a loop or\n"
        'in a "while", and it ends. Then the program goes on with\n'
        "the rest."
    )
    assert read_documents([put(tmp_path, "a", wrapped)]) == [
        [
            'A loop is left where the statement is nested in a loop or in a "while", and it ends.',
            "Then the program goes on with the rest.",
        ]
    ]
    lowered = f"the bank said that {'it would not go on with the plan ' * 3}, which had been refused\nit fell\n"
    assert len(read_documents([put(tmp_path, "b", lowered)])[0]) == 2


def test_documents_of_one_sentence_are_noted(tmp_path: Path) -> None:
    notes: list[str] = []
    read_documents([put(tmp_path, "a", "One.\n\nTwo.\n\nThree. Four.\n")], None, notes)
    assert "2 of 3 documents have one sentence" in notes[0]


def test_a_line_longer_than_a_piece_is_read_whole(tmp_path: Path) -> None:
    line = "word " * (PIECE_BYTES // 4) + "end."
    found = read_documents([put(tmp_path, "a", f"First.\n\n{line}\n\nLast.")])
    assert found == [["First."], [line], ["Last."]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It is. So it goes! Or? (Yes.) “Well.” No", ["It is.", "So it goes!", "Or?", "(Yes.)", "“Well.”", "No"]),
        ("Version 1.5 of e.g. this", ["Version 1.5 of e.g. this"]),
        ("Mr. Smith met J. S. Mill. They spoke.", ["Mr. Smith met J. S. Mill.", "They spoke."]),
        ("Gov. Price left . the rest stayed ? ?", ["Gov. Price left .", "the rest stayed ? ?"]),
        ('He said " go . " Then he went .', ['He said " go . "', "Then he went ."]),
        ("`` Go . '' He went .", ["`` Go . ''", "He went ."]),
        ("これは本です。それは？はい", ["これは本です。", "それは？", "はい"]),
        ("Émile left. Été came.", ["Émile left.", "Été came."]),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    assert split_sentences(text) == expected


@given(st.text(st.sampled_from("aB .!?\"'”。1"), max_size=40))
def test_splitting_drops_white_space_only(text: str) -> None:
    found = split_sentences(text)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(sentence == sentence.strip() != "" for sentence in found)
