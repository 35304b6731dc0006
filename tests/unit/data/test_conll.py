from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_files import put

from ensue.core.errors import InputError
from ensue.data.conll import read_tagged, read_untagged, to_bio
from ensue.data.labelled import ReadOptions, TaggedSentence

KINDS = ("PER", "LOC", "new-york")
# A sentence as stretches: a kind or None for words outside, and how many words.
stretches = st.lists(st.tuples(st.sampled_from([None, *KINDS]), st.integers(1, 4)), min_size=1, max_size=6)


def bio(parts: list[tuple[str | None, int]]) -> list[str]:
    tags: list[str] = []
    for kind, length in parts:
        tags += ["O"] * length if kind is None else [f"B-{kind}", *[f"I-{kind}"] * (length - 1)]
    return tags


def iob1(parts: list[tuple[str | None, int]]) -> list[str]:
    tags: list[str] = []
    before = None
    for kind, length in parts:
        first = f"B-{kind}" if kind == before else f"I-{kind}"
        tags += ["O"] * length if kind is None else [first, *[f"I-{kind}"] * (length - 1)]
        before = kind
    return tags


def with_ends(parts: list[tuple[str | None, int]], last: str, single: str, inner: str = "I") -> list[str]:
    tags: list[str] = []
    for kind, length in parts:
        if kind is None:
            tags += ["O"] * length
        elif length == 1:
            tags.append(f"{single}-{kind}")
        else:
            tags += [f"B-{kind}", *[f"{inner}-{kind}"] * (length - 2), f"{last}-{kind}"]
    return tags


@settings(max_examples=100, deadline=None)
@given(stretches)
def test_every_scheme_becomes_the_same_bio(parts: list[tuple[str | None, int]]) -> None:
    expected = bio(parts)
    assert to_bio(expected) == expected
    assert to_bio(iob1(parts)) == expected
    assert to_bio(with_ends(parts, "E", "S")) == expected
    assert to_bio(with_ends(parts, "E", "S", inner="M")) == expected
    assert to_bio(with_ends(parts, "L", "U")) == expected


@settings(max_examples=50, deadline=None)
@given(st.lists(stretches, min_size=1, max_size=4))
def test_a_file_in_any_scheme_is_read_as_bio(
    tmp_path_factory: pytest.TempPathFactory, sentences: list[list[tuple[str | None, int]]]
) -> None:
    folder = tmp_path_factory.getbasetemp()
    sentences = [*sentences, [("PER", 3), ("PER", 1)]]  # so that every scheme shows
    expected = [tuple(bio(parts)) for parts in sentences]
    forms = {
        "BIO": bio,
        "IOB1": iob1,
        "BIOES": lambda parts: with_ends(parts, "E", "S"),
        "BMES": lambda parts: with_ends(parts, "E", "S", "M"),
        "BILOU": lambda parts: with_ends(parts, "L", "U"),
    }
    for scheme, form in forms.items():
        text = "\n".join("".join(f"word {tag}\n" for tag in form(parts)) for parts in sentences)
        notes: list[str] = []
        found = read_tagged([put(folder, "tags", text)], ReadOptions(for_training=False), notes)
        assert [sentence.tags for sentence in found] == expected
        read_as = f"tags in {scheme}" + ("" if scheme == "BIO" else ", read as BIO")
        assert f"{read_as}: " in notes[0]


CONLL = "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n\n\nGerman JJ I-NP I-MISC\n"


def test_sentences_words_and_tags(tmp_path: Path) -> None:
    notes: list[str] = []
    file = put(tmp_path, "a.txt.gz", CONLL)
    assert read_tagged([file], ReadOptions(for_training=False), notes) == [
        TaggedSentence(("EU", "rejects"), ("B-ORG", "O"), f"{file}:3", (3, 4)),
        TaggedSentence(("German",), ("B-MISC",), f"{file}:7", (7,)),
    ]
    assert notes == [f"{file}: 2 sentences, 3 words; tags in IOB1, read as BIO: 2 kinds MISC, ORG"]


