"""What vectors of words know: which words are alike, and how words relate.

    cos θ = a · b / (‖a‖ ‖b‖)
    a is to b as c is to the word whose vector has the largest cosine with b − a + c, each of length one   (3CosAdd)

As Mikolov et al. (2013) do it, the words of a question are no answers to it.
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

AT_ONCE = 1 << 25
"""How many cosines are held at once."""


def neighbours(vectors: WordVectors, word: str, top: int = 10) -> list[tuple[str, float]]:
    """The words whose vectors point most nearly the same way, with their cosines.

    >>> vectors = WordVectors(["a", "b", "c"], np.array([[1.0, 0], [1, 1], [0, -1]]))
    >>> [(word, round(cosine, 3)) for word, cosine in neighbours(vectors, "a", 1)]
    [('b', 0.707)]
    """
    place = vectors.index_of(word)
    return _best(vectors, vectors.unit[place], [place], top)


def analogy(vectors: WordVectors, first: str, minus: str, plus: str, top: int = 10) -> list[tuple[str, float]]:
    """The words nearest to first − minus + plus: king − man + woman. Cosines are with the sum."""
    places = [vectors.index_of(word) for word in (first, minus, plus)]
    unit = vectors.unit
    return _best(vectors, unit[places[0]] - unit[places[1]] + unit[places[2]], places, top)


def _best(vectors: WordVectors, wanted: np.ndarray, without: Sequence[int], top: int) -> list[tuple[str, float]]:
    """The words with the largest cosines with a vector, but for some."""
    length = float(np.linalg.norm(wanted))
    if not length:
        raise InputError("a vector of zeros points nowhere", where=vectors.where, hint="ask for another word")
    cosines = vectors.unit @ (wanted / length)
    cosines[list(without)] = -np.inf
    cosines[~vectors.matrix.any(axis=1)] = -np.inf
    count = min(top, int(np.isfinite(cosines).sum()))
    order = np.argsort(-cosines, kind="stable")[:count]
    return [(vectors.words[place], float(cosines[place])) for place in order]


@dataclass(frozen=True)
class LikenessScore:
    """How well cosines agree with people."""

    spearman: float
    pearson: float
    pairs: int
    """How many could be asked for."""
    missing: int
    """How many could not, because a word has no vector."""
    missing_words: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "missing_words": list(self.missing_words)}


def likeness_score(vectors: WordVectors, pairs: Sequence[WordSimilarity]) -> LikenessScore:
    """Correlations of cosines with people's scores, over the pairs whose words both have vectors."""
    known = [one for one in pairs if vectors.find(one.first) is not None and vectors.find(one.second) is not None]
    asked = dict.fromkeys(word for one in pairs for word in (one.first, one.second))
    missing = tuple(word for word in asked if vectors.find(word) is None)
    if len(known) < 2:
        what = f"of {len(pairs):,} pairs {len(known)} have vectors for both words"
        raise InputError(what, where=vectors.where, hint="learn vectors from a text that has more of these words")
    first, second = (
        vectors.unit[[vectors.index_of(getattr(one, side)) for one in known]] for side in ("first", "second")
    )
    cosines = np.einsum("nd,nd->n", first.astype(np.float64), second.astype(np.float64))
    scores = [one.score for one in known]
    return LikenessScore(
        spearman(scores, cosines), pearson(scores, cosines), len(known), len(pairs) - len(known), missing
    )


@dataclass(frozen=True)
class SectionScore:
    """How many questions of a kind were answered rightly."""

    name: str
    right: int
    asked: int
    missing: int
    """Questions with a word that has no vector; they are not counted."""

    @property
    def accuracy(self) -> float:
        """The share of those that could be asked; 0 where none could."""
        return self.right / self.asked if self.asked else 0.0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        counts = {"right": self.right, "asked": self.asked, "missing": self.missing}
        return {"section": self.name, "accuracy": self.accuracy, **counts}


def analogy_score(vectors: WordVectors, sections: Sequence[AnalogySection]) -> list[SectionScore]:
    """Each section's answers, and those of all together in the last place."""
    found = []
    for section in sections:
        places = [[vectors.find(word) for word in question] for question in section.questions]
        known = np.array([row for row in places if None not in row], np.int64).reshape(-1, 4)
        right = int((_answers(vectors, known) == known[:, 3]).sum())
        found.append(SectionScore(section.name, right, len(known), len(places) - len(known)))
    right, asked, missing = (sum(getattr(one, name) for one in found) for name in ("right", "asked", "missing"))
    if not asked:
        what = f"of {missing:,} questions none has vectors for all its words"
        raise InputError(what, where=vectors.where, hint="learn vectors from a text that has more of these words")
    return [*found, SectionScore("all", right, asked, missing)]


def _answers(vectors: WordVectors, questions: np.ndarray) -> np.ndarray:
    """The nearest word to b − a + c for questions (N, 4), some at a time."""
    unit, answers = vectors.unit, np.empty(len(questions), np.int64)
    step = max(1, AT_ONCE // max(1, len(unit)))
    for at in range(0, len(questions), step):
        a, b, c = questions[at : at + step, :3].T
        cosines = (unit[b] - unit[a] + unit[c]) @ unit.T
        rows = np.arange(len(a))
        for own in (a, b, c):
            cosines[rows, own] = -np.inf
        answers[at : at + step] = cosines.argmax(1)
    return answers
