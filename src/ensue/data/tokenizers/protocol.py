"""The interface of all tokenizers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ensue.core.errors import InputError

END = "<|end|>"
"""Name of the end token; no text produces this token."""

Ids = np.ndarray | Iterable[int]


@runtime_checkable
class Tokenizer(Protocol):
    """Converts text to tokens and back.

    A token stream begins with ``first_token`` and has exactly one ``end`` after each document.
    """

    @property
    def kind(self) -> str:
        """The name users type: byte, char, word, bpe, wordpiece, unigram, or gpt2."""

    @property
    def size(self) -> int:
        """V, the number of tokens including the end token."""

    @property
    def end(self) -> int:
        """The end token, which comes after every document, and before the first one unless another one does."""

    @property
    def unknown(self) -> int | None:
        """The unknown token; None if nothing can be unknown."""

    @property
    def lines(self) -> bool:
        """True if a newline is the end token; a document that ends in a newline then gets no other end token."""

    def encode(self, text: str) -> np.ndarray:
        """Return the tokens of a text, int32, without end tokens (except newlines, if ``lines``)."""

    def decode(self, ids: Ids) -> str:
        """Return the text of tokens; end tokens are dropped (except newlines, if ``lines``)."""

    def name(self, token: int) -> str:
        """Return a token in printable form."""

    def surcharge(self, text: str, opens: bool = True, closes: bool = True) -> tuple[float, int]:
        """Return the bits of a text that its tokens do not encode, and the number of unknown tokens.

        ``opens``: the text begins at the start of a line; ``closes``: it reaches the end of its document.
        """

    def state(self) -> dict[str, Any]:
        """Return the contents of ``tokenizer.json``."""


def first_token(tokenizer: Tokenizer) -> int:
    """Return the token before the first document: the end token, unless the tokenizer has one that begins a text."""
    return int(getattr(tokenizer, "begin", tokenizer.end))


def encode_utf8(text: str) -> bytes:
    """Encode text as UTF-8; raise an InputError for half of a surrogate pair."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        hint = "give it in UTF-8"
        raise InputError("the text holds half of a surrogate pair, which is no character", hint=hint) from error


def printable(text: str) -> str:
    """Return text in printable form: spaces as ␣, other white space and control characters escaped.

    >>> printable(" a\\n")
    '␣a\\\\n'
    """
    letters = (letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)
    return "".join(letters).replace(" ", "␣")


def printable_bytes(data: bytes) -> str:
    """Return bytes in printable form: as text if they are UTF-8, else escaped.

    >>> printable_bytes(b" a"), printable_bytes(bytes([0xC3]))
    ('␣a', '\\\\xc3')
    """
    try:
        return printable(data.decode("utf-8"))
    except UnicodeDecodeError:
        return "".join(printable(chr(byte)) if byte < 128 else f"\\x{byte:02x}" for byte in data)


def as_list(ids: Ids) -> list[int]:
    """Return token ids as a list of integers."""
    return [int(token) for token in (ids.tolist() if isinstance(ids, np.ndarray) else ids)]


def join_words(ids: Ids, newline: int, name: Callable[[int], str]) -> str:
    """Return the names of tokens with single spaces between them, and a line end for each token ``newline``."""
    lines: list[list[str]] = [[]]
    for token in as_list(ids):
        if token == newline:
            lines.append([])
        else:
            lines[-1].append(name(token))
    return "\n".join(map(" ".join, lines))


def encode_texts(tokenizer: Tokenizer, texts: Sequence[str]) -> list[np.ndarray]:
    """Return the tokens of each text, with the tokenizer's batch method if it has one."""
    batch = getattr(tokenizer, "encode_batch", None)
    encoded: list[np.ndarray] = batch(texts) if batch is not None else [tokenizer.encode(text) for text in texts]
    return encoded
