"""Choose the positions of a row that are masked: single tokens, whole words, or spans of words.

    tokens     each by itself (Devlin et al., 2019)
    words      all tokens of a word together (whole-word masking; Cui et al., 2019)
    spans      ℓ words in a row, ℓ geometric with p = 0.2 and at most 10 (SpanBERT, Joshi et al., 2020), 3.8 on average

Units are taken in the order of their keys until the row's share is reached; one that would exceed it is left out, and
a span ends there. A word is a token that begins one and those that continue it.

Legend: B rows, T tokens, K masked positions of a row.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

SPAN_END, LONGEST_SPAN = 0.2, 10
"""The probability that a span ends after each word, and the most words of one."""


class Positions(NamedTuple):
    """Masked positions."""

    positions: np.ndarray
    """(B, K), sorted; rows with fewer repeat position 0."""
    is_masked: np.ndarray
    """(B, K): which of these are masked."""
    unit: np.ndarray | None = None
    """(B, K): the column where the unit of each begins; None where each is a unit of its own."""


def choose_positions(maskable: np.ndarray, counts: np.ndarray, keys: np.ndarray) -> Positions:
    """Choose ``counts`` (B,) of each row's maskable positions (B, T), at least one, those with the smallest keys."""
    counts = np.where(maskable.any(1), np.maximum(1, counts), 0).astype(np.int64)
    most = max(1, int(counts.max()))
    order = np.argsort(np.where(maskable, keys, 2.0), axis=1, kind="stable")[:, :most]
    is_masked = np.arange(order.shape[1]) < counts[:, None]
    positions = np.sort(np.where(is_masked, order, maskable.shape[1]), axis=1)
    return Positions(np.where(is_masked, positions, 0), is_masked)


def choose_words(
    maskable: np.ndarray, begins: np.ndarray, counts: np.ndarray, keys: np.ndarray, sizes: np.ndarray | None = None
) -> Positions:
    """Choose whole words of at most ``counts`` (B,) tokens, at least one word, those with the smallest keys first.

    ``begins`` (B, T) says where words begin. With ``sizes`` (B, T) each word is the first of a span of that
    many words.
    """
    rows = []
    for row, count in enumerate(counts.tolist()):
        starts = np.flatnonzero(begins[row] & maskable[row])
        order = starts[np.argsort(keys[row][starts], kind="stable")].tolist()
        ends = _word_ends(begins[row], maskable[row], starts)
        rows.append(_units_of_row(order, ends, count, None if sizes is None else sizes[row]))
    most = max(1, *map(len, rows))
    positions, unit = np.zeros((2, len(rows), most), dtype=np.int64)
    for row, found in enumerate(rows):
        places = np.array(sorted(found), dtype=np.int64)
        positions[row, : len(found)] = places
        unit[row, : len(found)] = np.searchsorted(places, [found[place] for place in places.tolist()])
    return Positions(positions, np.arange(most) < np.array([len(found) for found in rows])[:, None], unit)


def span_sizes(draws: np.ndarray) -> np.ndarray:
    """Return the number of words of a span for each uniform draw in [0, 1): geometric up to the longest.

    >>> span_sizes(np.array([0.0, 0.22, 0.3, 0.999])).tolist()
    [1, 1, 2, 10]
    """
    within = 1 - (1 - SPAN_END) ** LONGEST_SPAN  # so that none is longer, without making the longest more likely
    sizes = 1 + np.floor(np.log1p(-draws * within) / np.log1p(-SPAN_END))
    return np.asarray(np.minimum(sizes, LONGEST_SPAN), dtype=np.int64)


def _word_ends(begins: np.ndarray, maskable: np.ndarray, starts: np.ndarray) -> dict[int, int]:
    """Return the end of the word at each start: where the next begins, or what cannot be masked."""
    stops = np.append(np.flatnonzero(begins | ~maskable), len(begins))
    return dict(zip(starts.tolist(), stops[np.searchsorted(stops, starts, side="right")].tolist(), strict=True))


def _units_of_row(
    order: Iterable[int], ends: dict[int, int], count: int, sizes: np.ndarray | None = None
) -> dict[int, int]:
    """Return the masked positions of a row, each with the one where its unit begins."""
    found: dict[int, int] = {}
    for start in order:
        if found and len(found) >= count:
            break
        if start in found:
            continue
        word = start
        for _ in range(1 if sizes is None else int(sizes[start])):
            fits = len(found) + ends[word] - word <= count if word in ends else False
            if word not in ends or word in found or (found and not fits):
                break
            found |= dict.fromkeys(range(word, ends[word]), start)
            word = ends[word]
    return found
