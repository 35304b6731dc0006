"""Cache of subword tokens by word: the library's tokens, several times faster.

GPT-2 cuts a text into words before anything else, and a word's tokens do not depend on its neighbours. For
ASCII the cut is one regular expression; stretches with other characters are left to the library, whose tables
decide what a letter is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, groupby
from typing import Any

import numpy as np

from ensue.data.text_pieces import cut_bytes

CHUNK_BYTES = 1 << 12
"""Approximate size of the chunks of a text, each either ASCII or not."""

MAX_CACHED_WORDS = 1 << 18
"""Maximum number of cached words."""

_SPACE = r"\t\n\x0b\x0c\r "
_RUNS = r"'(?:s|t|re|ve|m|ll|d)| ?[A-Za-z]+| ?[0-9]+"
_CUT = rf"{_RUNS}| ?[^{_SPACE}A-Za-z0-9%s]+|[{_SPACE}]+(?![^{_SPACE}%s])|[{_SPACE}]+"
GPT2_WORDS = re.compile(_CUT % ("", ""))
"""Radford et al. 2019, for ASCII."""
LONE_HASH_WORDS = re.compile("#|" + _CUT % ("#", "#"))
"""The same, with each # separate."""
BERT_WORDS = re.compile(r"[A-Za-z0-9\x00-\x08\x0b\x0c\x0e-\x1f\x7f]+|[!-/:-@\[-`{-~]")
"""Devlin et al. 2019, for ASCII: each punctuation character separate. Control characters are removed later."""


class WordCache:
    """Encodes texts word by word, with a cache."""

    def __init__(self, inner: Any, words: re.Pattern[str] | None) -> None:
        """``inner``: the library's tokenizer; ``words``: how it splits ASCII, or None if unknown."""
        self._inner = inner
        self._words = words
        self._ids: dict[str, list[int]] = {}

    def encode(self, data: bytes) -> np.ndarray:
        """Return the tokens of a text in UTF-8."""
        parts: list[list[int]] = []
        for plain, text in _stretches(data):
            if plain and self._words is not None:
                parts.extend(self._plain(text))
            else:
                parts.extend(self._batch([part.decode() for part in cut_bytes(text.encode(), 8 * CHUNK_BYTES)]))
        return np.fromiter(chain.from_iterable(parts), dtype=np.int32)

    def _plain(self, text: str) -> Iterator[list[int]]:
        assert self._words is not None
        words = self._words.findall(text)
        new = list(dict.fromkeys(word for word in words if word not in self._ids))
        if len(self._ids) + len(new) > MAX_CACHED_WORDS:
            self._ids.clear()
            new = list(dict.fromkeys(words))
        self._ids.update(zip(new, self._batch(new), strict=True))
        return map(self._ids.__getitem__, words)

    def _batch(self, texts: list[str]) -> list[list[int]]:
        return [found.ids for found in self._inner.encode_batch_fast(texts, add_special_tokens=False)]


class LineWordCache(WordCache):
    """Word cache for a tokenizer that drops white space, so that lines can be encoded separately."""

    def encode(self, data: bytes) -> np.ndarray:
        """Return the tokens of a text in UTF-8."""
        parts: list[list[int]] = []
        lines = [data.decode()] if data.isascii() else data.decode().split("\n")
        for plain, run in groupby(lines, str.isascii):
            texts = list(run)
            parts.extend(self._plain("\n".join(texts)) if plain else self._batch(texts))
        return np.fromiter(chain.from_iterable(parts), dtype=np.int32)


def _stretches(data: bytes) -> Iterator[tuple[bool, str]]:
    """Split a text into the longest runs of chunks that are all ASCII or all not."""
    if data.isascii():
        yield True, data.decode()
        return
    kind, held = False, ""
    for chunk in (part.decode() for part in cut_bytes(data, CHUNK_BYTES)):
        if chunk.isascii() != kind and held:
            yield kind, held
            held = ""
        kind, held = chunk.isascii(), held + chunk
    yield kind, held
