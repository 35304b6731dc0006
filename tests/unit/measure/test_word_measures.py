"""Neighbours, analogies and scores on vectors made by hand."""

import numpy as np
import pytest

from ensue.core.errors import InputError
from ensue.data.word_benchmarks import AnalogySection, WordSimilarity
from ensue.data.word_vectors import WordVectors
from ensue.measure.words import SectionScore, analogy, analogy_score, neighbours, similarity_score

ROYAL = WordVectors(
    ["king", "man", "woman", "queen", "apple", "nothing"],
    np.array([[2.0, 1, 0], [2, 0, 0], [0, 0, 2], [0, 1, 2], [-1, -1, -1], [0, 0, 0]]),
)


def test_r10_cosine_and_analogy():
    """cos θ = A·B / (‖A‖ ‖B‖); king − man + woman ≈ queen."""
    assert neighbours(ROYAL, "king", 1)[0] == ("man", pytest.approx(2 / 5**0.5))
    assert analogy(ROYAL, "king", "man", "woman", 1)[0][0] == "queen"
    unit = ROYAL.unit
    wanted = unit[0] - unit[1] + unit[2]
    assert analogy(ROYAL, "king", "man", "woman", 1)[0][1] == pytest.approx(wanted @ unit[3] / np.linalg.norm(wanted))


def test_words_of_the_question_and_zero_vectors_are_never_answers():
    words = [word for word, _ in analogy(ROYAL, "king", "man", "woman", 10)]
    assert words == ["queen", "apple"]
    assert [word for word, _ in neighbours(ROYAL, "king", 10)] == ["man", "queen", "woman", "apple"]
    with pytest.raises(InputError, match="zero vector has no direction"):
        neighbours(ROYAL, "nothing")


def test_similarity_is_scored_over_pairs_with_vectors_and_counts_the_others():
    pairs = [
        WordSimilarity("king", "man", 9.0),
        WordSimilarity("king", "Queen", 5.0),
        WordSimilarity("king", "apple", 1.0),
    ]
    score = similarity_score(ROYAL, [*pairs, WordSimilarity("king", "pear", 3.0), WordSimilarity("plum", "pear", 3.0)])
    assert score.spearman == 1.0 and 0.9 < score.pearson < 1
    assert (score.pairs, score.missing, score.missing_words) == (3, 2, ("pear", "plum"))
    with pytest.raises(InputError, match="of 1 pairs 0 have vectors"):
        similarity_score(ROYAL, [WordSimilarity("plum", "pear", 3.0)])


def test_analogies_by_section():
    right, wrong = ("man", "king", "woman", "queen"), ("man", "king", "woman", "apple")
    sections = [AnalogySection("one", (right, wrong)), AnalogySection("two", (right, ("man", "king", "woman", "pear")))]
    one, two, whole = analogy_score(ROYAL, sections)
    assert (one.right, one.asked, one.missing, one.accuracy) == (1, 2, 0, 0.5)
    assert (two.right, two.asked, two.missing, two.accuracy) == (1, 1, 1, 1.0)
    assert (whole.name, whole.right, whole.asked, whole.missing) == ("all", 2, 3, 1)
    assert SectionScore("none", right=0, asked=0, missing=1).accuracy == 0.0
    with pytest.raises(InputError, match="of 1 questions none has vectors for all its words"):
        analogy_score(ROYAL, [AnalogySection("none", (("a", "b", "c", "d"),))])
