"""Special tokens around texts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ensue.core.errors import InputError
from ensue.data.tokenizers.char import ByteTokenizer, fit_chars
from ensue.data.tokenizers.special_tokens import SpecialTokens, add_special_tokens, special_tokens_of

BERT = SpecialTokens(start=1, separator=2, end=2, double_separator=False, mask=4, pad=0)
ROBERTA = SpecialTokens(start=1, separator=2, end=2, double_separator=True, mask=4, pad=0)


def test_an_end_token_alone_is_used_at_all_three_positions() -> None:
    tokenizer = fit_chars(["hello"])
    assert special_tokens_of(tokenizer) == SpecialTokens(
        start=0, separator=0, end=0, double_separator=False, mask=None, pad=0
    )
    ids, segments = add_special_tokens(special_tokens_of(ByteTokenizer()), b"ab", b"c")
    assert ids.tolist() == [256, 97, 98, 256, 99, 256] and segments.tolist() == [0, 0, 0, 0, 1, 1]


def test_special_tokens_surround_one_text_and_two() -> None:
    ids, segments = add_special_tokens(BERT, np.array([7, 8], dtype=np.int64))
    assert ids.tolist() == [1, 7, 8, 2] and segments.tolist() == [0] * 4
    assert ids.dtype == segments.dtype == np.int32
    ids, segments = add_special_tokens(ROBERTA, [7, 8], [9])
    assert ids.tolist() == [1, 7, 8, 2, 2, 9, 2] and segments.tolist() == [0] * 7
    ids, segments = add_special_tokens(BERT, [], [])
    assert ids.tolist() == [1, 2, 2] and segments.tolist() == [0, 0, 1]


def cut_one_at_a_time(a: int, b: int, room: int) -> tuple[int, int]:
    """Longest-first truncation as it is told; of two equal texts the one that was shorter is cut."""
    first_was_longer = a > b
    while a + b > room:
        if a > b or (a == b and not first_was_longer):
            a -= 1
        else:
            b -= 1
    return a, b


@pytest.mark.parametrize("marks", [BERT, ROBERTA])
def test_the_longer_text_is_truncated_until_both_fit(marks: SpecialTokens) -> None:
    count = 4 if marks.double_separator else 3
    for a, b, longest in itertools.product(range(7), range(7), range(count, 16)):
        ids, segments = add_special_tokens(marks, range(10, 10 + a), range(20, 20 + b), longest)
        assert len(ids) == len(segments) == min(longest, a + b + count)
        left, right = cut_one_at_a_time(a, b, longest - count)
        texts = [token for token in ids.tolist() if token >= 10]
        assert texts == [*range(10, 10 + left), *range(20, 20 + right)]


def test_one_text_is_truncated_at_its_end() -> None:
    assert add_special_tokens(BERT, range(10, 20), longest=5)[0].tolist() == [1, 10, 11, 12, 2]
    assert add_special_tokens(BERT, range(10, 12), longest=5)[0].tolist() == [1, 10, 11, 2]
    assert add_special_tokens(BERT, range(10, 12), longest=2)[0].tolist() == [1, 2]


def test_too_short_a_row_for_the_special_tokens_is_an_error() -> None:
    with pytest.raises(InputError, match="2 tokens leave no room beside 3 special tokens"):
        add_special_tokens(BERT, [7], [8], longest=2)
    with pytest.raises(InputError, match="choose more than 2"):
        add_special_tokens(BERT, [7], longest=1)