def test_given_columns_override_defaults_and_plain_tags_stay(tmp_path: Path) -> None:
    notes: list[str] = []
    file = put(tmp_path, "a", CONLL.replace(" ", "\t"))
    found = read_tagged([file], ReadOptions("word=3,tag=2", for_training=False), notes)
    assert [(sentence.words, sentence.tags) for sentence in found] == [
        (("I-NP", "I-VP"), ("NNP", "VBZ")),
        (("I-NP",), ("JJ",)),
    ]
    assert "3 tags JJ, NNP, VBZ" in notes[0]


def test_universal_dependencies(tmp_path: Path) -> None:
    lines = [
        "# text = vámonos al mar",
        "1-2\tvámonos\t_\t_\t_\t_\t_\t_\t_\t_",
        "1\tvamos\tir\tVERB\tV\t_\t0\troot\t_\t_",
        "2\tnos\tnosotros\tPRON\tP\t_\t1\tobj\t_\t_",
        "2.1\tx\tx\tX\tX\t_\t_\t_\t_\t_",
        "3\tel mar\tmar\tNOUN\tN\t_\t1\tobl\t_\t_",
        "",
        "# text = ¡",
        "1\t#\t#\tSYM\tS\t_\t0\troot\t_\t_",
    ]
    file = put(tmp_path, "a.conllu.gz", "\n".join(lines))
    assert read_tagged([file], ReadOptions(for_training=False), []) == [
        TaggedSentence(("vamos", "nos", "el mar"), ("VERB", "PRON", "NOUN"), f"{file}:3", (3, 4, 6)),
        TaggedSentence(("#",), ("SYM",), f"{file}:9", (9,)),
    ]
    assert read_tagged([file], ReadOptions("tag=5", for_training=False), [])[0].tags == ("V", "P", "N")


def test_bare_tags_need_no_kind(tmp_path: Path) -> None:
    notes: list[str] = []
    file = put(tmp_path, "a", "a I\nb I\nc O\nd I\n")
    assert read_tagged([file], ReadOptions(for_training=False), notes)[0].tags == ("B", "I", "O", "B")
    assert notes[0].endswith("tags in IOB1, read as BIO")


def test_inside_tags_without_a_span_before_are_converted_and_counted(tmp_path: Path) -> None:
    notes: list[str] = []
    file = put(tmp_path, "a", "a B-PER\nb O\nc I-PER\nd I-LOC\n")
    assert read_tagged([file], ReadOptions(for_training=False), notes)[0].tags == ("B-PER", "O", "B-PER", "B-LOC")
    assert f"2 tags I- without a span before, read as B- (first: {file}:3)" in notes[0]


@pytest.mark.parametrize(
    ("text", "columns", "said"),
    [
        ("a B-PER\n\nb O\nc PER\n", "", ":4: tags in no known scheme: 'PER'"),
        ("a B-PER\nb E-PER\nc L-PER\n", "", ":3: tags in no known scheme: 'L-PER'"),
        ("a X O\nb O\n", "", ":2: 2 columns where the first line has 3"),
        ("a X O\n", "tag=4", ":1: 3 columns where 4 are needed"),
        ("alone\n", "", ":1: word and tag are both the column 1"),
        ("a\tO\nb\t \n", "", ":2: the tag is missing"),
        ("\n \n", "", ": there is no sentence in this file"),
        ("-DOCSTART- O\n\n", "", ": there is no sentence in this file"),
    ],
)
def test_errors_name_the_line(tmp_path: Path, text: str, columns: str, said: str) -> None:
    file = put(tmp_path, "a", text)
    with pytest.raises(InputError) as caught:
        read_tagged([file], ReadOptions(columns, for_training=False), [])
    assert str(caught.value).startswith(f"{file}{said}")


