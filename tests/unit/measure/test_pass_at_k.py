from itertools import combinations
from math import comb

import pytest

from ensue.core.errors import InputError
from ensue.measure.pass_at_k import mean_pass_rate, pass_at_k, wilson


def test_values_computed_by_hand():
    assert pass_at_k(1, 0, 1) == 0 and pass_at_k(1, 1, 1) == 1
    assert pass_at_k(10, 3, 1) == pytest.approx(0.3)
    assert pass_at_k(4, 1, 2) == pytest.approx(1 / 2)  # 1 − C(3,2)/C(4,2) = 1 − 3/6
    assert pass_at_k(5, 2, 3) == pytest.approx(9 / 10)  # 1 − 1/10
    assert pass_at_k(5, 3, 3) == 1  # any three of five include a right one
    assert pass_at_k(200, 1, 100) == pytest.approx(0.5)


def test_it_is_the_share_of_all_draws_of_k_that_include_a_right_program():
    for n in range(1, 8):
        for c in range(n + 1):
            for k in range(1, n + 1):
                draws = [any(program < c for program in draw) for draw in combinations(range(n), k)]
                assert pass_at_k(n, c, k) == pytest.approx(sum(draws) / len(draws))


def test_it_is_unbiased_where_the_plain_formula_is_not():
    p, n, k = 0.3, 6, 3
    weights = {c: comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)}
    assert sum(w * pass_at_k(n, c, k) for c, w in weights.items()) == pytest.approx(1 - (1 - p) ** k)
    assert sum(w * (1 - (1 - c / n) ** k) for c, w in weights.items()) < 1 - (1 - p) ** k - 0.01


@pytest.mark.parametrize("k", [0, 4])
def test_k_beyond_the_samples_is_refused(k):
    with pytest.raises(InputError, match=f"pass@{k} needs"):
        pass_at_k(3, 1, k)


def test_the_mean_over_problems_and_its_interval():
    rate = mean_pass_rate([(4, 1), (4, 4), (4, 0)], 2)
    assert rate.value == pytest.approx((0.5 + 1 + 0) / 3) and 0 < rate.low < rate.value < rate.high < 1
    assert rate.error == pytest.approx((0.25 / 3) ** 0.5)  # √(s² / n), s² = (0² + ½² + ½²) / 2
    low, high = wilson(0.0, 164)
    assert low == 0 and high == pytest.approx(0.0229, abs=1e-4)  # z² / (n + z²)
    assert wilson(1.0, 5)[1] == 1
