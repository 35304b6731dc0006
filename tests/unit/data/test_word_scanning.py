"""The compiled loops over words give the results of plain Python."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensue.core.errors import InputError
from ensue.data.tokenizers import word, word_table
from ensue.data.tokenizers.word import WordTokenizer, count_gaps, fit_words, word_tokenizer
from ensue.data.tokenizers.word_table import WordTable

TEXTS = st.text(st.sampled_from("ab é日\n\t\r\x1c\x85\xa0\u1680\u2003\u2028\u202f\u205f\u3000\u200b\0 "), max_size=40)


def forms(tokenizer: WordTokenizer, text: str) -> list[tuple[list[int], tuple[float, int]]]:
    """Ids and surcharge by the plain loops and by the compiled ones."""
    found = []
    for long in (1 << 30, 0):
        word.MIN_COMPILED_CHARS = long
        found.append((tokenizer.encode(text).tolist(), tokenizer.surcharge(text, True, False)))
    return found


@settings(max_examples=150, deadline=None)
@given(TEXTS, TEXTS)
def test_long_texts_give_the_tokens_of_short_ones(known: str, text: str) -> None:
    before = word.MIN_COMPILED_CHARS
    try:
        plain, compiled = forms(fit_words([(known, True, True)]), text)
    finally:
        word.MIN_COMPILED_CHARS = before
    assert plain[0] == compiled[0]
    assert plain[1] == pytest.approx(compiled[1])


@settings(max_examples=100, deadline=None)
@given(TEXTS)
def test_words_are_counted_as_by_split(text: str) -> None:
    tokenizer = fit_words([(text, True, True)], None, 1)
    assert sorted(tokenizer.names[2:]) == sorted(set(text.split()))
    kinds = count_gaps(text, True, True)
    assert {kind: tokenizer.gaps[kind].known for kind in kinds} == {kind: dict(gaps) for kind, gaps in kinds.items()}


def test_many_words_in_many_parts_keep_their_ids() -> None:
    words = [f"w{number}" for number in range(20_000)]
    parts = [(" ".join(words[at:]) + "\n", True, True) for at in range(0, 20_000, 5_000)]
    tokenizer = fit_words(parts, None, 1)
    assert tokenizer.size == 20_002
    text = parts[0][0]
    assert len(text) >= word.MIN_COMPILED_CHARS
    assert [tokenizer.names[token] for token in tokenizer.encode(text)[:-1]] == words


def test_the_error_without_an_unknown_token_names_the_word() -> None:
    with pytest.raises(InputError, match="the word 'dog' is not in the vocabulary"):
        word_tokenizer(["</s>", "cat"]).encode("cat dog " * word.MIN_COMPILED_CHARS)


@settings(max_examples=100, deadline=None)
@given(st.text(st.sampled_from("ab é\n\t\u2003 "), max_size=60), st.integers(1, 12))
def test_slices_join_to_the_scan_of_the_whole_text(text: str, size: int) -> None:
    sliced, whole = WordTable(["a", "ab"]), WordTable(["a", "ab"])
    before = word_table.MIN_THREAD_BYTES, word_table.COUNT_SLICE_BYTES
    try:
        word_table.MIN_THREAD_BYTES = word_table.COUNT_SLICE_BYTES = size
        by_parts, counted = sliced.scan(text, 7), sliced.count(text)
    finally:
        word_table.MIN_THREAD_BYTES, word_table.COUNT_SLICE_BYTES = before
    for found, plain in ((by_parts, whole.scan(text, 7)), (counted, whole.count(text))):
        assert found.ids.tolist() == plain.ids.tolist()
        assert found[1:] == plain[1:]
    assert sliced.words() == whole.words()
    assert sliced.counts.tolist() == whole.counts.tolist()


def test_words_counted_in_several_tables_add_up() -> None:
    texts = [f"the w{number % 700} w{number % 13}\n" * 40 for number in range(900)]
    table = WordTable()
    facts = [fact for fact, _ in word_table.count_words_parallel(((text, at) for at, text in enumerate(texts)), table)]
    assert facts == list(range(900))
    expected = Counter(" ".join(texts).split())
    words, counts = word_table.words_by_frequency(table)
    assert dict(zip(words, counts, strict=True)) == expected
    assert words == sorted(expected, key=lambda word: (-expected[word], word))
