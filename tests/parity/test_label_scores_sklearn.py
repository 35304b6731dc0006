"""Figures of labels are scikit-learn's with ``zero_division=0``, to 1e-12."""

import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensue.measure.labels import label_scores

metrics = pytest.importorskip("sklearn.metrics")


@st.composite
def labels(draw):
    """Some classes, and rows of which each side may use only a few: many are never wanted or never given."""
    classes = draw(st.integers(1, 6))
    sides = [draw(st.lists(st.integers(0, classes - 1), min_size=1, max_size=classes)) for _ in range(2)]
    rows = st.tuples(*map(st.sampled_from, sides))
    return classes, draw(st.lists(rows, min_size=1, max_size=30))


@settings(max_examples=120, deadline=None, derandomize=True)
@given(labels())
def test_all_figures(drawn):
    classes, rows = drawn
    wanted, predicted = zip(*rows)
    places = list(range(classes))
    scores = label_scores(wanted, predicted, [str(k) for k in places])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn says where it divides by zero, or sees one class
        precision, recall, f1, count = metrics.precision_recall_fscore_support(
            wanted, predicted, labels=places, zero_division=0
        )
        macro = metrics.f1_score(wanted, predicted, average="macro", zero_division=0)
        matthews = metrics.matthews_corrcoef(wanted, predicted)
        if classes == 2:
            expected = metrics.f1_score(wanted, predicted, labels=places, pos_label=1, zero_division=0)
        else:
            expected = macro
        table = metrics.confusion_matrix(wanted, predicted, labels=places)
    close = {"rel": 0, "abs": 1e-12}
    assert [row["precision"] for row in scores.per_class] == pytest.approx(list(precision), **close)
    assert [row["recall"] for row in scores.per_class] == pytest.approx(list(recall), **close)
    assert [row["f1"] for row in scores.per_class] == pytest.approx(list(f1), **close)
    assert [row["count"] for row in scores.per_class] == list(count)
    assert [row["predicted"] for row in scores.per_class] == list(table.sum(0))
    assert scores.accuracy == pytest.approx(metrics.accuracy_score(wanted, predicted), **close)
    assert scores.macro_f1 == pytest.approx(macro, **close)
    assert scores.f1 == pytest.approx(expected, **close)
    assert scores.matthews == pytest.approx(matthews, **close)
    assert scores.confusion == table.tolist()
