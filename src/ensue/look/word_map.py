"""``ensue look words``: word vectors in two dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ensue.core.errors import InputError, unknown_name
from ensue.data.word_vectors import WordVectors
from ensue.look.chart_parts import component_axes
from ensue.look.projection import principal, tsne
from ensue.look.view import View
from ensue.look.word_map_chart import word_map

METHODS = ("pca", "tsne")
DEFAULT_WORDS = 100
"""Without a choice of words, this many of the most frequent are shown."""


@dataclass(frozen=True)
class WordVectorSource:
    """Word vectors of a run or a vector file."""

    name: str
    vectors: WordVectors
    system: str | None = None


def words(sources: Sequence[Any], *, words: str = "", pairs: str = "", method: str = "pca") -> View:
    """A map of ``words`` (default: the most frequent), with arrows for ``pairs`` (king:queen)."""
    if len(sources) != 1:
        raise InputError(f"words shows one run, not {len(sources)}", hint="name one")
    (source,) = sources
    if not isinstance(source, WordVectorSource):
        source = WordVectorSource(source.folder.path.name, source.vectors, source.system)
    numbers = {"system": source.system, **map_numbers(source.vectors, words.split(), parse_pairs(pairs), method)}
    title = f"{source.name}{f' ({source.system})' if source.system else ''}: words in two dimensions"
    return View(partial(draw_map, numbers, title), numbers)


def map_numbers(
    table: WordVectors, words: Sequence[str] = (), pairs: Sequence[tuple[str, str]] = (), method: str = "pca"
) -> dict[str, Any]:
    """Coordinates of words in two dimensions, and how parallel the differences of the pairs are.

    Vectors are normalised to length 1. ``parallel`` is the mean cosine between the differences b − a of the pairs, in
    all dimensions: 1 if all pairs differ in one direction, 0 by chance.
    """
    if method not in METHODS:
        raise unknown_name("method", method, METHODS)
    given = [*words, *(word for pair in pairs for word in pair)]
    chosen = list(dict.fromkeys(given or table.words[:DEFAULT_WORDS]))
    if len(chosen) < 2:
        raise InputError("a map needs two words or more", hint='give them with --words "king queen …"')
    vectors = table.unit[[table.index_of(word) for word in chosen]]
    points, shares = principal(vectors)
    cost = None
    if method == "tsne":
        points, cost = tsne(vectors)
    rows = [{"word": word, "x": float(x), "y": float(y)} for word, (x, y) in zip(chosen, points)]
    variance = [float(share) for share in shares] if method == "pca" else None
    figures = {"variance": variance, "divergence": cost, "parallel": parallel(table, pairs)}
    return {"method": method, "words": rows, "pairs": [list(pair) for pair in pairs], **figures}


def parallel(table: WordVectors, pairs: Sequence[tuple[str, str]]) -> float | None:
    """The mean cosine between the differences of pairs; None for fewer than two pairs."""
    if len(pairs) < 2:
        return None
    starts, ends = (table.unit[[table.index_of(word) for word in side]] for side in zip(*pairs))
    differences = ends - starts
    lengths = np.linalg.norm(differences, axis=1, keepdims=True)
    differences = differences / np.where(lengths > 0, lengths, 1.0)
    return float((differences @ differences.T)[np.triu_indices(len(pairs), 1)].mean())


def draw_map(numbers: dict[str, Any], title: str) -> Any:
    """The chart of the result of ``map_numbers``."""
    words = [row["word"] for row in numbers["words"]]
    points = np.array([[row["x"], row["y"]] for row in numbers["words"]])
    if numbers["variance"]:
        axes = component_axes(numbers["variance"])
        caption = "Principal components of the normalised vectors."
    else:
        axes = ("", "")
        caption = "t-SNE: neighbours are kept together; distances between groups mean little."
    if numbers["parallel"] is not None:
        cosine = f"{numbers['parallel']:.2f}".replace("-", "−")
        caption += f" Mean cosine between the arrows in all dimensions: {cosine}."
    pairs = [(a, b) for a, b in numbers["pairs"]]
    return word_map(words, points, pairs=pairs, axes=axes, title=title, caption=caption)


def parse_pairs(text: str) -> list[tuple[str, str]]:
    """Parse pairs from the command line.

    >>> parse_pairs("king:queen man:woman")
    [('king', 'queen'), ('man', 'woman')]
    """
    pairs = []
    for item in text.split():
        a, colon, b = item.partition(":")
        if not (a and colon and b) or a == b:
            raise InputError(f"{item!r} is not a pair of words", hint="write --pairs king:queen")
        pairs.append((a, b))
    return pairs
