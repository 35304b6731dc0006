"""The character span of each token, and the word of a sentence it belongs to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from ensue.core.errors import InputError
from ensue.data.tokenizers.char import ByteTokenizer, CharTokenizer
from ensue.data.tokenizers.protocol import Tokenizer, encode_texts
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
        spans = [word.span() for word in _WORD.finditer(text)]
        return ids, np.array(spans, dtype=np.int64).reshape(-1, 2)
    if not isinstance(tokenizer, ByteTokenizer | CharTokenizer):
        raise InputError(f"the positions of the tokens of a {tokenizer.kind} tokenizer in a text are not known")
    starts = np.arange(len(text))
    if isinstance(tokenizer, ByteTokenizer):
        starts = np.repeat(starts, [len(letter.encode()) for letter in text])
    return ids, np.stack([starts, starts + 1], axis=1)


def encode_words(tokenizer: Tokenizer, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Encode a sentence given as words; return the tokens (n,) and the index of each token's word (n,).

    Each word is encoded separately, with a space before it if spaces are part of tokens, so that the tokens equal those
    of the joined words. A word without tokens becomes the unknown token, or "?" if there is none.

    >>> ids, words = encode_words(ByteTokenizer(), ["an", "", "ox"])
    >>> bytes(ids.tolist()), words.tolist()
    (b'an? ox', [0, 0, 1, 2, 2, 2])
    """
    plain = isinstance(tokenizer, ByteTokenizer | CharTokenizer)
    spaced = plain or (isinstance(tokenizer, SpanTokenizer) and tokenizer.spaced)
    texts = [_word_text(word, spaced and number > 0, tokenizer.lines) for number, word in enumerate(words)]
    parts = [part if len(part) else _substitute(tokenizer) for part in encode_texts(tokenizer, texts)]
    numbers = np.repeat(np.arange(len(parts)), np.array([len(part) for part in parts], dtype=np.int64))
    return np.concatenate([np.empty(0, dtype=np.int32), *parts]), numbers


def _word_text(word: str, space: bool, lines: bool) -> str:
    """Return a word as the tokenizer should see it: without newlines that would become end tokens."""
    if lines:
        return " ".join(word.split())
    return f" {word}" if space and word and not word.startswith(" ") else word


def _substitute(tokenizer: Tokenizer) -> np.ndarray:
    """Return the tokens for a word without tokens."""
    if tokenizer.unknown is None:
        return tokenizer.encode("?")
    return np.array([tokenizer.unknown], dtype=np.int32)
