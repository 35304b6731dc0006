"""Cache of subword tokens by word: the library's tokens, several times faster.

GPT-2 cuts a text into words before anything else, and a word's tokens do not depend on its neighbours. For ASCII the
cut is one regular expression; parts with other characters are left to the library, whose tables define letters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from typing import Any

import numpy as np

from ensue.core.errors import InputError
from ensue.data.text_pieces import cut_bytes

CHUNK_BYTES = 1 << 12
"""Approximate size of the chunks of a text, each either ASCII or not."""

MAX_CACHED_WORDS = 1 << 18
"""Maximum number of cached words."""

SHORT_TEXT, MAX_SHORT_TEXT_WORDS = 1 << 17, 1 << 12
"""A text of at most this many characters, such as a prompt, adds words only up to this number: a server reads texts
without end, a corpus has one."""

MAX_WORD_CHARS = 64
"""Longer words are not cached; a client could send some that have megabytes."""

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
        return np.fromiter(chain.from_iterable(chain.from_iterable(self._parts(data))), dtype=np.int32)

    def _parts(self, data: bytes) -> Iterator[Iterable[list[int]]]:
        """Yield the tokens of each part of a text, word by word or chunk by chunk."""
        for ascii_only, text in _runs(data):
            if ascii_only and self._words is not None:
                yield self._cached(text)
            else:
                yield self._batch([part.decode() for part in cut_bytes(text.encode(), 8 * CHUNK_BYTES)])

    def _cached(self, text: str) -> Iterable[list[int]]:
        assert self._words is not None
        words = self._words.findall(text)
        known = self._ids  # only ever grows: other threads may read it
        new = list(dict.fromkeys(word for word in words if word not in known))
        if not new:
            return map(known.__getitem__, words)
        ids = dict(zip(new, self._batch(new), strict=True))
        kept = {word: tokens for word, tokens in ids.items() if len(word) <= MAX_WORD_CHARS}
        short = len(text) <= SHORT_TEXT
        if len(known) + len(kept) <= (MAX_SHORT_TEXT_WORDS if short else MAX_CACHED_WORDS):
            known.update(kept)
            if len(kept) == len(ids):
                return map(known.__getitem__, words)
        elif not short:
            self._ids = kept
        return (ids[word] if word in ids else known[word] for word in words)

    def _batch(self, texts: list[str]) -> list[list[int]]:
        try:
            return [encoded.ids for encoded in self._inner.encode_batch_fast(texts, add_special_tokens=False)]
        except Exception as error:  # the library raises no narrower type
            hint = "the tokenizer may be damaged"
            raise InputError(f"the text cannot be encoded ({error})", hint=hint) from error


class LineWordCache(WordCache):
    """Word cache for a tokenizer that drops white space, so that lines can be encoded separately."""

    def _parts(self, data: bytes) -> Iterator[Iterable[list[int]]]:
        lines = [data.decode()] if data.isascii() else data.decode().split("\n")
        for ascii_only, run in groupby(lines, str.isascii):
            texts = list(run)
            yield self._cached("\n".join(texts)) if ascii_only else self._batch(texts)


def _runs(data: bytes) -> Iterator[tuple[bool, str]]:
    """Split a text into the longest runs of chunks that are all ASCII or all not."""
    chunks = [data] if data.isascii() else cut_bytes(data, CHUNK_BYTES)
    for ascii_only, run in groupby(map(bytes.decode, chunks), str.isascii):
        yield ascii_only, "".join(run)
