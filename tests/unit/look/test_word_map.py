import numpy as np
import pytest

from ensue.core.errors import InputError
from ensue.data.word_vectors import WordVectors
from ensue.look.word_map import draw_map, map_numbers, parallel, parse_pairs

# royalty, sex and something else; a relation is a direction
ROYAL, WOMAN = np.array([0, 3.0, 0, 0]), np.array([0, 0, 2.0, 0])
MAN = np.array([1.0, 0, 0, 0])
TABLE = WordVectors(
    ["the", "man", "woman", "king", "queen", "bread"],
    np.array([np.ones(4), MAN, MAN + WOMAN, MAN + ROYAL, MAN + ROYAL + WOMAN, [0, 0, 0, 5.0]]),
)
PAIRS = [("man", "woman"), ("king", "queen")]


def test_a_relation_is_a_direction():
    assert parallel(TABLE, PAIRS) > 0.6
    assert parallel(TABLE, [("man", "woman"), ("woman", "man")]) == pytest.approx(-1)
    assert parallel(TABLE, PAIRS[:1]) is None


def test_the_words_of_pairs_are_on_the_map():
    numbers = map_numbers(TABLE, ["bread", "king"], PAIRS)
    assert [row["word"] for row in numbers["words"]] == ["bread", "king", "man", "woman", "queen"]
    assert len(numbers["variance"]) == 2 and numbers["divergence"] is None
    svg = draw_map(numbers, "a run").to_dict()
    assert "of the variance" in str(svg) and "Mean cosine between the arrows" in str(svg["title"])


def test_the_default_words_are_the_first_of_the_table():
    assert [row["word"] for row in map_numbers(TABLE)["words"]] == TABLE.words


def test_tsne_reports_its_divergence():
    numbers = map_numbers(TABLE, method="tsne")
    assert numbers["variance"] is None and numbers["divergence"] >= 0


def test_invalid_words_pairs_and_methods_are_refused():
    assert parse_pairs("king:queen man:woman") == [("king", "queen"), ("man", "woman")]
    for wrong in ("king", "king:", ":queen", "king:king"):
        with pytest.raises(InputError, match="is not a pair of words"):
            parse_pairs(wrong)
    with pytest.raises(InputError, match="unknown method 'tsnee'; did you mean 'tsne'"):
        map_numbers(TABLE, method="tsnee")
    with pytest.raises(InputError, match="the word 'kin' has no vector; did you mean king"):
        map_numbers(TABLE, ["kin", "man"])
    with pytest.raises(InputError, match="a map needs two words"):
        map_numbers(TABLE, ["man"])
