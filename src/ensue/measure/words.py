"""Evaluate word vectors: nearest neighbours, analogies and word similarity.

    cos θ = a · b / (‖a‖ ‖b‖)
    a is to b as c is to the word whose vector has the largest cosine with b − a + c, each of length one   (3CosAdd)

As in Mikolov et al. (2013), the words of a question are excluded from its answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ensue.core.errors import InputError
from ensue.data.word_benchmarks import AnalogySection, WordSimilarity
from ensue.data.word_vectors import WordVectors
from ensue.measure.correlation import pearson, spearman

CHUNK_COSINES = 1 << 25
"""Cosines computed at once."""


def neighbours(vectors: WordVectors, word: str, top: int = 10) -> list[tuple[str, float]]:
    """The words with the largest cosine to a word.

    >>> vectors = WordVectors(["a", "b", "c"], np.array([[1.0, 0], [1, 1], [0, -1]]))
    >>> [(word, round(cosine, 3)) for word, cosine in neighbours(vectors, "a", 1)]
    [('b', 0.707)]
    """
    index = vectors.index_of(word)
    return _nearest(vectors, vectors.unit[index], [index], top)


def analogy(vectors: WordVectors, first: str, minus: str, plus: str, top: int = 10) -> list[tuple[str, float]]:
    """The words nearest to first − minus + plus, such as king − man + woman, with cosines."""
    a, b, c = (vectors.index_of(word) for word in (first, minus, plus))
    return _nearest(vectors, vectors.unit[a] - vectors.unit[b] + vectors.unit[c], (a, b, c), top)


def _nearest(vectors: WordVectors, query: np.ndarray, without: Sequence[int], top: int) -> list[tuple[str, float]]:
    """The words with the largest cosine to a vector, some words excluded."""
    length = float(np.linalg.norm(query))
    if not length:
        raise InputError("a zero vector has no direction", where=vectors.where, hint="ask for another word")
    cosines = vectors.unit @ (query / length)
    cosines[list(without)] = -np.inf
    cosines[~vectors.matrix.any(axis=1)] = -np.inf
    count = min(top, int(np.isfinite(cosines).sum()))
    order = np.argsort(-cosines, kind="stable")[:count]
    return [(vectors.words[i], float(cosines[i])) for i in order]


@dataclass(frozen=True)
class SimilarityScore:
    """Correlation of cosines with human similarity scores."""

    spearman: float
    pearson: float
    pairs: int
    """Pairs with vectors for both words."""
    missing: int
    """Pairs without."""
    missing_words: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "missing_words": list(self.missing_words)}


def similarity_score(vectors: WordVectors, pairs: Sequence[WordSimilarity]) -> SimilarityScore:
    """Correlation of cosines with human scores, over the pairs whose words both have vectors."""
    known = [pair for pair in pairs if vectors.find(pair.first) is not None and vectors.find(pair.second) is not None]
    words = dict.fromkeys(word for pair in pairs for word in (pair.first, pair.second))
    missing = tuple(word for word in words if vectors.find(word) is None)
    if len(known) < 2:
        what = f"of {len(pairs):,} pairs {len(known)} have vectors for both words"
        raise InputError(what, where=vectors.where, hint="train vectors on a text with more of these words")
    first, second = (
        vectors.unit[[vectors.index_of(getattr(pair, side)) for pair in known]] for side in ("first", "second")
    )
    cosines = np.einsum("nd,nd->n", first.astype(np.float64), second.astype(np.float64))
    scores = [pair.score for pair in known]
    return SimilarityScore(
        spearman(scores, cosines), pearson(scores, cosines), len(known), len(pairs) - len(known), missing
    )


@dataclass(frozen=True)
class SectionScore:
    """Accuracy on one section of analogy questions."""

    name: str
    right: int
    asked: int
    missing: int
    """Questions with a word that has no vector; they are not counted."""

    @property
    def accuracy(self) -> float:
        """The share of right answers; 0 if no question could be asked."""
        return self.right / self.asked if self.asked else 0.0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        counts = {"right": self.right, "asked": self.asked, "missing": self.missing}
        return {"section": self.name, "accuracy": self.accuracy, **counts}


def analogy_score(vectors: WordVectors, sections: Sequence[AnalogySection]) -> list[SectionScore]:
    """The score of each section; the last is of all sections together."""
    scores = []
    for section in sections:
        rows = [[vectors.find(word) for word in question] for question in section.questions]
        known = np.array([row for row in rows if None not in row], np.int64).reshape(-1, 4)
        right = int((_answers(vectors, known) == known[:, 3]).sum())
        scores.append(SectionScore(section.name, right, len(known), len(rows) - len(known)))
    right, asked, missing = (sum(getattr(score, name) for score in scores) for name in ("right", "asked", "missing"))
    if not asked:
        what = f"of {missing:,} questions none has vectors for all its words"
        raise InputError(what, where=vectors.where, hint="train vectors on a text with more of these words")
    return [*scores, SectionScore("all", right, asked, missing)]


def _answers(vectors: WordVectors, questions: np.ndarray) -> np.ndarray:
    """The nearest word to b − a + c for questions (N, 4), in chunks."""
    unit, answers = vectors.unit, np.empty(len(questions), np.int64)
    step = max(1, CHUNK_COSINES // max(1, len(unit)))
    for at in range(0, len(questions), step):
        a, b, c = questions[at : at + step, :3].T
        cosines = (unit[b] - unit[a] + unit[c]) @ unit.T
        rows = np.arange(len(a))
        for word in (a, b, c):
            cosines[rows, word] = -np.inf
        answers[at : at + step] = cosines.argmax(1)
    return answers
