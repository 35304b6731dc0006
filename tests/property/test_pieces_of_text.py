"""Text in pieces of any size has the tokens of the whole text, for every kind of tokenizer."""

from __future__ import annotations

from functools import cache
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ensue.data import text_pieces
from ensue.data.encoding import EncodedTexts, bundle_parts, encode_parts
from ensue.data.token_files import TokenCounts
from ensue.data.tokenizers import KINDS, Tokenizer
from ensue.data.tokenizers.registry import fit_tokenizer_to_parts
from ensue.data.tokenizers.subword import SubwordTokenizer

TRAINING = (
    "The quick brown fox; ## ##ing #hash 12345\n  def f(x):\r\n\treturn x  # naïve café\u00a0\u2028 it's\n\n" * 40
)
PIECES = ["a", "word", "it's", " ", " ", "  ", "\n", "\n", "\n\n", "\r\n", "\t", "\u00a0", "\u2028", "\u3000", "\x85"]
PIECES += ["\x1c", "#", "##", "12", "é", "слово", "五六", "。", "\u200b", "\ufeff", "!?", "🎈", "e\u0301", "\u180e"]
texts = st.lists(st.sampled_from(PIECES), max_size=120).map("".join) | st.text(max_size=60)


@cache
def tokenizer(kind: str) -> Tokenizer:
    sizes = {"bpe": 400, "wordpiece": 650, "unigram": 400}
    return fit_tokenizer_to_parts(kind, [(TRAINING, True, True)], vocabulary=sizes.get(kind))


def whole_ids(made: Tokenizer, text: str) -> list[int]:
    if isinstance(made, SubwordTokenizer):  # what the library itself makes of it
        return list(made._inner.encode(text, add_special_tokens=False).ids)
    return made.encode(text).tolist()


def in_pieces(made: Tokenizer, text: str, size: int, bundle: int) -> tuple[list[int], TokenCounts]:
    with patch.object(text_pieces, "PIECE_BYTES", size), patch.object(text_pieces, "MAX_GROWTH", 1 << 20):
        found: list[EncodedTexts] = []
        tally = TokenCounts()
        for parts in bundle_parts(text_pieces.as_parts(text_pieces.cut_text(text)), bundle):
            found.append(encode_parts(made, parts))
            tally = tally.plus(found[-1])
    return np.concatenate([one.tokens for one in found]).tolist(), tally


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=120, deadline=None)
@given(text=texts, size=st.integers(1, 100), bundle=st.integers(1, 300))
@example(text="one\n\ntwo\n\n\nthree  four\n", size=5, bundle=10)
@example(text="слово и\nдело 五六。\n七八 \u2028\nx\n\u00a0y z", size=3, bundle=1)
def test_pieces_of_any_size_have_the_tokens_of_the_whole(kind: str, text: str, size: int, bundle: int) -> None:
    made = tokenizer(kind)
    ids, tally = in_pieces(made, text, size, bundle)
    closed = made.lines and text.endswith("\n")
    assert ids == [*whole_ids(made, text), *([] if closed else [made.end])]
    bits, unknown = made.surcharge(text)
    assert tally.count == len(ids) and tally.bytes == len(text.encode()) and tally.unknown == unknown
    assert tally.words == len(text.split()) + text.count("\n") + (not text.endswith("\n"))
    assert tally.surcharge == pytest.approx(bits, rel=1e-9, abs=1e-9)
