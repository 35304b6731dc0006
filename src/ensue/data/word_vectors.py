"""Words and their vectors, and words that are asked for."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ensue.core.errors import InputError

SHOWN = 3
"""So many words of like spelling are named."""


@dataclass(frozen=True)
class WordVectors:
    """Words, each once, and a matrix (V, D) with a row for each."""

    words: Sequence[str]
    matrix: np.ndarray
    where: str = ""
    """The run or file they are of, for errors."""

    @cached_property
    def places(self) -> dict[str, int]:
        """Where each word stands."""
        return {word: place for place, word in enumerate(self.words)}

    @cached_property
    def unit(self) -> np.ndarray:
        """The vectors with length one; a vector of zeros stays as it is."""
        matrix = np.asarray(self.matrix, np.float32)
        lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
        return matrix / np.where(lengths > 0, lengths, 1)

    def find(self, word: str) -> int | None:
        """Where a word stands, as it is written or else in small letters; None where it does not."""
        return self.places.get(word, self.places.get(word.lower()))

    def place(self, word: str) -> int:
        """Where a word stands; one that is not there is answered with those of like spelling.

        >>> vectors = WordVectors(["play", "played", "game"], np.eye(3))
        >>> vectors.place("Play")
        0
        >>> vectors.place("plays")
        Traceback (most recent call last):
            ...
        ensue.core.errors.InputError: the word 'plays' has no vector; did you mean play, played?
        """
        found = self.find(word)
        if found is None:
            near = self.near(word)
            hint = f"did you mean {', '.join(near)}?" if near else "ask for a word of the text it was learnt from"
            raise InputError(f"the word {word!r} has no vector", where=self.where, hint=hint)
        return found

    def near(self, word: str) -> list[str]:
        """A few words of like spelling; only those of like length that share a part are compared: it would be slow."""
        if not word:
            return []
        lower = word.lower()
        like = [
            other
            for other in self.words
            if abs(len(other) - len(word)) <= 2
            and (other[:1].lower() == lower[:1] or other[-2:].lower() == lower[-2:] or other[1:3].lower() == lower[1:3])
        ]
        return difflib.get_close_matches(lower, like, n=SHOWN, cutoff=0.6)
