"""Pearson's and Spearman's correlations are scipy's, except that a constant side gives 0 and not NaN."""

import math
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensue.measure.correlation import pearson, ranks, spearman

stats = pytest.importorskip("scipy.stats")

FEW = st.integers(0, 4).map(float)  # ties are frequent
MANY = st.floats(-1e3, 1e3, allow_nan=False).map(lambda value: round(value, 6))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.one_of(*(st.lists(st.tuples(a, b), min_size=2, max_size=30) for a in (FEW, MANY) for b in (FEW, MANY))))
def test_correlations(pairs):
    a, b = zip(*pairs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of constant sides
        expected = [stats.pearsonr(a, b).statistic, stats.spearmanr(a, b).statistic]
    for found, value in zip((pearson(a, b), spearman(a, b)), expected):
        assert found == pytest.approx(0.0 if math.isnan(value) else value, rel=0, abs=1e-9)
    assert ranks(a).tolist() == stats.rankdata(a).tolist()
