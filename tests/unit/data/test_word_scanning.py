"""The compiled loops over words find what the plain ones find."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensue.core.errors import InputError
from ensue.data.tokenizers import word
from ensue.data.tokenizers.word import WordTokenizer, count_gaps, fit_words, word_tokenizer

TEXTS = st.text(st.sampled_from("ab é日\n\t\r\x1c\x85\xa0\u1680\u2003\u2028\u202f\u205f\u3000\u200b\0 "), max_size=40)


def forms(tokenizer: WordTokenizer, text: str) -> list[tuple[list[int], tuple[float, int]]]:
    """Ids and surcharge by the plain loops and by the compiled ones."""
    found = []
    for long in (1 << 30, 0):
        word.LONG = long
        found.append((tokenizer.encode(text).tolist(), tokenizer.surcharge(text, True, False)))
    return found


@settings(max_examples=150, deadline=None)
@given(TEXTS, TEXTS)
def test_long_texts_are_read_as_short_ones(known: str, text: str) -> None:
    before = word.LONG
    try:
        plain, compiled = forms(fit_words([(known, True, True)]), text)
    finally:
        word.LONG = before
    assert plain[0] == compiled[0]
    assert plain[1] == pytest.approx(compiled[1])


@settings(max_examples=100, deadline=None)
@given(TEXTS)
def test_words_are_counted_as_split_has_them(text: str) -> None:
    tokenizer = fit_words([(text, True, True)], None, 1)
    assert sorted(tokenizer.names[2:]) == sorted(set(text.split()))
    kinds = count_gaps(text, True, True)
    assert {kind: tokenizer.gaps[kind].known for kind in kinds} == {kind: dict(gaps) for kind, gaps in kinds.items()}


def test_many_words_in_many_parts_keep_their_numbers() -> None:
    words = [f"w{number}" for number in range(20_000)]
    parts = [(" ".join(words[at:]) + "\n", True, True) for at in range(0, 20_000, 5_000)]
    tokenizer = fit_words(parts, None, 1)
    assert tokenizer.size == 20_002
    text = parts[0][0]
    assert len(text) >= word.LONG
    assert [tokenizer.names[token] for token in tokenizer.encode(text)[:-1]] == words


def test_a_word_without_a_number_is_named_where_nothing_is_unknown() -> None:
    with pytest.raises(InputError, match="the word 'dog' is not in the vocabulary"):
        word_tokenizer(["</s>", "cat"]).encode("cat dog " * word.LONG)
