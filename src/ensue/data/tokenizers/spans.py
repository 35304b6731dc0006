"""The character span of each token, and the word of a sentence it belongs to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ensue.core.errors import InputError
from ensue.data.tokenizers.batch_encoding import encode_texts
from ensue.data.tokenizers.char import ByteTokenizer, CharTokenizer
from ensue.data.tokenizers.protocol import Tokenizer, encode_utf8
from ensue.data.tokenizers.word import WordTokenizer

_WORD = re.compile(r"\n|\S+")


@runtime_checkable
class SpanTokenizer(Protocol):
    """A tokenizer that returns the spans of its tokens."""

    @property
    def spaced(self) -> bool:
        """True if a word's first token includes the space before it."""

    def spans(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the same as ``token_spans``."""


def token_spans(tokenizer: Tokenizer, text: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens of a text (n,) and the start and end of each in characters (n, 2).

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
    """Encode a sentence given as words; return the tokens (n,) and the index of each token's word (n,).

    Each word is encoded separately, with a space before it if spaces are part of tokens, so that the tokens equal those
    of the joined words. A word without tokens becomes the unknown token, or "?" if there is none.

    >>> ids, places = encode_words(ByteTokenizer(), ["an", "", "ox"])
    >>> bytes(ids.tolist()), places.tolist()
    (b'an? ox', [0, 0, 1, 2, 2, 2])
    """
    plain = isinstance(tokenizer, ByteTokenizer | CharTokenizer)
    spaced = plain or (isinstance(tokenizer, SpanTokenizer) and tokenizer.spaced)
    texts = [_written(word, spaced and number > 0, tokenizer.lines) for number, word in enumerate(words)]
    parts = [part if len(part) else _stand_in(tokenizer) for part in encode_texts(tokenizer, texts)]
    places = np.repeat(np.arange(len(parts)), np.array([len(part) for part in parts], dtype=np.int64))
    return np.concatenate([np.empty(0, dtype=np.int32), *parts]), places


def _written(word: str, space: bool, lines: bool) -> str:
    """Return a word as the tokenizer should see it: without newlines that would become end tokens."""
    if lines:
        return " ".join(word.split())
    return f" {word}" if space and word and not word.startswith(" ") else word


def _stand_in(tokenizer: Tokenizer) -> np.ndarray:
    """Return the substitute for a word without tokens."""
    if tokenizer.unknown is None:
        return tokenizer.encode("?")
    return np.array([tokenizer.unknown], dtype=np.int32)
