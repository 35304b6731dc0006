"""The map of words that ``ensue look words`` draws."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from ensue.core.errors import InputError, unknown_name
from ensue.data.word_vectors import WordVectors
from ensue.look.words import word_map
from ensue.measure.projection import principal, tsne
from ensue.runs.load import load
from ensue.verbs.view import Place
from ensue.verbs.words import vectors_of

METHODS = ("pca", "tsne")
SHOWN = 100
"""How many words are shown where nobody says which: the commonest."""


def map_numbers(
    table: WordVectors, words: Sequence[str] = (), pairs: Sequence[tuple[str, str]] = (), method: str = "pca"
) -> dict[str, Any]:
    """Where words stand on a map of their directions, and how alike the differences of the pairs are.

    Vectors are taken at a length of 1, as cosines compare directions. ``parallel`` is the mean cosine between the
    differences b − a of the pairs, in all dimensions: 1 where one relation is one direction, 0 by chance.
    """
    if method not in METHODS:
        raise unknown_name("method", method, METHODS)
    chosen = list(dict.fromkeys([*words, *(word for pair in pairs for word in pair)])) or list(table.words[:SHOWN])
    if len(chosen) < 2:
        raise InputError("a map needs two words or more", hint='give them with --words "king queen …"')
    held = table.unit[[table.place(word) for word in chosen]]
    points, shares = principal(held)
    cost = None
    if method == "tsne":
        points, cost = tsne(held)
    rows = [{"word": word, "x": float(x), "y": float(y)} for word, (x, y) in zip(chosen, points)]
    variance = [float(share) for share in shares] if method == "pca" else None
    figures = {"variance": variance, "divergence": cost, "parallel": parallel(table, pairs)}
    return {"method": method, "words": rows, "pairs": [list(pair) for pair in pairs], **figures}


def parallel(table: WordVectors, pairs: Sequence[tuple[str, str]]) -> float | None:
    """The mean cosine between the differences of pairs; None of fewer than two."""
    differences = [table.unit[table.place(b)] - table.unit[table.place(a)] for a, b in pairs]
    lengths = [float(np.linalg.norm(one)) or 1.0 for one in differences]
    cosines = [
        float(differences[i] @ differences[j]) / (lengths[i] * lengths[j])
        for i, j in combinations(range(len(differences)), 2)
    ]
    return float(np.mean(cosines)) if cosines else None


def draw_map(numbers: dict[str, Any], title: str) -> Any:
    """The chart of what ``map_numbers`` says."""
    words = [row["word"] for row in numbers["words"]]
    points = np.array([[row["x"], row["y"]] for row in numbers["words"]])
    if numbers["variance"]:
        first, second = (f"component ({share:.0%} of the variance)" for share in numbers["variance"])
        axes = (f"first {first}", f"second {second}")
        caption = "Principal components of the vectors' directions."
    else:
        axes = ("", "")
        caption = "t-SNE: neighbours stand together; distances between groups say little."
    if numbers["parallel"] is not None:
        cosine = f"{numbers['parallel']:.2f}".replace("-", "−")
        caption += f" Mean cosine between the arrows in all dimensions: {cosine}."
    pairs = [(a, b) for a, b in numbers["pairs"]]
    return word_map(words, points, pairs=pairs, axes=axes, title=title, caption=caption)


def read_pairs(text: str) -> list[tuple[str, str]]:
    """Pairs as people type them.

    >>> read_pairs("king:queen man:woman")
    [('king', 'queen'), ('man', 'woman')]
    """
    pairs = []
    for one in text.split():
        a, colon, b = one.partition(":")
        if not (a and colon and b) or a == b:
            raise InputError(f"{one!r} is no pair of words", hint="write --pairs king:queen")
        pairs.append((a, b))
    return pairs


def word_view(path: Place, words: str, pairs: str, method: str) -> tuple[dict[str, Any], Any]:
    """The numbers of the map of the words of a run or a vector file, and what draws it."""
    system = None if Path(path).is_file() else load(path).system
    numbers = {"system": system, **map_numbers(vectors_of(path), words.split(), read_pairs(pairs), method)}
    title = f"{Path(path).name}{f' ({system})' if system else ''}: words in two dimensions"
    return numbers, partial(draw_map, numbers, title)
