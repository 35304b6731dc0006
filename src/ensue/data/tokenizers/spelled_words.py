"""Words that are read by their letters: every word has a number, those beyond the vocabulary too.

    0 … V − 1     the vocabulary: the unknown word, the end mark, then words by frequency
    V, V + 1 …    further words in the order in which they were met

A model that spells asks for the letters of any number; one that looks words up, or predicts them, takes 0 for all that
are beyond V. Further words are numbered anew in every process, so numbers from V on mean nothing outside of it and are
not saved. It is no kind that people choose: models that spell have it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from ensue.data.tokenizers.protocol import Ids, as_list
from ensue.data.tokenizers.word import WordTokenizer, count_gaps, fit_words

FIRST_WORD = 2
"""The unknown word and the end mark stand before all others."""


class SpelledWordTokenizer(WordTokenizer):
    """A number a word, and the letters of each.

    >>> spelt = fit_spelled_words([("the cat sat\\nthe dog", True, True)])
    >>> spelt.encode("the bird saw the bird\\n").tolist()
    [2, 6, 7, 2, 6, 1]
    >>> spelt.spelling(6), spelt.spelling(spelt.end)
    (b'bird', b'')
    """

    kind = "spelt"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._further: list[str] = []
        known = {name: token for token, name in enumerate(self.names) if token >= FIRST_WORD}
        self._table: Any = _Open(known, self._further, self.size)

    def encode(self, text: str) -> np.ndarray:
        """The words and line ends of the text; a new word gets a number."""
        return self._encode_plainly(text)

    def name(self, token: int) -> str:
        """The word, whether it is in the vocabulary or was met later."""
        return self.names[token] if token < self.size else self._further[token - self.size]

    def decode(self, ids: Ids) -> str:
        """The words, with single spaces between them and newlines for end marks."""
        lines: list[list[str]] = [[]]
        for token in as_list(ids):
            lines.append([]) if token == self.end else lines[-1].append(self.name(token))
        return "\n".join(map(" ".join, lines))

    def closed(self) -> WordTokenizer:
        """The same vocabulary for models that do not spell: what is beyond it is unknown."""
        return WordTokenizer(self.names, self.end, self.unknown, self.spellings, self.gaps)

    def spelling(self, token: int) -> bytes:
        """The letters of a word in UTF-8; the end mark has none."""
        return b"" if token == self.end else self.name(token).encode()

    def surcharge(self, text: str, opens: bool = True, closes: bool = True) -> tuple[float, int]:
        """The spelling of words beyond the vocabulary, which are predicted as the unknown one, and of white space."""
        counted = Counter(text.split())
        lost = {word: count for word, count in counted.items() if self._table[word] >= self.size}
        return self.lost_bits(lost) + self.gap_bits(count_gaps(text, opens, closes)), sum(lost.values())


class _Open(dict[str, int]):
    """Word → number; a word that is new gets the next one."""

    def __init__(self, known: dict[str, int], further: list[str], size: int) -> None:
        super().__init__(known)
        self._further, self._size = further, size

    def __missing__(self, word: str) -> int:
        number = self[word] = self._size + len(self._further)
        self._further.append(word)
        return number


def fit_spelled_words(
    parts: Iterable[tuple[str, bool, bool]], vocabulary: int | None = None, min_count: int | None = None
) -> SpelledWordTokenizer:
    """The words of some texts by frequency, as ``fit_words`` finds them."""
    found = fit_words(parts, vocabulary, min_count)
    end, unknown, *kept = found.names
    return SpelledWordTokenizer([unknown, end, *kept], 1, 0, found.spellings, found.gaps)
