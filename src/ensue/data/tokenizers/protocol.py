"""What every tokenizer here is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ensue.core.errors import InputError

END = "<|end|>"
"""How the end mark is written where it is shown; no text can produce it."""

Ids = np.ndarray | Iterable[int]


@runtime_checkable
class Tokenizer(Protocol):
    """Text to tokens and back.

    A token stream begins with ``end`` and has exactly one ``end`` after each document.
    """

    @property
    def kind(self) -> str:
        """The name people type: byte, char, word, bpe, wordpiece, unigram, or gpt2."""

    @property
    def size(self) -> int:
        """V, how many tokens there are, the end mark among them."""

    @property
    def end(self) -> int:
        """The end mark, which stands before the first and after every document."""

    @property
    def unknown(self) -> int | None:
        """The token for what is not in the vocabulary; None where there is nothing that is not."""

    @property
    def lines(self) -> bool:
        """Whether a newline is the end mark, so that a document which ends in one is not given another."""

    def encode(self, text: str) -> np.ndarray:
        """Tokens of a text, int32, without end marks (but for newlines, where ``lines``)."""

    def decode(self, ids: Ids) -> str:
        """The text of tokens; end marks leave no trace (but for newlines, where ``lines``)."""

    def name(self, token: int) -> str:
        """A token as it can be printed."""

    def surcharge(self, text: str, opens: bool = True, closes: bool = True) -> tuple[float, int]:
        """The bits a text costs beyond its tokens, as they do not say all of it, and how many are unknown.

        ``opens``: the text begins at the start of a line; ``closes``: it goes to the end of its document.
        """

    def state(self) -> dict[str, Any]:
        """What ``tokenizer.json`` holds."""


def encode_utf8(text: str) -> bytes:
    """The bytes of a text; half of a surrogate pair is an error for people."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        hint = "give it in UTF-8"
        raise InputError("the text holds half of a surrogate pair, which is no character", hint=hint) from error


def printable(text: str) -> str:
    """A token's text so that it can be seen: space as ␣, other white space and control characters escaped.

    >>> printable(" a\\n")
    '␣a\\\\n'
    """
    return "".join(
        "␣" if letter == " " else letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def printable_bytes(data: bytes) -> str:
    """A token's bytes so that they can be seen: as text if they are text, else escaped.

    >>> printable_bytes(b" a"), printable_bytes(bytes([0xC3]))
    ('␣a', '\\\\xc3')
    """
    try:
        return printable(data.decode("utf-8"))
    except UnicodeDecodeError:
        return "".join(printable(chr(byte)) if byte < 128 else f"\\x{byte:02x}" for byte in data)


def as_list(ids: Ids) -> list[int]:
    """Token numbers as plain integers."""
    return [int(token) for token in (ids.tolist() if isinstance(ids, np.ndarray) else ids)]
