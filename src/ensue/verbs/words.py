"""``ensue words``: what vectors of words say, of any run that has a vector for each word, or of a vector file."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from ensue.core.errors import InputError, unknown_name
from ensue.data.word_benchmarks import read_analogies, read_similarities
from ensue.data.word_vectors import WordVectors
from ensue.measure import words as measured
from ensue.measure.words import SectionScore, SimilarityScore
from ensue.runs.load import Run, load
from ensue.runs.word_tables import read_vectors
from ensue.runs.words import WordRun

MEASURES = ("cosine", "probability", "context")


def neighbours(run: str | PathLike[str], word: str, *, top: int = 10, by: str = "cosine") -> list[tuple[str, float]]:
    """The words nearest to one: by the cosine of their vectors; by ``probability`` P(o | word), the softmax of u · v;
    or by ``context``, how often each is to be expected near it."""
    if by not in MEASURES:
        raise unknown_name("measure", by, MEASURES)
    if by == "cosine":
        return measured.neighbours(vectors_of(run), word, top)
    held = load(run)
    if not isinstance(held, WordRun):
        raise InputError(f"{held.system} has no P(o | c)", where=str(run), hint="use a run of word2vec, or --by cosine")
    return held.likeliest(word, top, of_text=by == "context")


def analogy(run: str | PathLike[str], first: str, minus: str, plus: str, *, top: int = 10) -> list[tuple[str, float]]:
    """The words nearest to first − minus + plus: king − man + woman."""
    return measured.analogy(vectors_of(run), first, minus, plus, top)


def similarity(run: str | PathLike[str], file: str | Path) -> SimilarityScore:
    """How well cosines agree with people's scores of pairs of words."""
    pairs = read_similarities(file)
    return measured.similarity_score(vectors_of(run), pairs)


def analogies(run: str | PathLike[str], file: str | Path) -> list[SectionScore]:
    """How many questions of a file are answered rightly, by section; all together last."""
    sections = read_analogies(file)
    return measured.analogy_score(vectors_of(run), sections)


def vectors_of(run: str | PathLike[str]) -> WordVectors:
    """The vectors of a run: word2vec's, or the embeddings of any model whose tokens are words; or of a vector file."""
    return run.vectors if isinstance(run, Run) else read_vectors(str(run))
