"""Where in a text each token stands, and which word of a sentence it belongs to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ensue.core.errors import InputError
from ensue.data.tokenizers.char import ByteTokenizer, CharTokenizer
from ensue.data.tokenizers.protocol import Tokenizer, encode_utf8
from ensue.data.tokenizers.word import WordTokenizer

_WORD = re.compile(r"\n|\S+")


@runtime_checkable
class SpanTokenizer(Protocol):
    """A tokenizer that knows itself where its tokens stand."""

    @property
    def spaced(self) -> bool:
        """Whether a word's first token holds the space before it."""

    def spans(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """What ``token_spans`` gives."""


def token_spans(tokenizer: Tokenizer, text: str) -> tuple[np.ndarray, np.ndarray]:
    """The tokens of a text (n,) and the characters each stands for, from and to: (n, 2).

    A token that is part of a character, as a byte can be, has the whole character's span; a space that
    belongs to a token is no part of its span.

    >>> ids, spans = token_spans(ByteTokenizer(), "né")
    >>> spans.tolist()
    [[0, 1], [1, 2], [1, 2]]
    """
    if isinstance(tokenizer, SpanTokenizer):
        return tokenizer.spans(text)
    ids = tokenizer.encode(text)
    if isinstance(tokenizer, WordTokenizer):
        spans = [found.span() for found in _WORD.finditer(text)]
        return ids, np.array(spans, dtype=np.int64).reshape(-1, 2)
    if not isinstance(tokenizer, ByteTokenizer | CharTokenizer):
        raise InputError(f"where the tokens of a {tokenizer.kind} tokenizer stand in a text is not known")
    places = np.arange(len(text))
    if isinstance(tokenizer, ByteTokenizer):
        places = np.repeat(places, [len(letter.encode()) for letter in text])
    return ids, np.stack([places, places + 1], axis=1)


def library_spans(inner: Any, text: str) -> tuple[np.ndarray, np.ndarray]:
    """``token_spans`` for a tokenizer of the ``tokenizers`` library."""
    encode_utf8(text)
    found = inner.encode(text, add_special_tokens=False)
    spans = np.array(found.offsets, dtype=np.int64).reshape(-1, 2)
    for span in spans:
        while span[0] < span[1] and text[span[0]] == " ":
            span[0] += 1
        while span[0] < span[1] and text[span[1] - 1] == " ":
            span[1] -= 1
    return np.array(found.ids, dtype=np.int32), spans


def encode_words(tokenizer: Tokenizer, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The tokens of a sentence that comes as words (n,), and the number of each token's word (n,).

    Each word is encoded on its own, and every one but the first with a space before it where spaces are part
    of the tokens, so that the tokens are those of the words in a row. No word is without tokens: one that
    comes to nothing is the unknown mark, or "?" where there is none.

    >>> ids, places = encode_words(ByteTokenizer(), ["an", "", "ox"])
    >>> bytes(ids.tolist()), places.tolist()
    (b'an? ox', [0, 0, 1, 2, 2, 2])
    """
    plain = isinstance(tokenizer, ByteTokenizer | CharTokenizer)
    spaced = plain or (isinstance(tokenizer, SpanTokenizer) and tokenizer.spaced)
    texts = [_written(word, spaced and number > 0, tokenizer.lines) for number, word in enumerate(words)]
    many = getattr(tokenizer, "encode_batch", None)
    parts: list[np.ndarray] = many(texts) if many is not None else [tokenizer.encode(text) for text in texts]
    parts = [part if len(part) else _stand_in(tokenizer) for part in parts]
    places = np.repeat(np.arange(len(parts)), np.array([len(part) for part in parts], dtype=np.int64))
    return np.concatenate([np.empty(0, dtype=np.int32), *parts]), places


def _written(word: str, space: bool, lines: bool) -> str:
    """A word as its tokenizer is to see it: no line end may come to be an end mark."""
    if lines:
        return " ".join(word.split())
    return f" {word}" if space and word and not word.startswith(" ") else word


def _stand_in(tokenizer: Tokenizer) -> np.ndarray:
    """The tokens of a word without any."""
    if tokenizer.unknown is None:
        return tokenizer.encode("?")
    return np.array([tokenizer.unknown], dtype=np.int32)
