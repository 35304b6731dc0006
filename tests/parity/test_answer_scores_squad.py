"""Exact match and F1 are those of SQuAD's scripts, which transformers keeps."""

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensue.measure.answers import answer_scores, exact, normalised, overlap_f1

squad = pytest.importorskip("transformers.data.metrics.squad_metrics")

WORDS = st.sampled_from(["the", "The", "a", "an", "red", "Red", "red,", "blue", "U.S.", "-", "été", "«x»", "then"])
TEXTS = st.lists(WORDS, max_size=4).map(" ".join)
CLOSE = {"rel": 1e-12, "abs": 1e-12}


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.text(max_size=20), TEXTS)
def test_normalising(anything, words):
    for text in (anything, words, anything + words):
        assert normalised(text) == squad.normalize_answer(text)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(TEXTS, TEXTS.filter(normalised))
def test_one_answer(answer, wanted):
    assert exact(answer, [wanted]) == squad.compute_exact(wanted, answer)
    assert overlap_f1(answer, [wanted]) == pytest.approx(squad.compute_f1(wanted, answer), **CLOSE)


@st.composite
def questions(draw):
    """Predictions, wanted answers and scores of having none, no two equal: theirs counts ties in part."""
    number = draw(st.integers(1, 8))
    predictions = [draw(TEXTS) for _ in range(number)]
    # a wanted answer is never the empty text; it may have nothing left when normalised
    wanted = [draw(st.lists(TEXTS.filter(bool), max_size=3)) for _ in range(number)]
    order = draw(st.permutations(range(1, number + 1)))
    keys = [f"q{place}" for place in range(number)]
    return tuple(dict(zip(keys, side)) for side in (predictions, wanted, [place / 10 for place in order]))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(questions(), st.sampled_from([0.0, 0.35, 1.0]))
def test_all_figures(drawn, threshold):
    predictions, wanted, no_answer = drawn
    # theirs counts an answer such as "the" to a question without one as wrong where it looks for thresholds only
    predictions = {key: text if normalised(text) else "" for key, text in predictions.items()}
    examples = [
        SimpleNamespace(qas_id=key, answers=[{"text": text} for text in texts]) for key, texts in wanted.items()
    ]
    theirs = squad.squad_evaluate(examples, predictions, no_answer, threshold)
    ours = answer_scores(predictions, wanted, no_answer, threshold=threshold)
    assert (ours.exact_match, ours.f1) == pytest.approx((theirs["exact"], theirs["f1"]), **CLOSE)
    assert ours.total == theirs["total"]
    for part, name in ((ours.has_answer, "HasAns"), (ours.no_answer, "NoAns")):
        if part is not None:
            expected = [theirs[f"{name}_{figure}"] for figure in ("exact", "f1", "total")]
            assert [part.exact_match, part.f1, part.total] == pytest.approx(expected, **CLOSE)
    assert (ours.has_answer is not None) == ("HasAns_f1" in theirs and "NoAns_f1" in theirs)
    assert (ours.no_answer is not None) == ("NoAns_f1" in theirs)
    best = [ours.best_exact, ours.best_exact_threshold, ours.best_f1]
    assert best == pytest.approx([theirs[key] for key in ("best_exact", "best_exact_thresh", "best_f1")], **CLOSE)
    # of two thresholds that are equally good but for rounding either may be named
    at_ours = squad.squad_evaluate(examples, predictions, no_answer, ours.best_f1_threshold)
    assert at_ours["f1"] == pytest.approx(theirs["best_f1"], **CLOSE)
