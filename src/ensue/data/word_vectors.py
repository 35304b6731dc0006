"""Words and their vectors, with lookup by word."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ensue.core.errors import InputError

MAX_SUGGESTIONS = 3


@dataclass(frozen=True)
class WordVectors:
    """Unique words and a matrix (V, D) with a row for each."""

    words: Sequence[str]
    matrix: np.ndarray
    where: str = ""
    """The run or file they come from, for errors."""

    @cached_property
    def index(self) -> dict[str, int]:
        """The row of each word."""
        return {word: row for row, word in enumerate(self.words)}

    @cached_property
    def unit(self) -> np.ndarray:
        """The vectors normalised to length one; zero vectors stay zero."""
        matrix = np.asarray(self.matrix, np.float32)
        lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
        return matrix / np.where(lengths > 0, lengths, 1)

    def find(self, word: str) -> int | None:
        """Return the row of a word, as written or in lower case; None if it has no vector."""
        return self.index.get(word, self.index.get(word.lower()))

    def index_of(self, word: str) -> int:
        """Return the row of a word; the error for a missing word suggests similar ones.

        >>> vectors = WordVectors(["play", "played", "game"], np.eye(3))
        >>> vectors.index_of("Play")
        0
        >>> vectors.index_of("plays")
        Traceback (most recent call last):
            ...
        ensue.core.errors.InputError: the word 'plays' has no vector; did you mean play, played?
        """
        row = self.find(word)
        if row is None:
            near = self.suggest(word)
            hint = f"did you mean {', '.join(near)}?" if near else "ask for a word of the text it was trained on"
            raise InputError(f"the word {word!r} has no vector", where=self.where, hint=hint)
        return row

    def suggest(self, word: str) -> list[str]:
        """Return a few words of similar spelling; a cheap filter avoids comparing all words."""
        if not word:
            return []
        lower, parts = word.lower(), (slice(1), slice(-2, None), slice(1, 3))
        near = [other for other in self.words if abs(len(other) - len(word)) <= 2]
        similar = [other for other in near if any(other[part].lower() == lower[part] for part in parts)]
        return difflib.get_close_matches(lower, similar, n=MAX_SUGGESTIONS, cutoff=0.6)
