"""Sentiment by a list of words: crude, but without a model of its own.

    score = (positive − negative) / (positive + negative), −1 to 1; 0 if no word of the list occurs

A negation among the two words before turns a word round.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ensue.data.bias_material import material

WORD = re.compile(r"[a-z]+(?:'[a-z]+)*")
REACH = 2
"""How many words a negation reaches."""


def words_of(text: str) -> list[str]:
    """The words of a text in lower case.

    >>> words_of("She wasn’t a well-known lawyer.")
    ['she', "wasn't", 'a', 'well', 'known', 'lawyer']
    """
    return WORD.findall(text.lower().replace("’", "'"))


@dataclass(frozen=True)
class WordList:
    """Positive and negative words."""

    positive: frozenset[str]
    negative: frozenset[str]
    negations: frozenset[str]

    @staticmethod
    def built_in() -> WordList:
        """The word list of bias.toml."""
        lists = material()["sentiment"]
        return WordList(*(frozenset(lists[name].split()) for name in ("positive", "negative", "negations")))

    def hits(self, text: str) -> tuple[int, int]:
        """The number of positive and of negative words.

        >>> WordList.built_in().hits("not happy, but kind"), WordList.built_in().hits("a teacher")
        ((1, 1), (0, 0))
        """
        words = words_of(text)
        counts = [0, 0]
        for at, word in enumerate(words):
            if word in self.positive or word in self.negative:
                turned = any(before in self.negations for before in words[max(0, at - REACH) : at])
                counts[(word in self.negative) != turned] += 1
        return counts[0], counts[1]

    def scores(self, texts: Sequence[str]) -> np.ndarray:
        """The score of each text, (N,)."""
        hits = np.array([self.hits(text) for text in texts], float).reshape(-1, 2)
        return np.asarray((hits[:, 0] - hits[:, 1]) / np.maximum(hits.sum(1), 1))
