"""Texts as words, word vectors, and benchmarks of them."""

import gzip

import numpy as np
import pytest

from ensue.core.errors import InputError
from ensue.data.tokenizers.registry import load_tokenizer, save_tokenizer
from ensue.data.tokenizers.vocabulary import Vocabulary
from ensue.data.word_benchmarks import WordSimilarity, read_analogies, read_similarities
from ensue.data.word_text import read_word_text
from ensue.data.word_vectors import WordVectors


def written(folder, text, name="text.txt"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_words_are_letters_and_lines_are_sentences(tmp_path):
    text = read_word_text([written(tmp_path, "The cat, the DOG's\n\n\ncat-dog 3 the\n")], min_count=1)
    assert text.vocabulary.words == ["the", "cat", "3", "dog", "dog's"]
    assert text.vocabulary.decode(text.words) == "the cat the dog's\ncat dog 3 the\n"
    assert text.counts.tolist() == [3, 2, 1, 1, 1] and text.total == 8


def test_words_between_spaces_are_unchanged(tmp_path):
    text = read_word_text([written(tmp_path, "The cat, the cat,\n")], split="space", lowercase=False, min_count=1)
    assert text.vocabulary.words == ["cat,", "The", "the"]


def test_rare_words_are_dropped_so_that_windows_close_up(tmp_path):
    text = read_word_text([written(tmp_path, "a b a x b\nb a y\n")], min_count=2)
    assert text.vocabulary.decode(text.words) == "a b a b\nb a\n"
    assert text.total == 8 and text.counts.sum() == 6
    assert read_word_text([written(tmp_path, "a b a x b\nb a y\n")], min_count=1, most=2).vocabulary.size == 2


def test_a_paragraph_can_be_the_unit(tmp_path):
    path = written(tmp_path, "a b\nc\n\nb a\n  \nc c\n")
    assert read_word_text([path], min_count=1, unit="paragraph").vocabulary.size == 3
    words = read_word_text([path], min_count=1, unit="paragraph")
    assert words.vocabulary.decode(words.words) == "a b c\nb a\nc c\n"


def test_windows_do_not_cross_files(tmp_path):
    files = [written(tmp_path, "a b", "1.txt"), written(tmp_path, "b a", "2.txt")]
    text = read_word_text(files, min_count=1)
    assert (text.words == -1).tolist() == [False, False, True, False, False, True]


def test_a_known_vocabulary_is_unchanged(tmp_path):
    known = Vocabulary(["b", "a", "z"], "space", False)
    text = read_word_text([written(tmp_path, "a b A b\n")], known=known)
    assert text.vocabulary is known and text.words.tolist() == [1, 0, 0, -1] and text.counts.tolist() == [2, 1, 0]
    with pytest.raises(InputError, match="fewer than two words"):
        read_word_text([written(tmp_path, "q q\n")], known=known)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the file is empty"),
        ("... !!\n", "there are no words in this text"),
        ("one two three\n", "no word occurs 5 times or more .the most frequent, 'one', 1 time.; .*min_count=1"),
        ("word " * 50, "only one word, 'word'"),
        ("word " * 50 + "other", "only 'word' occurs 5 times or more"),
    ],
)
def test_unusable_texts_are_errors(tmp_path, text, says):
    with pytest.raises(InputError, match=says):
        read_word_text([written(tmp_path, text)])


def test_the_hash_differs_for_other_texts(tmp_path):
    first, again, other = (
        read_word_text([written(tmp_path, text)], min_count=1).hash for text in ("a b\n", "a b\n", "b a\n")
    )
    assert first == again != other


def test_a_vocabulary_is_saved_and_cannot_be_a_tokenizer_of_language_models(tmp_path):
    save_tokenizer(Vocabulary(["a", "b"], "space", False), tmp_path / "tokenizer.json")
    found = load_tokenizer(tmp_path / "tokenizer.json")
    assert found.words == ["a", "b"] and found.encode("b A a").tolist() == [1, 0] and found.name(1) == "b"
    assert found.surcharge("a x x")[1] == 2
    with pytest.raises(InputError, match="has no end token"):
        _ = found.end


def test_the_error_for_a_missing_word_suggests_words_of_similar_spelling():
    vectors = WordVectors(["house", "mouse", "horse", "tree"], np.eye(4), "runs/x")
    with pytest.raises(InputError, match=r"runs/x: the word 'hourse' has no vector; did you mean .*house"):
        vectors.index_of("hourse")
    with pytest.raises(InputError, match="ask for a word of the text"):
        vectors.index_of("xylophone")
    assert vectors.find("HOUSE") == 0 and vectors.find("huose") is None
    assert vectors.suggest("moose") and vectors.suggest("") == []


def test_pairs_are_read_in_all_formats(tmp_path):
    expected = [WordSimilarity("old", "new", 1.58), WordSimilarity("tiger", "cat", 7.35)]
    for text in (
        "# a comment\nold\tnew\t1.58\n\ntiger\tcat\t7.35\n",
        "Word 1,Word 2,Human (mean)\nold,new,1.58\ntiger,cat,7.35\n",
        "word1\tword2\tPOS\tSimLex999\tconc(w1)\nold\tnew\tA\t1.58\t2\ntiger\tcat\tN\t7.35\t4\n",
        "old new 1.58\ntiger cat 7.35\n",
    ):
        assert read_similarities(written(tmp_path, text)) == expected
    (tmp_path / "pairs.gz").write_bytes(gzip.compress(b"old\tnew\t1.58\ntiger\tcat\t7.35\n"))
    assert read_similarities(tmp_path / "pairs.gz") == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a\tb\t1\na\tb\n", ":2: not two words and a number"),
        ("a\tb\t1\na\tb\tmany\n", ":2: not two words and a number"),
        ("# nothing\n", "there are no pairs"),
    ],
)
def test_invalid_pairs_are_errors(tmp_path, text, says):
    with pytest.raises(InputError, match=says):
        read_similarities(written(tmp_path, text))


def test_analogies_are_read_with_their_sections(tmp_path):
    sections = read_analogies(
        written(tmp_path, ": capitals\nAthens Greece Rome Italy\n: empty\n: past\ngo went see saw\n")
    )
    assert [(section.name, len(section.questions)) for section in sections] == [("capitals", 1), ("past", 1)]
    assert read_analogies(written(tmp_path, "a b c d\n"))[0].name == "all"
    for text, says in ((": x\na b c\n", ":2: 3 words, where a question has four"), (": x\n", "there are no questions")):
        with pytest.raises(InputError, match=says):
            read_analogies(written(tmp_path, text))
