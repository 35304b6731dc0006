"""Interleaved scoring gives the same scores as looking up row by row, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ensue.models.ngram import NGram, NGramConfig
from ensue.models.ngram_lookup import BACKOFF, Tables, look_up, read
from ensue.models.ngram_scoring import score_interleaved, sizes_after
from ensue.train.counting import count

VOCABULARY = 40


def fitted(order: int, end: int) -> NGram:
    draw = np.random.default_rng(order)
    tokens = np.minimum(draw.geometric(0.12, 20_000) - 1, VOCABULARY - 1)
    counter = NGram(NGramConfig(vocabulary=VOCABULARY, order=order, end=end)).counter()
    count(counter, np.concatenate([[max(end, 0)], tokens]).astype(np.int32))
    return counter.finish()


def plain_scores(
    tables: Tables, end: int, before: Any, tokens: Any, targets: Any, lengths: Any
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The scores (B, T), 0 at padding, and the sizes of the last contexts (B,)."""
    nodes, sizes = read(tables, end, before, tokens, lengths)
    scores = look_up(tables, BACKOFF, (nodes[:, 1:].ravel(), sizes[:, 1:].ravel()), targets.ravel())
    real = np.arange(tokens.shape[1]) < lengths[:, None]
    return np.where(real, scores.reshape(tokens.shape), np.float32(0)), sizes[:, -1]


@pytest.mark.parametrize("followed", [True, False], ids=["targets are read next", "targets are any words"])
@pytest.mark.parametrize("end", [0, -1], ids=["with an end token", "without"])
@pytest.mark.parametrize("order", [1, 2, 5])
def test_interleaved_scores_equal_plain_look_up(order: int, end: int, followed: bool) -> None:
    model, draw = fitted(order, end), np.random.default_rng(7)
    rows, steps, most = 9, 50, order - 1
    words = np.minimum(draw.geometric(0.1, (rows, steps + 1)) - 1, VOCABULARY - 1)
    tokens, targets = words[:, :-1].copy(), words[:, 1:].copy()
    if not followed:
        targets[:, ::3] = draw.integers(0, VOCABULARY, targets[:, ::3].shape)
    lengths = draw.integers(0, steps + 1, rows)
    lengths[:2] = 0, steps
    past, known = draw.integers(1, VOCABULARY, (rows, most)), draw.integers(0, most + 1, rows)
    tables = model._tables()
    plain, sizes = plain_scores(tables, end, (past, known), tokens, targets, lengths)
    nodes, _ = read(tables, end, (past, known), tokens[:, :0], lengths)
    interleaved = np.zeros((rows, steps), np.float32)
    score_interleaved(tables, end, nodes[:, 0], tokens, targets, lengths, interleaved)
    assert np.array_equal(plain, interleaved)
    assert (plain[1] < 0).all() and (plain[0] == 0).all()
    assert np.array_equal(sizes, sizes_after(end, known, tokens, lengths, most))


def test_a_context_with_more_words_than_a_cache_line_is_searched() -> None:
    size = 3000
    tokens = np.array([0, *(part for word in range(1, size, 2) for part in (1, word)), 0])
    counter = NGram(NGramConfig(vocabulary=size, order=2, end=0)).counter()
    count(counter, tokens)
    tables = counter.finish()._tables()
    lengths, read_ = np.array([size]), np.ones((1, size), np.int64)
    targets = np.arange(size)[None]
    before = (np.zeros((1, 1), np.int64), np.array([1]))
    plain, _ = plain_scores(tables, 0, before, read_, targets, lengths)
    interleaved = np.zeros((1, size), np.float32)
    score_interleaved(tables, 0, np.array([0]), read_, targets, lengths, interleaved)
    assert np.array_equal(plain, interleaved)
    assert len(np.unique(plain)) > 2
