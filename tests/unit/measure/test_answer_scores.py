import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensue.core.errors import InputError
from ensue.measure.answers import answer_scores, exact, normalised, overlap_f1


@pytest.mark.parametrize(
    "text, plain",
    [
        ("The  quick, brown fox!", "quick brown fox"),
        ("an apple a day", "apple day"),
        ("Theatre", "theatre"),  # an article is a whole word
        ("U.S.A.", "usa"),
        ("the-end", "theend"),  # punctuation goes first, so nothing is left of the article
        ("«Été» – 5 %", "«été» – 5"),  # only ASCII's punctuation goes
        ("  \n", ""),
        ("The", ""),
    ],
)
def test_normalised(text, plain):
    assert normalised(text) == plain


def test_exact_and_overlap_by_hand():
    assert exact("Denver Broncos!", ["the Denver Broncos", "Broncos"]) and not exact("Denver", ["Denver Broncos"])
    # 2 words in common, 3 given, 4 wanted: P = 2/3, R = 1/2
    assert overlap_f1("red blue green", ["blue red white black"]) == pytest.approx(2 * (2 / 3) * 0.5 / (2 / 3 + 0.5))
    assert overlap_f1("red red", ["red"]) == pytest.approx(2 / 3)  # a word counts as often as both have it
    assert overlap_f1("x y", ["x", "x y", "z"]) == 1


def test_a_question_without_answer_wants_the_empty_text():
    assert exact("", []) and exact("the", []) and not exact("Paris", [])
    assert overlap_f1("", []) == 1 and overlap_f1("Paris", []) == 0 and overlap_f1("", ["Paris"]) == 0


def test_version_1_has_no_parts():
    made = answer_scores({"a": "x", "b": "y z", "more": "?"}, {"a": ["x"], "b": ["y"]}).as_dict()
    assert made == {"exact_match": 50, "f1": pytest.approx(100 * (1 + 2 / 3) / 2), "total": 2}


PREDICTIONS = {"a": "x", "b": "y z", "c": "something", "d": "more"}
WANTED = {"a": ["x"], "b": ["y"], "c": [], "d": []}


def test_version_2_in_parts():
    made = answer_scores({**PREDICTIONS, "d": ""}, WANTED).as_dict()
    assert made == {
        "exact_match": 50,
        "f1": pytest.approx(100 * (1 + 2 / 3 + 0 + 1) / 4),
        "total": 4,
        "has_answer": {"exact_match": 50, "f1": pytest.approx(100 * (1 + 2 / 3) / 2), "total": 2},
        "no_answer": {"exact_match": 50, "f1": 50, "total": 2},
    }
    assert json.loads(json.dumps(made)) == made


def test_best_thresholds_by_hand():
    scores = answer_scores(PREDICTIONS, WANTED, {"a": 0.1, "c": 0.3, "b": 0.5, "d": 0.9})
    # silent 2 right; with a 3; c costs one; b brings 2/3 of F1, not enough to make up for c
    assert (scores.best_exact, scores.best_exact_threshold) == (75, 0.1)
    assert (scores.best_f1, scores.best_f1_threshold) == (75, 0.1)
    scores = answer_scores(PREDICTIONS, WANTED, {"a": 0.1, "b": 0.3, "c": 0.5, "d": 0.9})
    assert (scores.best_exact, scores.best_exact_threshold) == (75, 0.1)
    assert (scores.best_f1, scores.best_f1_threshold) == (pytest.approx(100 * (3 + 2 / 3) / 4), 0.3)


def test_a_threshold_empties_answers():
    no_answer = {"a": 0.1, "b": 0.3, "c": 0.5, "d": 0.9}
    assert answer_scores(PREDICTIONS, WANTED, no_answer).no_answer.exact_match == 0
    assert answer_scores(PREDICTIONS, WANTED, no_answer, threshold=0.5).no_answer.exact_match == 50
    emptied = answer_scores(PREDICTIONS, WANTED, no_answer, threshold=0.2)
    assert emptied.no_answer.exact_match == 100 and emptied.has_answer.f1 == 50


TEXTS = st.sampled_from(["", "the", "x", "x y", "y z", "The X."])


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(st.tuples(TEXTS, st.lists(TEXTS, max_size=2), st.integers(-2, 2)), min_size=1, max_size=8))
def test_the_best_figures_are_reached_by_their_thresholds_and_by_none_better(rows):
    """Also where scores are equal or negative."""
    predictions, wanted, no_answer = ({str(i): row[k] for i, row in enumerate(rows)} for k in range(3))
    scores = answer_scores(predictions, wanted, no_answer)
    for name, best in (("exact_match", scores.best_exact), ("f1", scores.best_f1)):
        at = scores.best_exact_threshold if name == "exact_match" else scores.best_f1_threshold
        assert getattr(answer_scores(predictions, wanted, no_answer, threshold=at), name) == pytest.approx(best)
        others = [answer_scores(predictions, wanted, no_answer, threshold=t) for t in (-3, -2, -1, 0, 1, 2)]
        assert max(getattr(other, name) for other in others) == pytest.approx(best)


@pytest.mark.parametrize(
    "predictions, no_answer, message",
    [
        ({"a": "x"}, None, "1 of 2 questions have no prediction, first 'b'"),
        ({"a": "x", "b": "y"}, {"b": 0.5}, "1 of 2 questions have no no-answer score, first 'a'"),
        ({"a": "x", "b": "y"}, {"a": math.nan, "b": 0.5}, "first 'a'"),
    ],
)
def test_missing_tensors_are_errors_that_name_them(predictions, no_answer, message):
    with pytest.raises(InputError, match=message):
        answer_scores(predictions, {"a": ["x"], "b": []}, no_answer)


def test_no_questions_are_an_error():
    with pytest.raises(InputError, match="no questions"):
        answer_scores({}, {})
