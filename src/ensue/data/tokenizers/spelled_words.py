"""Word tokenizer for models that read words by their characters: words outside the vocabulary get ids, too.

    0 … V − 1     the vocabulary: the unknown word, the end token, then words by frequency
    V, V + 1 …    other words, in order of occurrence

A model that reads characters asks for the spelling of any id; one that looks words up, or predicts them, uses 0 for all
ids from V on. These ids differ between processes and are not saved. Users do not choose this tokenizer: models that
read characters use it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from ensue.data.tokenizers.word import WordTokenizer, count_gaps, fit_words

FIRST_WORD = 2
"""Id of the first word, after the unknown word and the end token."""


class SpelledWordTokenizer(WordTokenizer):
    """One id per word, and the characters of each.

    >>> spelt = fit_spelled_words([("the cat sat\\nthe dog", True, True)])
    >>> spelt.encode("the bird saw the bird\\n").tolist()
    [2, 6, 7, 2, 6, 1]
    >>> spelt.spelling(6), spelt.spelling(spelt.end)
    (b'bird', b'')
    """

    kind = "spelt"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._new_words: list[str] = []
        known = {name: token for token, name in enumerate(self.names) if token >= FIRST_WORD}
        self._table: Any = _GrowingTable(known, self._new_words, self.size)

    def encode(self, text: str) -> np.ndarray:
        """Return the words and line ends of the text; a new word gets the next id."""
        return self._encode_short(text)

    def name(self, token: int) -> str:
        """Return the word, in the vocabulary or not."""
        return self.names[token] if token < self.size else self._new_words[token - self.size]

    def closed(self) -> WordTokenizer:
        """Return a word tokenizer with the same vocabulary; other words are unknown."""
        return WordTokenizer(self.names, self.end, self.unknown, self.spellings, self.gaps)

    def spelling(self, token: int) -> bytes:
        """Return the characters of a word in UTF-8; empty for the end token."""
        return b"" if token == self.end else self.name(token).encode()

    def surcharge(self, text: str, opens: bool = True, closes: bool = True) -> tuple[float, int]:
        """Return the cost of spelling words outside the vocabulary, predicted as unknown, and of white space."""
        unknown = {word: count for word, count in Counter(text.split()).items() if self._table[word] >= self.size}
        return self.word_bits(unknown) + self.gap_bits(count_gaps(text, opens, closes)), sum(unknown.values())


class _GrowingTable(dict[str, int]):
    """Word → id; a new word gets the next id."""

    def __init__(self, known: dict[str, int], new_words: list[str], size: int) -> None:
        super().__init__(known)
        self._new_words, self._size = new_words, size

    def __missing__(self, word: str) -> int:
        number = self[word] = self._size + len(self._new_words)
        self._new_words.append(word)
        return number


def fit_spelled_words(
    parts: Iterable[tuple[str, bool, bool]], vocabulary: int | None = None, min_count: int | None = None
) -> SpelledWordTokenizer:
    """Fit a tokenizer to texts, with the vocabulary of ``fit_words``."""
    fitted = fit_words(parts, vocabulary, min_count)
    end, unknown, *kept = fitted.names
    return SpelledWordTokenizer([unknown, end, *kept], 1, 0, fitted.spellings, fitted.gaps)
