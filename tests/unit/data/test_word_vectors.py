import numpy as np
import pytest

from ensue.core.errors import InputError
from ensue.data.word_vectors import WordVectors

TABLE = WordVectors(["the", "King", "queen"], np.array([[1.0, 0], [0, 2], [3, 4]]))


def test_words_have_rows_and_unit_vectors():
    assert TABLE.index_of("queen") == 2 and TABLE.index_of("The") == 0
    assert TABLE.unit[1] @ TABLE.unit[2] == pytest.approx(0.8)


def test_a_zero_vector_is_similar_to_nothing():
    assert (WordVectors(["a", "b"], np.array([[0.0, 0], [1, 1]])).unit[0] == 0).all()


def test_r1_one_hot_vectors_have_no_notion_of_similarity():
    table = WordVectors(["motel", "hotel", "the"], np.eye(3))
    assert table.unit[table.index_of("motel")] @ table.unit[table.index_of("hotel")] == 0
    assert table.matrix.shape[1] == len(table.words)


def test_the_error_for_a_word_without_a_vector_suggests_similar_ones():
    with pytest.raises(InputError, match="the word 'queens' has no vector; did you mean queen"):
        TABLE.index_of("queens")
    assert TABLE.suggest("xyz") == [] and TABLE.find("xyz") is None
