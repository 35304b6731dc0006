from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_files import pairs_of, sentences

from ensue.core.errors import InputError
from ensue.data.pair_tokens import encode_pairs
from ensue.data.pairs import Pairs
from ensue.data.tokenizers.char import ByteTokenizer, fit_chars
from ensue.data.tokenizers.word import fit_words, word_tokenizer


@settings(max_examples=60, deadline=None)
@given(both=st.lists(st.tuples(sentences, sentences), min_size=1, max_size=8))
def test_tokens_decode_to_the_sentences_and_end_in_end_tokens(both: list[tuple[str, str]]) -> None:
    source, target = ByteTokenizer(), fit_chars(one for _, one in both)
    tokens = encode_pairs(pairs_of(*both), source, target, most=100)
    assert len(tokens) == len(both) and tokens.unknown == (0, 0) and tokens.surcharge == 0
    for place, (one, other) in enumerate(both):
        ids, said = tokens.pair(place)
        assert ids.dtype == said.dtype == np.int32
        assert ids[-1] == source.end and source.decode(ids) == one
        assert said[-1] == target.end and target.decode(said) == other
    assert tokens.source_at[0] == 0 and tokens.source_at[-1] == len(tokens.source)
    assert tokens.bytes == len("".join(f"{other}\n" for _, other in both).encode())
    assert tokens.words == sum(len(other.split()) + 1 for _, other in both)


def test_long_pairs_are_left_out_with_their_lines() -> None:
    pairs = Pairs(["a", "bbbb", "c", "d"], ["A", "B", "CCCC", "D"], [3, 5, 8, 9], "")
    notes: list[str] = []
    tokens = encode_pairs(pairs, ByteTokenizer(), ByteTokenizer(), most=4, notes=notes)
    assert tokens.lines.tolist() == [3, 9] and tokens.bytes == 4
    assert notes == ["left out 2 pairs with more than 4 tokens on a side (lines 5, 8)"]
    assert len(encode_pairs(pairs, ByteTokenizer(), ByteTokenizer(), most=5, notes=notes)) == 4 and len(notes) == 1
    with pytest.raises(InputError, match=r"4 pairs with more than 1 tokens .*lines 3, 5, 8, 9"):
        encode_pairs(pairs, ByteTokenizer(), ByteTokenizer(), most=1)


def test_unknown_words_are_counted_on_each_side_and_charged_on_the_target() -> None:
    known = fit_words([("the cat sat\nthe dog sat\n", True, True)])
    tokens = encode_pairs(pairs_of(("the cow ran", "the dog"), ("cat", "the emu")), known, known, most=9)
    assert tokens.unknown == (2, 1)
    assert tokens.target.tolist()[-2:] == [known.unknown, known.end]
    assert tokens.surcharge == pytest.approx(known.surcharge("the dog\nthe emu\n")[0])
    assert tokens.surcharge > encode_pairs(pairs_of(("cat", "the dog")), known, known, most=9).surcharge


def test_an_error_of_the_tokenizer_names_the_line() -> None:
    strict = word_tokenizer(["a", "</s>"])
    with pytest.raises(InputError, match="line 2: the word 'b' is not in the vocabulary"):
        encode_pairs(pairs_of(("a", "a"), ("a", "b")), strict, strict, most=9)


def test_the_hash_depends_on_every_token_and_boundary() -> None:
    def hashed(*both: tuple[str, str]) -> str:
        return encode_pairs(pairs_of(*both), ByteTokenizer(), ByteTokenizer(), most=9).hash

    hashes = {hashed(("ab", "c")), hashed(("a", "bc")), hashed(("ab", "d")), hashed(("ab", "c"), ("ab", "c"))}
    assert len(hashes) == 4 and hashed(("ab", "c")) in hashes
