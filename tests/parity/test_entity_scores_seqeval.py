"""Scores of entities are seqeval's in its default mode, also of tags that fit badly."""

import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensue.measure.entities import entity_scores, spans_of

seqeval = pytest.importorskip("seqeval.metrics")
TAGS = st.sampled_from(["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-a-b", "I-a-b", "B", "I"])


@st.composite
def tagged(draw):
    """Sentences of any tags in any order, and others that differ from them in a few places."""
    wanted = draw(st.lists(st.lists(TAGS, min_size=1, max_size=10), min_size=1, max_size=5))
    changed = draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9), TAGS), max_size=12))
    predicted = [list(sentence) for sentence in wanted]
    for sentence, word, tag in changed:
        if sentence < len(wanted) and word < len(wanted[sentence]):
            predicted[sentence][word] = tag
    return wanted, predicted


@settings(max_examples=200, deadline=None, derandomize=True)
@given(tagged())
def test_all_figures(drawn):
    wanted, predicted = drawn
    scores = entity_scores(wanted, predicted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of figures without entities
        assert scores.precision == pytest.approx(seqeval.precision_score(wanted, predicted))
        assert scores.recall == pytest.approx(seqeval.recall_score(wanted, predicted))
        assert scores.f1 == pytest.approx(seqeval.f1_score(wanted, predicted))
        assert scores.accuracy == pytest.approx(seqeval.accuracy_score(wanted, predicted))
        if scores.per_type:  # seqeval's report of nothing is an error
            report = seqeval.classification_report(wanted, predicted, output_dict=True)
            assert {row["name"] for row in scores.per_type} == {name for name in report if " avg" not in name}
        for row in scores.per_type:
            theirs = report[row["name"]]
            ours = [row["precision"], row["recall"], row["f1"], row["count"]]
            assert ours == pytest.approx([theirs[k] for k in ("precision", "recall", "f1-score", "support")])


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(TAGS, max_size=12))
def test_spans(tags):
    labeling = pytest.importorskip("seqeval.metrics.sequence_labeling")
    assert spans_of(tags) == [(type_, first, last + 1) for type_, first, last in labeling.get_entities(tags)]
