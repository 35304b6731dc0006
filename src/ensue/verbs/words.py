"""``ensue words``: neighbours, analogies and benchmarks of the word vectors of a run or of a vector file."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from ensue.core.errors import InputError, unknown_name
from ensue.data.word_benchmarks import read_analogies, read_similarities
from ensue.measure import words as measured
from ensue.measure.words import SectionScore, SimilarityScore
from ensue.runs.init_from import read_vectors
from ensue.runs.load import load
from ensue.runs.words import WordRun

MEASURES = ("cosine", "probability", "context")


def neighbours(run: str | PathLike[str], word: str, *, top: int = 10, by: str = "cosine") -> list[tuple[str, float]]:
    """The nearest words, by the cosine of their vectors; by ``probability`` P(o | word), the softmax of u · v; or by
    ``context``, the expected frequency of each near the word."""
    if by not in MEASURES:
        raise unknown_name("measure", by, MEASURES)
    if by == "cosine":
        return measured.neighbours(read_vectors(run), word, top)
    loaded = load(run)
    if not isinstance(loaded, WordRun):
        raise InputError(
            f"{loaded.system} has no P(o | c)", where=str(run), hint="use a run of word2vec, or --by cosine"
        )
    return loaded.likeliest(word, top, of_text=by == "context")


def analogy(run: str | PathLike[str], first: str, minus: str, plus: str, *, top: int = 10) -> list[tuple[str, float]]:
    """The words nearest to first − minus + plus: king − man + woman."""
    return measured.analogy(read_vectors(run), first, minus, plus, top)


def similarity(run: str | PathLike[str], file: str | Path) -> SimilarityScore:
    """The correlation of cosines with people's scores of word pairs."""
    return measured.similarity_score(read_vectors(run), read_similarities(file))


def analogies(run: str | PathLike[str], file: str | Path) -> list[SectionScore]:
    """The accuracy on the analogies of a file, by section; the total comes last."""
    return measured.analogy_score(read_vectors(run), read_analogies(file))
