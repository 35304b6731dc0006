"""Words read by their characters: every word has an id, also outside the vocabulary."""

import pytest

from ensue.data.tokenizers.registry import load_tokenizer, resolve_tokenizer, save_tokenizer
from ensue.data.tokenizers.spans import encode_words
from ensue.data.tokenizers.spelled_words import SpelledWordTokenizer, fit_spelled_words
from ensue.data.tokenizers.word import WordTokenizer

TEXT = [("the cat sat on the mat\nthe end", True, True)]


@pytest.fixture
def spelt():
    return fit_spelled_words(TEXT, vocabulary=5)


def test_ids_are_the_unknown_word_then_the_end_token_then_words_by_frequency(spelt):
    assert spelt.names == ["<unk>", "</s>", "the", "cat", "end"] and (spelt.unknown, spelt.end) == (0, 1)


def test_words_outside_the_vocabulary_are_numbered_by_occurrence(spelt):
    assert spelt.encode("the dog saw the cat\nthe dog").tolist() == [2, 5, 6, 2, 3, 1, 2, 5]
    assert [spelt.spelling(token) for token in (2, 5, 6, 1)] == [b"the", b"dog", b"saw", b""]
    assert spelt.decode(spelt.encode("the dog\nran")) == "the dog\nran"


def test_a_loaded_tokenizer_has_no_words_outside_its_vocabulary(spelt, tmp_path):
    spelt.encode("dog")
    save_tokenizer(spelt, tmp_path / "tokenizer.json")
    again = load_tokenizer(tmp_path)
    assert isinstance(again, SpelledWordTokenizer) and again.state() == spelt.state()
    assert again.encode("cow dog").tolist() == [5, 6]


def test_for_models_that_do_not_spell_it_is_a_word_tokenizer(spelt, tmp_path):
    save_tokenizer(spelt, tmp_path / "tokenizer.json")
    found = resolve_tokenizer(str(tmp_path / "tokenizer.json"))
    assert type(found) is WordTokenizer and found.encode("the dog").tolist() == [2, 0]


def test_words_outside_the_vocabulary_are_charged(spelt):
    bits, unknown = spelt.surcharge("the dog sat", True, True)
    assert unknown == 2 and bits > spelt.surcharge("the cat end", True, True)[0]


def test_a_word_of_a_sentence_is_one_token(spelt):
    ids, places = encode_words(spelt, ["the", "New York", ""])
    assert len(ids) == len(places) and places.tolist()[0] == 0 and places.tolist()[-1] == 2
