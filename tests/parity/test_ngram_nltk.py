"""nltk's Lidstone, MLE and StupidBackoff give the same numbers wherever contexts are full."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch
from nltk.lm import MLE, Lidstone, StupidBackoff
from nltk.util import everygrams

from ensue.models.ngram import Mode, NGram, NGramConfig
from ensue.nn.recent import RecentTokens
from ensue.train.counting import count

ORDER, VOCABULARY = 3, 6
STREAM = np.random.default_rng(3).zipf(1.5, 300) % (VOCABULARY - 1)


def ours(mode: Mode) -> NGram:
    config = NGramConfig(vocabulary=VOCABULARY, order=ORDER, mode=mode, delta=0.3, alpha=0.4)
    counter = NGram(config).counter()
    count(counter, STREAM)
    return counter.finish()


def fit(theirs: MLE | Lidstone | StupidBackoff) -> MLE | Lidstone | StupidBackoff:
    """One text without padding; ``<UNK>``, a word of nltk's vocabulary, stands for our last."""
    words = [str(word) for word in STREAM]
    theirs.fit([list(everygrams(words, max_len=ORDER))], words)
    assert len(theirs.vocab) == VOCABULARY
    return theirs


def name(word: int) -> str:
    return "<UNK>" if word == VOCABULARY - 1 else str(word)


def probabilities(model: NGram, context: tuple[int, ...]) -> torch.Tensor:
    empty = RecentTokens.empty(1, ORDER - 1)
    logits = model(torch.tensor([context]), empty, want=("last",)).logits
    return logits[0, 0].double().exp()


CONTEXTS = list(product(range(VOCABULARY), repeat=ORDER - 1))


def test_add_delta_is_lidstone() -> None:
    model, theirs = ours("add"), fit(Lidstone(0.3, ORDER))
    for context in CONTEXTS:
        expected = [theirs.score(name(word), [name(w) for w in context]) for word in range(VOCABULARY)]
        assert probabilities(model, context).tolist() == pytest.approx(expected, rel=1e-5)


def test_relative_frequencies_are_mle_where_the_context_was_seen() -> None:
    model, theirs = ours("mle"), fit(MLE(ORDER))
    seen = 0
    for context in CONTEXTS:
        expected = [theirs.score(name(word), [name(w) for w in context]) for word in range(VOCABULARY)]
        if sum(expected) > 0:
            seen += 1
            assert probabilities(model, context).tolist() == pytest.approx(expected, rel=1e-5, abs=1e-9)
    assert seen > 10


def test_stupid_backoff_itself_and_its_normalised_form() -> None:
    model, theirs = ours("backoff"), fit(StupidBackoff(alpha=0.4, order=ORDER))
    for context in CONTEXTS:
        words = range(VOCABULARY - 1)
        expected = [theirs.score(name(word), [name(w) for w in context]) for word in words]
        scores = model.backoff_scores(context, range(VOCABULARY)).double().exp()
        assert scores[:-1].tolist() == pytest.approx(expected, rel=1e-4)
        torch.testing.assert_close(probabilities(model, context), scores / scores.sum(), rtol=1e-4, atol=1e-7)


def test_unseen_words_of_stupid_backoff_have_a_share() -> None:
    score = ours("backoff").backoff_scores([], [VOCABULARY - 1])
    assert score.item() == pytest.approx(math.log(0.4 / VOCABULARY), abs=1e-5)
