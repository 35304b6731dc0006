"""Do a word's contexts part by its senses: nearest neighbours, leave one out."""

import numpy as np
import pytest

from ensue.core.errors import InputError
from ensue.measure.senses import sense_score, similarities

SENSES = ["river"] * 3 + ["money"] * 5


def test_neighbours_of_the_same_sense_count():
    chance = np.random.default_rng(0)
    centres = np.array([[1.0, 0.0, 0.0]] * 3 + [[0.0, 1.0, 0.0]] * 5)
    score = sense_score(centres + 0.05 * chance.standard_normal(centres.shape), SENSES)
    assert score.accuracy == 1.0 and not score.identical


def test_equal_vectors_have_exactly_the_accuracy_of_chance():
    score = sense_score(np.ones((8, 4), dtype=np.float32), SENSES)
    assert score.identical
    assert score.accuracy == pytest.approx(score.chance) == pytest.approx((3 * 2 + 5 * 4) / (8 * 7))


def test_neighbours_are_ranked_by_cosine_without_the_word_itself():
    near = similarities(np.array([[1.0, 0.0], [5.0, 0.0], [0.0, 2.0]]))
    assert near[0, 1] == pytest.approx(1) and near[0, 2] == pytest.approx(0) and np.isneginf(near.diagonal()).all()


def test_a_single_sense_is_rejected():
    with pytest.raises(InputError, match="two senses"):
        sense_score(np.eye(3), ["a", "a", "a"])