@pytest.mark.parametrize(
    ("columns", "said"),
    [("word", "columns are named as word=1,tag=4"), ("words=1", "did you mean 'word'"), ("tag=ner", "not a number")],
)
def test_wrong_columns_are_errors(tmp_path: Path, columns: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_tagged([put(tmp_path, "a", CONLL)], ReadOptions(columns, for_training=False), [])


def test_a_missing_universal_tag_is_an_error(tmp_path: Path) -> None:
    file = put(tmp_path, "a.conllu", "1\ta\ta\t_\t_\t_\t0\troot\t_\t_\n")
    with pytest.raises(InputError, match="1: the tag is missing"):
        read_tagged([file], ReadOptions(for_training=False), [])


def test_a_table_without_blank_lines_is_not_read_as_one_long_sentence(tmp_path: Path) -> None:
    file = put(tmp_path, "sst.tsv", "sentence\tlabel\n" + "a film\t1\nno film\t0\n" * 20)
    with pytest.raises(InputError, match="1: there is one sentence of 41 words"):
        read_tagged([file], ReadOptions(), [])


def test_plain_sentences_are_split_at_white_space(tmp_path: Path) -> None:
    file = put(tmp_path, "a.txt", "The  EU rejects it.\n\nGermany\twaits\n")
    assert read_untagged(file) == [
        TaggedSentence(("The", "EU", "rejects", "it."), None, f"{file}:1"),
        TaggedSentence(("Germany", "waits"), None, f"{file}:3"),
    ]
    pairs = put(tmp_path, "b.txt", "Good morning\n\nGood evening\n\n")
    assert [sentence.words for sentence in read_untagged(pairs)] == [("Good", "morning"), ("Good", "evening")]
    with pytest.raises(InputError, match="no sentence"):
        read_untagged(put(tmp_path, "c.txt", "\n\n"))


def test_tags_are_ignored_for_prediction(tmp_path: Path) -> None:
    file = put(tmp_path, "a.txt", CONLL + "call NN I-NP O\n")
    tagged = read_tagged([file], ReadOptions(for_training=False), [])
    assert read_untagged(file) == [replace(one, tags=None) for one in tagged]
    mixed = put(tmp_path, "b.txt", "Ada B-PER\nwrote VERB\n\nit PRON\nran I-X\n")
    with pytest.raises(InputError):
        read_tagged([mixed], ReadOptions(for_training=False), [])
    assert [one.words for one in read_untagged(mixed)] == [("Ada", "wrote"), ("it", "ran")]
    untagged = put(tmp_path, "c.conllu", "1\ta\ta\t_\t_\t_\t0\troot\t_\t_\n")
    assert [one.words for one in read_untagged(untagged)] == [("a",)]


def test_a_word_per_line_is_a_sentence_without_tags(tmp_path: Path) -> None:
    file = put(tmp_path, "a.txt", "-DOCSTART-\n\nAda\nwrote\nnotes\n\nIn\nLondon\n")
    assert read_untagged(file) == [
        TaggedSentence(("Ada", "wrote", "notes"), None, f"{file}:3", (3, 4, 5)),
        TaggedSentence(("In", "London"), None, f"{file}:7", (7, 8)),
    ]


def test_a_sentence_with_a_broken_line_can_be_left_out(tmp_path: Path) -> None:
    file = put(tmp_path, "a.conll", "Ada B-PER\nwrote O\n\nin\nLondon B-LOC\nand so\n\nAda O\n")
    with pytest.raises(InputError, match=r":4: 1 column where the first line has 2"):
        read_tagged([file], ReadOptions(for_training=False), [])
    notes: list[str] = []
    assert [one.words for one in read_tagged([file], ReadOptions(skip_short=True), notes)] == [
        ("Ada", "wrote"),
        ("Ada",),
    ]
    assert "1 sentence left out" in notes[0] and f"{file}:4" in notes[0]


def test_a_single_tag_is_an_error(tmp_path: Path) -> None:
    file = put(tmp_path, "a.conll", "Ada O\nwrote O\n")
    assert len(read_tagged([file], ReadOptions(for_training=False), [])) == 1
    with pytest.raises(InputError, match="every word has the tag 'O'"):
        read_tagged([file], ReadOptions(), [])


def test_words_know_their_file_and_line(tmp_path: Path) -> None:
    file = put(tmp_path, "a.conll", "Ada B-PER\nwrote O\n")
    (sentence,) = read_tagged([file], ReadOptions(for_training=False), [])
    assert sentence.where_word(1) == f"{file}:2" and TaggedSentence(("a",), None, "text 1").where_word(0) == "text 1"
