"""Spans of tokens in a text, and the words they belong to."""

from __future__ import annotations

import random
from functools import cache

import numpy as np
import pytest

from ensue.core.errors import InputError
from ensue.data.tokenizers import KINDS, Tokenizer
from ensue.data.tokenizers.encoder_fitting import fit_encoder_tokenizer
from ensue.data.tokenizers.registry import fit_tokenizer_to_parts
from ensue.data.tokenizers.spans import encode_words, token_spans
from ensue.data.tokenizers.word import word_tokenizer

TEXT = "The cat sat  on a mat.\nNaïve café's 🎈 #1 cats, unbelievable\t!\n"
MARKED = ("marked wordpiece", "marked bpe", "marked unigram", "cased wordpiece")
ALL = (*KINDS, *MARKED)


@cache
def made(name: str) -> Tokenizer:
    case, _, kind = name.rpartition(" ")
    if case:
        return fit_encoder_tokenizer(kind, [TEXT] * 20, 300, lowercase=case == "marked")
    return fit_tokenizer_to_parts(kind, [(TEXT * 20, True, True)], vocabulary=None if kind in ("char", "word") else 600)


@pytest.mark.parametrize("name", ALL)
def test_spans_are_those_of_the_tokens_in_the_text(name: str) -> None:
    tokenizer = made(name)
    chance = random.Random(2)
    odd = ["cat", " ", "\n", "é", "e\u0301", "🎈", "Ж", "'s", "#", "\u2003", "\t", "\u200b", "T"]
    for text in ("", TEXT, *("".join(chance.choices(odd, k=20)) for _ in range(60))):
        ids, spans = token_spans(tokenizer, text)
        assert ids.dtype == np.int32 and ids.tolist() == tokenizer.encode(text).tolist()
        assert spans.shape == (len(ids), 2) and np.issubdtype(spans.dtype, np.integer)
        assert ((spans >= 0) & (spans <= len(text))).all() and (spans[:, 0] <= spans[:, 1]).all()
        assert (np.diff(spans, axis=0) >= 0).all()
        if name not in ("byte", "char"):
            assert not any(text[start:end] != text[start:end].strip(" ") for start, end in spans)


@pytest.mark.parametrize("name", ALL)
def test_spans_cover_every_character(name: str) -> None:
    _, spans = token_spans(made(name), TEXT)
    covered = {place for start, end in spans for place in range(start, end)}
    assert covered >= {place for place, letter in enumerate(TEXT) if not letter.isspace()}


def test_spans_are_characters_and_not_bytes() -> None:
    for name in ("bpe", "marked bpe"):
        _, spans = token_spans(made(name), "🎈 cat")
        assert spans[-1].tolist() == [2, 5] and spans[0].tolist() == [0, 1]
    assert token_spans(made("byte"), "a🎈")[1].tolist() == [[0, 1]] + [[1, 2]] * 4
    assert token_spans(made("char"), "a🎈")[1].tolist() == [[0, 1], [1, 2]]
    assert token_spans(made("word"), " cat\nsat ")[1].tolist() == [[1, 4], [4, 5], [5, 8]]
    assert token_spans(made("marked wordpiece"), "x CAFÉ")[1][-1].tolist()[1] == 6


@pytest.mark.parametrize("name", ALL)
def test_every_word_has_tokens_and_none_is_an_end_token(name: str) -> None:
    tokenizer = made(name)
    words = ["The", "", "cats", " ", "\u200b", "sat\n", "New York", "Ж", "mat", ".", ""]
    ids, places = encode_words(tokenizer, words)
    assert ids.dtype == np.int32 and len(ids) == len(places)
    assert sorted(set(places.tolist())) == list(range(len(words))) and (np.diff(places) >= 0).all()
    assert tokenizer.end not in ids
    empty = ids[places == 1].tolist()
    assert empty == ([tokenizer.unknown] if tokenizer.unknown is not None else tokenizer.encode("?").tolist())
    nothing = encode_words(tokenizer, [])
    assert nothing[0].tolist() == nothing[1].tolist() == []


@pytest.mark.parametrize("name", ALL)
def test_tokens_of_words_equal_those_of_the_text(name: str) -> None:
    tokenizer = made(name)
    words = ["The", "cat", "'s", "on", "a", "mat", ",", "unbelievable"]
    ids, places = encode_words(tokenizer, words)
    assert ids.tolist() == tokenizer.encode(" ".join(words)).tolist()
    assert tokenizer.decode(ids[places == 1]).strip() == "cat"


def test_an_unknown_word_without_an_unknown_token_is_an_error() -> None:
    tokenizer = word_tokenizer(["</s>", "cat"])
    assert encode_words(tokenizer, ["cat"])[0].tolist() == [1]
    with pytest.raises(InputError, match="not in the vocabulary"):
        encode_words(tokenizer, ["dog"])
