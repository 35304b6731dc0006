"""Runs of word2vec: the two vectors of each word, and measures of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ensue.core.errors import InputError
from ensue.core.events import Report, silent
from ensue.core.wording import counted
from ensue.data.word_benchmarks import read_analogies, read_similarities
from ensue.data.word_vectors import WordVectors
from ensue.measure.words import SectionScore, SimilarityScore, analogy, analogy_score, neighbours, similarity_score
from ensue.runs.run import Run


class WordRun(Run):
    """Word vectors: v of a centre word (``vectors``), u of a context word (``contexts``)."""

    @cached_property
    def vectors(self) -> WordVectors:
        """The vectors v, which are what people call word vectors."""
        matrix = self.model.embed.weight.detach().numpy()
        words: list[str] = self.tokenizer.words  # type: ignore[attr-defined]
        if len(words) != len(matrix):
            what = f"has {counted(len(words), 'word')}, the model {counted(len(matrix), 'vector')}"
            raise InputError(what, where=str(self.folder.tokenizer), hint="the folder may be damaged")
        return WordVectors(words, matrix, str(self))

    @cached_property
    def contexts(self) -> WordVectors:
        """The vectors u."""
        matrix = self.model.head.weight.detach().numpy()
        return WordVectors(self.vectors.words, matrix, str(self))

    def neighbours(self, word: str, top: int = 10) -> list[tuple[str, float]]:
        """The nearest words, with their cosine similarities."""
        return neighbours(self.vectors, word, top)

    def analogy(self, first: str, minus: str, plus: str, top: int = 10) -> list[tuple[str, float]]:
        """The words nearest to first − minus + plus."""
        return analogy(self.vectors, first, minus, plus, top)

    def similarity(self, file: str | Path) -> SimilarityScore:
        """The correlation of cosines with people's scores of word pairs."""
        return similarity_score(self.vectors, read_similarities(file))

    def analogies(self, file: str | Path) -> list[SectionScore]:
        """The accuracy on the analogies of a file, by section; the total comes last."""
        return analogy_score(self.vectors, read_analogies(file))

    def probability(self, word: str, *, given: str | Sequence[str], of_text: bool = False) -> float:
        """P(word | given): exp(u_o · v_c) over its sum; of several given words the mean is taken, as in CBOW.

        See ``ensue.models.word2vec.Word2Vec.log_probabilities`` for ``of_text``.
        """
        return float(np.exp(self._log_probabilities(given, of_text)[self.vectors.index_of(word)]))

    def likeliest(self, given: str | Sequence[str], top: int = 10, of_text: bool = False) -> list[tuple[str, float]]:
        """The most likely context words of the given ones, with their probabilities."""
        p = np.exp(self._log_probabilities(given, of_text))
        order = np.argsort(-p, kind="stable")[:top]
        return [(self.vectors.words[word], float(p[word])) for word in order]

    def embed(
        self,
        texts: Sequence[str],
        *,
        report: Report = silent,
        pooling: str = "mean",
        normalise: bool = True,
        **others: Any,
    ) -> np.ndarray:
        """The mean vector of each text's words, (N, D); 0 for a text without a known word."""
        given = [f"pooling={pooling}"] * (pooling != "mean") + [name for name, value in others.items() if value]
        if given:
            what = f"{given[0]} is for models that read texts"
            raise InputError(what, where=str(self), hint="leave it out: word vectors are averaged")
        ids = [self.tokenizer.encode(text) for text in texts]
        known = [one[one >= 0] for one in ids]
        result = np.zeros((len(texts), self.vectors.matrix.shape[1]), dtype=np.float32)
        for row, one in enumerate(known):
            if len(one):
                result[row] = self.vectors.matrix[one].mean(0)
        empty = sum(not len(one) for one in known)
        if empty:
            report("note", {"text": f"{counted(empty, 'text')} without a word that has a vector became 0"})
        if normalise:
            result /= np.maximum(np.linalg.norm(result, axis=1, keepdims=True), 1e-12)
        return result

    def _log_probabilities(self, given: str | Sequence[str], of_text: bool) -> np.ndarray:
        words = given.split() if isinstance(given, str) else list(given)
        if not words:
            raise InputError("no word is given", hint="name one")
        if not self.contexts.matrix.any():
            what = "has one vector for each word, and probabilities need two"
            raise InputError(what, where=str(self), hint="`ensue fit word2vec` keeps both")
        indices = [self.vectors.index_of(word) for word in words]
        log_p: np.ndarray = self.model.log_probabilities(indices, of_text=of_text).numpy()
        return log_p
