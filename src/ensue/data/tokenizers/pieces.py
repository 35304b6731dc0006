"""Tokenizers of SentencePiece in the form of a ``tokenizer.json``: Llama 2, Mistral, TinyLlama, Gemma.

Tokens are pieces of text in which ``▁`` stands for a space; a character without a piece becomes its bytes, ``<0xE2>``
and so on. Most of them put a space before a text, which decoding removes again. As in SentencePiece itself, a ``▁`` of
the text comes back as a space.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import groupby, pairwise
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from ensue.core.errors import InputError
from ensue.data.tokenizers.protocol import Ids, encode_utf8
from ensue.data.tokenizers.subword import SubwordTokenizer

SPACE = "▁"
BYTE = re.compile(r"<0x([0-9A-F]{2})>")


def is_pieces(state: Mapping[str, Any]) -> bool:
    """True for the ``tokenizer.json`` of a tokenizer whose unknown characters become bytes."""
    return bool(state["model"].get("byte_fallback"))


def _parts(described: Any) -> Iterator[dict[str, Any]]:
    """The parts of a normalizer or pre-tokenizer: itself, or those of a sequence."""
    if isinstance(described, dict):
        inner = described.get("normalizers") or described.get("pretokenizers") or ()
        yield described
        for one in inner:
            yield from _parts(one)


def space_before(state: Mapping[str, Any]) -> str:
    """Where a tokenizer puts a space: never, always, or first (before a text, but not after a special token)."""
    for part in _parts(state.get("normalizer")):
        if part.get("type") == "Prepend":
            return "always"
    for part in _parts(state.get("pre_tokenizer")):
        if part.get("type") == "Metaspace":
            scheme = part.get("prepend_scheme") or ("always" if part.get("add_prefix_space", True) else "never")
            return str(scheme)
    return "never"


def without_space(state: dict[str, Any]) -> dict[str, Any]:
    """The same ``tokenizer.json`` of a tokenizer that puts no space before a text."""
    copy: dict[str, Any] = json.loads(json.dumps(state))
    for part in _parts(copy.get("pre_tokenizer")):
        if part.get("type") == "Metaspace":
            part.pop("add_prefix_space", None)
            part["prepend_scheme"] = "never"
    normalizer = copy.get("normalizer")
    if isinstance(normalizer, dict) and normalizer.get("type") == "Prepend":
        copy["normalizer"] = None
    elif isinstance(normalizer, dict) and isinstance(normalizer.get("normalizers"), list):
        normalizer["normalizers"] = [one for one in normalizer["normalizers"] if one.get("type") != "Prepend"]
    return copy


def _after_first(names: list[str]) -> Iterator[str]:
    """Patterns of names without their first character, where they stand after it; many names make a fast pattern."""
    for first in sorted({name[0] for name in names if len(name) > 1}):
        rest = sorted(name[1:] for name in names if name[0] == first and len(name) > 1)
        yield f"(?<={re.escape(first)}){_any_of(rest)}"


def _any_of(names: list[str]) -> str:
    """A pattern of one of these sorted names, the longest first, that looks at each character once."""
    if len(names) == 1:
        return re.escape(names[0])
    length = next((at for at, pair in enumerate(zip(names[0], names[-1])) if pair[0] != pair[1]), len(names[0]))
    shared = names[0][:length]
    groups = groupby((name[len(shared) :] for name in names if len(name) > len(shared)), key=lambda name: name[0])
    inner = "|".join(_any_of(list(own)) for _, own in groups)
    return f"{re.escape(shared)}(?:{inner}){'?' if names[0] == shared else ''}"


class PieceTokenizer(SubwordTokenizer):
    """BPE or Unigram over characters, with bytes for what has no piece."""

    def __init__(self, inner: Tokenizer, end: str | None = None, begin: str | None = None) -> None:
        super().__init__(inner, end, begin)
        missing = next((byte for byte in range(256) if inner.token_to_id(f"<0x{byte:02X}>") is None), None)
        if missing is not None:
            raise InputError(f"the tokenizer has no token <0x{missing:02X}>, so it cannot encode every text")
        self._space = space_before(self._described)
        self._bare = inner
        if self._space != "never":
            self._bare = Tokenizer.from_str(json.dumps(without_space(self._library_state())))
            self._bare.encode_special_tokens = True
        self._named = set(self.named.values())
        self._special = re.compile("|".join(_after_first(list(self.named))) or "$^")
        """The names of special tokens without their first character, where they stand in a text."""

    def _token_bytes(self, token: str | None) -> bytes:
        if token is None or token in self.named:
            return b""
        if found := BYTE.fullmatch(token):
            return bytes([int(found[1], 16)])
        return token.replace(SPACE, " ").encode()

    def encode(self, text: str) -> np.ndarray:
        """Return the pieces of a text, most often after a space."""
        return self._encoded(self._inner, text)

    def encode_after(self, text: str) -> np.ndarray:
        """As ``encode``, for a text after a special token, before which many tokenizers put no space."""
        return self._encoded(self._bare if self._space == "first" else self._inner, text)

    def _encoded(self, inner: Tokenizer, text: str) -> np.ndarray:
        """Encode a text; where merges make a special token of its name, such names are cut in two."""
        encode_utf8(text)
        ids: list[int] = inner.encode(text, add_special_tokens=False).ids
        if self._named.isdisjoint(ids):
            return np.array(ids, dtype=np.int32)
        cuts = [0, *(found.start() for found in self._special.finditer(text)), len(text)]
        ids = []
        for number, (start, stop) in enumerate(pairwise(cuts)):
            one = inner if number == 0 else self._bare
            ids += one.encode(text[start:stop], add_special_tokens=False).ids if start < stop else []
        return np.array(ids, dtype=np.int32)

    def decode(self, ids: Ids) -> str:
        """Return the text, without the space before it; bytes that are not UTF-8 become �."""
        text = super().decode(ids)
        return text.removeprefix(" ") if self._space != "never" else text

    def state(self) -> dict[str, Any]:
        """Return the library's ``tokenizer.json``, and in it which tokens begin and end a text."""
        return self._named_state(self._library_state())
