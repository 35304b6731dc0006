from __future__ import annotations

import math
import re
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ensue.data.spelling import SpellingModel
from ensue.data.tokenizers import Tokenizer, fit_tokenizer
from ensue.data.tokenizers.subword import SubwordTokenizer
from ensue.data.tokenizers.word import count_gaps

TRAINING = (
    "The quick brown fox jumps over the lazy dog; ## ##ing #hash 12345\n"
    "  def f(x):\r\n\treturn x + 1  # naïve café\u00a0\u2028 <|end|> it's\n\n"
) * 40

ODD = ["##", "#", "<|end|>", "▁", "Ġ", "'s", "é"]
WHITE = [" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u2028", "\x85", "\x1c", "\0"]
texts = st.text() | st.lists(st.sampled_from(ODD + WHITE) | st.text(max_size=3), max_size=30).map("".join)


@cache
def tokenizer(kind: str) -> Tokenizer:
    with TemporaryDirectory() as folder:
        file = Path(folder, "train.txt")
        file.write_bytes(TRAINING.encode())
        sizes = {"bpe": 400, "wordpiece": 650, "unigram": 400}
        return fit_tokenizer(kind, [file], vocabulary=sizes.get(kind))


@pytest.mark.parametrize("kind", ["byte", "bpe", "wordpiece", "unigram"])
@settings(max_examples=150, deadline=None)
@given(text=texts)
@example(text="##ing # ## #### " + "a" * 200)
@example(text="\ufeff<|end|>\u3000\u200b\U0010ffff")
def test_nothing_is_lost(kind: str, text: str) -> None:
    made = tokenizer(kind)
    ids = made.encode(text)
    assert made.decode(ids) == text
    assert made.end not in ids
    assert made.surcharge(text) == (0.0, 0)


ascii_texts = st.text(st.characters(max_codepoint=127)) | st.text(st.sampled_from("a1 \n\t'#!s\x1c\x0b"))


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram"])
@settings(max_examples=200, deadline=None)
@given(text=ascii_texts | texts)
@example(text="it's I'll a'b !'s  'ss \x1c\x1d \x85  # ##a ' #'s\n\n x\n \n")
@example(text="plain words here\n" * 400 + "é\n" + "and here\n" * 1000 + "\u2028" * 5)
def test_cached_words_are_encoded_as_the_library_does(kind: str, text: str) -> None:
    made = tokenizer(kind)
    assert isinstance(made, SubwordTokenizer)
    assert made._cache._words is not None
    assert made.encode(text).tolist() == made._inner.encode(text, add_special_tokens=False).ids


@settings(max_examples=150, deadline=None)
@given(text=texts)
def test_characters_are_kept_or_counted_as_unknown(text: str) -> None:
    made = tokenizer("char")
    ids = made.encode(text)
    bits, unknown = made.surcharge(text)
    assert unknown == (ids == made.unknown).sum()
    assert (bits > 0) == (unknown > 0)
    assert all(wanted in (letter, "�") for wanted, letter in zip(made.decode(ids), text, strict=True))


@settings(max_examples=150, deadline=None)
@given(text=texts)
def test_words_and_gaps_tell_the_whole_text(text: str) -> None:
    made = tokenizer("word")
    ids = made.encode(text)
    bits, unknown = made.surcharge(text)
    assert unknown == (ids == made.unknown).sum()
    assert math.isfinite(bits) and bits >= 0
    words = [re.findall(r"\S+", line) for line in text.split("\n")]
    assert len(ids) == sum(map(len, words)) + text.count("\n")
    shown = [[word if made.encode(word)[0] != made.unknown else "<unk>" for word in line] for line in words]
    assert made.decode(ids) == "\n".join(" ".join(line) for line in shown)
    gaps = [gap for counts in count_gaps(text, True, True).values() for gap in counts.elements()]
    closing = bool(text) and not text.endswith("\n")  # one more newline says that there was none
    white = sum(map(len, gaps)) + text.count("\n") - closing
    assert white == sum(letter.isspace() for letter in text)


counted = st.dictionaries(st.text(max_size=6), st.integers(1, 9), max_size=8)


@settings(max_examples=100, deadline=None)
@given(strings=counted, context=st.binary(max_size=5))
def test_spelling_distributions_sum_to_one(strings: dict[str, int], context: bytes) -> None:
    model = SpellingModel.fit(strings)
    gram = 257 * (1 + 258 + 258**2)
    for symbol in context:
        gram = (gram * 258 + symbol) % 258**3
    total = sum(model._probability(gram * 258 + symbol) for symbol in range(257))
    assert math.isclose(total, 1, rel_tol=1e-9)
