"""SentencePiece's Unigram without bytes, in the form of a ``tokenizer.json``: T5 and mT5.

Pieces are of characters, with ``▁`` for a space. A text is normalised first, and a character without a piece is
unknown, so a text may come back as another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from ensue.core.errors import InputError
from ensue.data.tokenizers.pieces import SPACE, PieceTokenizer, is_pieces, space_before
from ensue.data.tokenizers.protocol import Ids, encode_utf8
from ensue.data.tokenizers.subword import SubwordTokenizer


def piece_class(state: Mapping[str, Any]) -> type[SubwordTokenizer]:
    """The class of a tokenizer with several special tokens, by its ``tokenizer.json``."""
    if is_pieces(state):
        return PieceTokenizer
    plain = state["model"].get("type") == "Unigram" and space_before(state) != "never"
    return UnigramPieceTokenizer if plain else SubwordTokenizer


class UnigramPieceTokenizer(SubwordTokenizer):
    """Unigram over characters, some of which are unknown."""

    def __init__(self, inner: Tokenizer, end: str | None = None, begin: str | None = None) -> None:
        super().__init__(inner, end, begin)
        unknown = self._described["model"].get("unk_id")
        if unknown is None:
            raise InputError("the tokenizer has no unknown token, so it cannot encode every text")
        self.unknown: int = unknown  # type: ignore[assignment]

    def _token_bytes(self, token: str | None) -> bytes:
        return b"" if token is None or token in self.named else token.replace(SPACE, " ").encode()

    def encode(self, text: str) -> np.ndarray:
        """Return the pieces of a text."""
        encode_utf8(text)
        return np.array(self._inner.encode(text, add_special_tokens=False).ids, dtype=np.int32)

    def decode(self, ids: Ids) -> str:
        """Return the text, without the space before it and without unknown characters."""
        return super().decode(ids).removeprefix(" ")

    def state(self) -> dict[str, Any]:
        """Return the library's ``tokenizer.json``, and in it which tokens begin and end a text."""
        return self._named_state(self._library_state())

    def surcharge(self, text: str, opens: bool = True, closes: bool = True) -> tuple[float, int]:
        """Return 8 bits for each byte of words that come back as others, or of all, and the unknown tokens."""
        ids = self.encode(text)
        words, decoded = text.split(" "), self.decode(ids).split(" ")
        pairs = zip(words, decoded) if len(words) == len(decoded) else [(text, "")] * (text != self.decode(ids))
        lost = sum(len(word.encode()) + 1 for word, other in pairs if word != other)
        return 8.0 * lost, int((ids == self.unknown).sum())
