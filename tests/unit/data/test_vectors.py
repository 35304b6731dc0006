import numpy as np
import pytest

from ensue.core.errors import InputError
from ensue.data.vectors import WordVectors

TABLE = WordVectors(["the", "King", "queen", "the"], np.array([[1.0, 0], [0, 2], [3, 4], [9, 9]]))


def test_words_have_rows_and_cosines():
    assert TABLE.place("queen") == 2 and TABLE.place("the") == 0
    assert np.isclose(TABLE.cosine("King", "queen"), 0.8)
    assert TABLE.chosen(["queen", "the"]).vectors.tolist() == [[3, 4], [1, 0]]


def test_a_vector_of_zeros_is_like_nothing():
    assert WordVectors(["a", "b"], np.array([[0.0, 0], [1, 1]])).cosine("a", "b") == 0


def test_r1_one_hot_vectors_have_no_notion_of_similarity():
    table = WordVectors(["motel", "hotel", "the"], np.eye(3))
    assert table.cosine("motel", "hotel") == 0 and table.vectors.shape[1] == len(table.words)


def test_a_word_without_a_vector_gets_the_nearest():
    with pytest.raises(InputError, match="there is no vector for 'queens'; near it: queen"):
        TABLE.place("queens")
    with pytest.raises(InputError, match="near it: King"):
        TABLE.place("king")
    with pytest.raises(InputError, match="there are 4 others"):
        TABLE.place("xyz")


def test_words_and_vectors_must_be_as_many():
    with pytest.raises(InputError, match=r"2 words and vectors of the shape \(1, 2\)"):
        WordVectors(["a", "b"], np.zeros((1, 2)))
