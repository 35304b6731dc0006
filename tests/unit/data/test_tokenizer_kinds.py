from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import numpy as np
import pytest

from ensue.core.errors import InputError
from ensue.data.tokenizers import KINDS, Tokenizer, fit_tokenizer
from ensue.data.tokenizers.word import WordTokenizer, count_gaps, word_tokenizer

PTB = " the cat <unk> on N mats \n the <unk> sat \n" * 50


def fitted(kind: str, tmp_path: Path, text: str, **options: int) -> Tokenizer:
    file = tmp_path / "train.txt"
    file.write_bytes(text.encode())
    return fit_tokenizer(kind, [file], **options)


def words(tmp_path: Path, text: str, **options: int) -> WordTokenizer:
    tokenizer = fitted("word", tmp_path, text, **options)
    assert isinstance(tokenizer, WordTokenizer)
    return tokenizer


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_implements_the_protocol(kind: str, tmp_path: Path) -> None:
    text = "the cat sat on the mat\n" * 20
    tokenizer = fitted(kind, tmp_path, text)
    assert isinstance(tokenizer, Tokenizer)
    assert tokenizer.kind == kind
    ids = tokenizer.encode(text)
    assert ids.dtype == np.int32 and ids.min() >= 0 and ids.max() < tokenizer.size
    assert (tokenizer.end in ids) == tokenizer.lines
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode(ids.tolist()) == text
    names = [tokenizer.name(token) for token in range(tokenizer.size)]
    assert all(name and name.isprintable() and " " not in name for name in names)
    assert tokenizer.encode("").tolist() == []
    assert tokenizer.decode([]) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_half_a_surrogate_pair_is_an_error_for_people(kind: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="surrogate"):
        fitted(kind, tmp_path, "some text").encode("a\udc80b")


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram"])
def test_the_name_of_the_end_token_in_a_text_is_plain_text(kind: str, tmp_path: Path) -> None:
    tokenizer = fitted(kind, tmp_path, "<|end|> " * 500)
    ids = tokenizer.encode("a<|end|>b")
    assert tokenizer.end not in ids
    assert tokenizer.decode(ids) == "a<|end|>b"
    assert tokenizer.decode([tokenizer.end, *ids, tokenizer.end]) == "a<|end|>b"


@pytest.mark.parametrize(("kind", "least"), [("bpe", 257), ("wordpiece", 513), ("unigram", 257)])
def test_the_vocabulary_must_have_every_byte(kind: str, least: int, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"at least {least}"):
        fitted(kind, tmp_path, "text", vocabulary=least - 1)
    assert fitted(kind, tmp_path, "some text\n" * 9, vocabulary=least).size == least


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram"])
def test_the_vocabulary_is_filled_and_shortens_the_text(kind: str, tmp_path: Path) -> None:
    text = Path(argparse.__file__).read_text(encoding="utf-8")
    tokenizer = fitted(kind, tmp_path, text, vocabulary=900)
    assert tokenizer.size == 900
    assert len(tokenizer.encode(text)) < len(text) / 2


def test_very_long_runs_are_not_unknown_for_wordpiece(tmp_path: Path) -> None:
    tokenizer = fitted("wordpiece", tmp_path, "abc " * 100)
    text = "x" * 5000 + "#" * 500 + " ##abc ###abc"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.end not in tokenizer.encode(text)


def test_bytes_are_their_own_ids(tmp_path: Path) -> None:
    tokenizer = fitted("byte", tmp_path, "x")
    assert tokenizer.encode("é").tolist() == [195, 169]
    assert tokenizer.decode([104, 195]) == "h�"
    assert (tokenizer.end, tokenizer.size, tokenizer.unknown) == (256, 257, None)
    assert [tokenizer.name(token) for token in (32, 10, 195, 256)] == ["␣", "\\n", "\\xc3", "<|end|>"]


def test_characters_are_ordered_by_frequency_and_unseen_ones_are_charged(tmp_path: Path) -> None:
    tokenizer = fitted("char", tmp_path, "hello")
    assert [tokenizer.name(token) for token in range(6)] == ["<|end|>", "<unk>", "l", "e", "h", "o"]
    assert tokenizer.encode("hzl").tolist() == [4, 1, 2]
    assert tokenizer.surcharge("hello") == (0.0, 0)
    bits, unknown = tokenizer.surcharge("hexxo🎈")
    assert unknown == 3 and 24 < bits < 100
    rare = fitted("char", tmp_path, "aaabbc", min_count=2)
    assert rare.size == 4 and rare.surcharge("c")[0] < rare.surcharge("d")[0]


def test_words_are_ordered_by_frequency_then_alphabetically(tmp_path: Path) -> None:
    tokenizer = words(tmp_path, "b a c c\nd c b\n", vocabulary=5)
    assert [tokenizer.name(token) for token in range(5)] == ["</s>", "<unk>", "c", "b", "a"]
    assert tokenizer.encode("a d\n\nb").tolist() == [4, 1, 0, 0, 3]
    assert tokenizer.decode([4, 1, 0, 0, 3]) == "a <unk>\n\nb"


def test_rare_words_are_unknown_by_default_in_large_plain_texts_only(tmp_path: Path) -> None:
    plain = "common words here " * 5000
    assert words(tmp_path, plain + "once\n").size == 5
    assert words(tmp_path, plain + "once <unk>\n").size == 6
    assert words(tmp_path, plain + "once\n", min_count=1).size == 6
    assert words(tmp_path, "a small text\n").size == 5


