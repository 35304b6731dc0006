"""Intervals cover what they should; tests find what is there and nothing else."""

import math

import numpy as np
import pytest
from scipy import stats

from ensue.measure.intervals import (
    bootstrap_mean,
    holm,
    mean_interval,
    permutation_p,
    shuffled_within,
    student_quantile,
    wilson,
)


def test_wilson_is_the_published_formula():
    expected = stats.binomtest(56, 100).proportion_ci(method="wilson")
    assert wilson(56, 100) == pytest.approx((expected.low, expected.high), abs=1e-6)
    assert wilson(0, 10)[0] == 0.0 and wilson(10, 10)[1] == pytest.approx(1.0)
    assert wilson(0, 0) == (0.0, 1.0)


def test_student_quantiles():
    for degrees in (1, 5, 10, 11, 30, 200):
        assert student_quantile(degrees) == pytest.approx(stats.t.ppf(0.975, degrees), rel=2e-3)


def test_wilson_covers_95_percent():
    random = np.random.default_rng(0)
    for n, p in ((40, 0.5), (100, 0.57)):
        ends = [wilson(k, n) for k in random.binomial(n, p, size=2000)]
        assert 0.93 < np.mean([low <= p <= high for low, high in ends]) < 0.98


def test_the_bootstrap_covers_95_percent():
    random = np.random.default_rng(1)
    ends = [bootstrap_mean(random.choice([-1.0, 0.0, 1.0], size=32), samples=400, seed=i) for i in range(500)]
    assert 0.92 < np.mean([low <= 0 <= high for low, high in ends]) < 0.98


def test_the_mean_interval_covers_95_percent_of_six_templates():
    random = np.random.default_rng(2)
    ends = [mean_interval(random.normal(1.0, 0.3, size=6))[1:] for _ in range(1000)]
    assert 0.93 < np.mean([low <= 1.0 <= high for low, high in ends]) < 0.97
    assert mean_interval([2.0]) == (2.0, -math.inf, math.inf)


def test_shuffles_stay_within_their_stratum():
    strata = np.array([1, 0, 1, 0, 2, 1])
    order = shuffled_within(strata, np.random.default_rng(0))
    assert sorted(order.tolist()) == list(range(6))
    assert (strata[order] == strata).all()


def test_the_permutation_test_is_exact_where_nothing_differs():
    random = np.random.default_rng(3)
    groups, strata = np.repeat([0, 1], 20), np.tile([0, 1], 20)
    p = [permutation_p(random.normal(size=40), groups, strata, samples=99, seed=i)[0] for i in range(300)]
    assert np.mean(np.array(p) <= 0.05) < 0.09
    assert 0.4 < np.mean(p) < 0.6


def test_the_permutation_test_finds_a_difference_but_not_one_between_templates():
    random = np.random.default_rng(4)
    strata = np.repeat([0, 1], 40)
    by_group = np.tile([0, 1], 40)
    values = random.normal(size=80) + 3.0 * strata  # templates differ, groups do not
    assert permutation_p(values, by_group, strata, samples=500)[0] > 0.05
    assert permutation_p(values + 1.5 * by_group, by_group, strata, samples=500)[0] < 0.01


def test_holm():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
