from collections import Counter

import numpy as np
import pytest

from ensue.core.errors import InputError
from ensue.data.corpora import builtin_documents
from ensue.data.senses import PARTS, SENSES, Context, contexts
from ensue.data.word_benchmarks import read_contexts
from ensue.data.word_vectors import WordVectors


@pytest.mark.parametrize("word", SENSES)
def test_both_halves_have_equally_many_contexts_of_a_sense(word):
    for part in PARTS:
        counts = Counter(context.sense for context in contexts(word, part))
        assert len(counts) == 2 and set(counts.values()) == {22}
    assert len(contexts(word)) == 88


@pytest.mark.parametrize("word", SENSES)
def test_the_word_is_spelled_the_same_in_both_senses(word):
    assert {context.word for context in contexts(word)} == {word}
    assert all(context.words.count(word) == 1 for context in contexts(word))


@pytest.mark.parametrize("word", SENSES)
def test_no_sentence_occurs_twice(word):
    texts = [context.text for context in contexts(word)]
    assert len(set(texts)) == len(texts)


def test_the_two_sentences_of_the_lecture_occur():
    senses = {context.text: context.sense for context in contexts("bank")}
    assert senses["a nice walk by the river bank"] == "river"
    assert senses["walk to the bank and get cash"] == "money"


@pytest.mark.parametrize("word", SENSES)
def test_r5_a_table_has_one_vector_for_both_senses_so_neighbours_tell_nothing(word):
    words = sorted({one for context in contexts(word) for one in context.words})
    table = WordVectors(words, np.random.default_rng(0).normal(size=(len(words), 5)))
    vectors = np.stack([table.unit[table.index_of(context.word)] for context in contexts(word)])
    assert np.ptp(vectors, axis=0).max() == 0
    known, asked = contexts(word, "known"), contexts(word, "asked")
    right = [context.sense == known[0].sense for context in asked]  # all are as near as the first
    assert sum(right) / len(right) == 0.5


def test_the_corpus_has_one_sentence_per_line():
    ((name, text),) = builtin_documents("bank")
    assert name == "bank" and len(text.splitlines()) == 4 * 44
    assert "walk to the bank and get cash\n" in text and "*" not in text


def test_unknown_words_and_parts_are_errors():
    with pytest.raises(InputError, match="did you mean 'bank'"):
        contexts("banks")
    with pytest.raises(InputError, match="did you mean 'known'"):
        contexts("bank", "know")


def test_contexts_are_read_from_a_file_with_or_without_senses(tmp_path):
    file = tmp_path / "own.txt"
    file.write_text("river\tthe Bank of the Elbe\n\nno bank like this bank\n", encoding="utf-8")
    words = ("no", "bank", "like", "this", "bank")
    assert read_contexts(file, "bank") == [
        Context(("the", "Bank", "of", "the", "Elbe"), 1, "river"),
        Context(words, 1, ""),
        Context(words, 4, ""),
    ]


def test_the_error_for_a_line_without_the_word_names_the_line(tmp_path):
    file = tmp_path / "own.txt"
    file.write_text("a bank\na shore\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"own\.txt, line 2: there is no 'bank' here"):
        read_contexts(file, "bank")
    file.write_text("\n", encoding="utf-8")
    with pytest.raises(InputError, match="there is no sentence in it"):
        read_contexts(file, "bank")