def test_penn_treebank_style_text_costs_nothing_beyond_its_tokens(tmp_path: Path) -> None:
    tokenizer = words(tmp_path, PTB)
    ids = tokenizer.encode(" the <unk> cat \n")
    assert ids.tolist()[1] == tokenizer.unknown and ids.tolist()[-1] == tokenizer.end
    bits, unknown = tokenizer.surcharge(PTB)
    assert unknown == 100
    assert bits < 30  # some 700 gaps and 100 literal marks
    strange, _ = tokenizer.surcharge(" the zebra cat \n")
    assert strange > 20


def test_a_given_vocabulary_keeps_its_ids() -> None:
    tokenizer = word_tokenizer(["<unk>", "the", "</s>", "cat"])
    assert isinstance(tokenizer, Tokenizer)
    assert (tokenizer.end, tokenizer.unknown, tokenizer.size) == (2, 0, 4)
    assert tokenizer.encode("the cat \0 <unk>\n").tolist() == [1, 3, 0, 0, 2]
    assert tokenizer.encode("the dog <unk>\n").tolist() == [1, 0, 0, 2]
    assert tokenizer.decode([1, 0, 2, 3]) == "the <unk>\ncat"
    assert tokenizer.surcharge("the cat\n")[0] < 0.02
    assert tokenizer.surcharge("the <unk>\n")[0] < 1.1
    assert tokenizer.surcharge("the dog\n")[0] > 10
    assert WordTokenizer.restore(json.loads(json.dumps(tokenizer.state()))).state() == tokenizer.state()
    with pytest.raises(InputError, match="needs the end token"):
        word_tokenizer(["a"])


def test_a_vocabulary_without_unknown_token_names_the_missing_word() -> None:
    closed = word_tokenizer(["</s>", "the"])
    assert closed.encode("the\n").tolist() == [1, 0]
    with pytest.raises(InputError, match="the word 'cat' is not in the vocabulary"):
        closed.encode("the cat\n")


def test_zero_bytes_and_names_of_end_tokens_in_a_text_are_words(tmp_path: Path) -> None:
    text = "a \0 </s> b\n" * 3
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "a \\u0000 </s> b\\n"}\n')
    tokenizer = fit_tokenizer("word", [file])
    ids = tokenizer.encode(text)
    assert (ids == tokenizer.end).sum() == 3
    assert (ids == 1).sum() == 0
    assert tokenizer.decode(ids) == text


def test_irregular_white_space_is_charged(tmp_path: Path) -> None:
    tokenizer = words(tmp_path, "one two three\n" * 1000)
    regular = tokenizer.surcharge("one two three\n")[0]
    assert regular < 0.02
    for text in (
        "one  two three\n",
        " one two three\n",
        "one two three \n",
        "one two\u2028three\n",
        "one two three",
    ):
        assert 8 < tokenizer.surcharge(text)[0] - regular < 100


def test_regular_carriage_returns_cost_almost_nothing(tmp_path: Path) -> None:
    tokenizer = words(tmp_path, "one two\r\nthree\r\n" * 500)
    assert tokenizer.surcharge("one two\r\nthree\r\n")[0] < 0.05


@pytest.mark.parametrize(
    ("text", "opens", "closes", "expected"),
    [
        ("a b\n", True, True, {"before": [""], "between": [" "], "after": [""]}),
        ("a", True, True, {"before": [""], "after": ["\n"]}),
        (" a\t\n\n  \nb", True, False, {"before": [" ", ""], "after": ["\t"], "blank": ["", "  "]}),
        ("\n", True, True, {"blank": [""]}),
        ("  ", True, True, {"blank": ["  \n"]}),
        ("a\n ", True, True, {"before": [""], "after": [""], "blank": [" \n"]}),
        (" b", False, True, {"between": [" "], "after": ["\n"]}),
        (" \nb\n", False, True, {"after": [" ", ""], "before": [""]}),
        ("\n", False, True, {"after": [""]}),
        ("a ", True, False, {"before": [""], "between": [" "]}),
    ],
)
def test_gaps_and_tokens_determine_the_text(
    text: str, opens: bool, closes: bool, expected: dict[str, list[str]]
) -> None:
    found = {kind: sorted(gaps.elements()) for kind, gaps in count_gaps(text, opens, closes).items() if gaps}
    assert found == {kind: sorted(gaps) for kind, gaps in expected.items()}


def test_surcharge_of_pieces_adds_up(tmp_path: Path) -> None:
    tokenizer = words(tmp_path, PTB)
    text = " the  cat sat\n\n zebra\ton <unk>\nthe"
    whole = tokenizer.surcharge(text)
    cut = text.index("\n") + 1
    lines = [tokenizer.surcharge(text[:cut], True, False), tokenizer.surcharge(text[cut:])]
    space = text.index(" sat")
    middle = [tokenizer.surcharge(text[:space], True, False), tokenizer.surcharge(text[space:], False, True)]
    for parts in (lines, middle):
        assert math.isclose(parts[0][0] + parts[1][0], whole[0], rel_tol=1e-12)
        assert parts[0][1] + parts[1][1] == whole[1]


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram"])
def test_a_vocabulary_is_never_larger_than_asked_for(kind: str, tmp_path: Path) -> None:
    text = "the cat sat on the mat, unbelievable cats and dogs ran\n" * 20
    for size in (513, 520, 540) if kind == "wordpiece" else (257, 260, 280):
        tokenizer = fitted(kind, tmp_path, text, vocabulary=size)
        assert tokenizer.size <= size and tokenizer.decode(tokenizer.encode("ж\0 cat")) == "ж\0 cat"
