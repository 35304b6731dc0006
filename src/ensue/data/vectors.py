"""A table of words and their vectors, wherever it comes from.

    cos θ = a · b / (‖a‖ ‖b‖)            how alike two words are

Legend: V words, D width.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ensue.core.errors import InputError


@dataclass(frozen=True, eq=False)
class WordVectors:
    """A vector for each word, the commonest first where that is known.

    >>> table = WordVectors(["hotel", "motel"], np.array([[3.0, 0.0], [3.0, 4.0]]))
    >>> table.cosine("hotel", "motel")
    0.6
    """

    words: list[str]
    vectors: np.ndarray
    """(V, D)."""

    def __post_init__(self) -> None:
        if self.vectors.ndim != 2 or len(self.words) != len(self.vectors):
            raise InputError(f"{len(self.words):,} words and vectors of the shape {self.vectors.shape} are no table")

    @cached_property
    def places(self) -> dict[str, int]:
        """Word → row; of words that stand twice the first."""
        return {word: place for place, word in reversed(list(enumerate(self.words)))}

    def place(self, word: str) -> int:
        """The row of a word; one that is not there gets the nearest that are."""
        if word in self.places:
            return self.places[word]
        folded = [other for other in self.words if other.lower() == word.lower()]
        alike = [other for other in self.words if abs(len(other) - len(word)) < 4 and other[:1] == word[:1]]
        near = folded[:3] or difflib.get_close_matches(word, alike, n=3)
        mend = f"near it: {', '.join(near)}" if near else f"there are {len(self.words):,} others"
        raise InputError(f"there is no vector for {word!r}", mend=mend)

    def chosen(self, words: Sequence[str]) -> WordVectors:
        """The table of these words alone, in this order."""
        return WordVectors(list(words), self.vectors[[self.place(word) for word in words]])

    @cached_property
    def unit(self) -> np.ndarray:
        """The vectors at a length of 1, (V, D); a vector of zeros stays one."""
        lengths = np.linalg.norm(self.vectors, axis=1, keepdims=True)
        units: np.ndarray = self.vectors / np.where(lengths > 0, lengths, 1)
        return units

    def cosine(self, one: str, other: str) -> float:
        """cos θ of the vectors of two words."""
        return float(self.unit[self.place(one)] @ self.unit[self.place(other)])
