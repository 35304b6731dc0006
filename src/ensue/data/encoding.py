"""Encode parts of a text independently, so that several processes can share the work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from ensue.data.text_pieces import Part
from ensue.data.tokenizers.protocol import Tokenizer

_SPACES = np.zeros(256, dtype=bool)
_SPACES[[*range(9, 14), *range(28, 33)]] = True


@dataclass(frozen=True, slots=True)
class EncodedTexts:
    """Tokens and counts of consecutive parts."""

    tokens: np.ndarray
    """With an end token after each document that ends here."""
    parts: int
    bytes: int
    words: int
    documents: int
    surcharge: float
    unknown: int
    begins: bool
    """True if the first character belongs to a word."""
    open: bool
    """True if the last character belongs to a word that may continue."""


def token_dtype(tokenizer: Tokenizer) -> np.dtype[np.unsignedinteger]:
    """Return the smallest dtype for a tokenizer's ids: two or four bytes."""
    return np.dtype("<u2" if tokenizer.size <= 1 << 16 else "<u4")


def encode_parts(tokenizer: Tokenizer, parts: Iterable[Part]) -> EncodedTexts:
    """Encode consecutive parts.

    >>> from ensue.data.tokenizers.char import ByteTokenizer
    >>> encode_parts(ByteTokenizer(), [("hi", True, True), ("yo", True, False)]).tokens.tolist()
    [104, 105, 256, 121, 111]
    """
    dtype, encoded = token_dtype(tokenizer), []
    number = size = words = documents = unknown = 0
    surcharge, begins, open_ = 0.0, False, False
    for number, (text, opens, closes) in enumerate(parts, start=1):
        encoded.append(tokenizer.encode(text).astype(dtype))
        bits, count = tokenizer.surcharge(text, opens, closes)
        surcharge, unknown = surcharge + bits, unknown + count
        data = text.encode()
        size += len(data)
        starts = bool(text) and not text[0].isspace()
        begins = begins if number > 1 else starts
        words += count_words(text, data) + text.count("\n") - (open_ and starts)  # a word that was cut in two
        open_ = bool(text) and not text[-1].isspace() and not closes
        if closes:
            finished = text.endswith("\n")
            documents, words = documents + 1, words + (not finished)
            if not (finished and tokenizer.lines):
                encoded.append(np.array([tokenizer.end], dtype))
    tokens = np.concatenate(encoded) if encoded else np.zeros(0, dtype)
    return EncodedTexts(tokens, number, size, words, documents, surcharge, unknown, begins, open_)


def count_words(text: str, data: bytes) -> int:
    """Count the words between white space; ``data`` is the text in UTF-8.

    >>> count_words(" two  words\\n", b" two  words\\n")
    2
    """
    if not data or not text.isascii():
        return len(text.split())
    white = _SPACES[np.frombuffer(data, np.uint8)]
    return int(np.count_nonzero(white[:-1] & ~white[1:])) + (not white[0])


def bundle_parts(parts: Iterable[Part], size: int) -> Iterator[list[Part]]:
    """Group parts into bundles of about ``size`` bytes or more, so that many small documents are one task."""
    bundle: list[Part] = []
    length = 0
    for part in parts:
        bundle.append(part)
        length += len(part[0])
        if length >= size:
            yield bundle
            bundle, length = [], 0
    if bundle:
        yield bundle
