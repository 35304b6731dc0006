import math

import numpy as np
import pytest

from ensue.core.errors import InputError
from ensue.measure.correlation import pearson, ranks, spearman


def test_by_hand():
    # Σ(a−ā)(b−b̄) = 6, Σ(a−ā)² = 10, Σ(b−b̄)² = 6
    assert pearson([1, 2, 3, 4, 5], [2, 4, 5, 4, 5]) == pytest.approx(6 / math.sqrt(60))
    # ranks of b are 1, 2.5, 4.5, 2.5, 4.5: covariance 7, spreads 10 and 9
    assert ranks([2, 4, 5, 4, 5]).tolist() == [1, 2.5, 4.5, 2.5, 4.5]
    assert spearman([1, 2, 3, 4, 5], [2, 4, 5, 4, 5]) == pytest.approx(7 / math.sqrt(90))


def test_a_line_has_correlation_one_and_spearman_depends_on_order_only():
    a = np.arange(1.0, 9)
    assert pearson(a, 3 * a - 7) == pytest.approx(1) and pearson(a, -a) == pytest.approx(-1)
    assert spearman(a, np.exp(a)) == pytest.approx(1) and pearson(a, np.exp(a)) < 0.9


@pytest.mark.parametrize("measure", [pearson, spearman])
def test_a_constant_side_gives_zero(measure):
    assert measure([1.0, 2.0, 3.0], [0.1, 0.1, 0.1]) == measure([0.1] * 3, [0.1] * 3) == measure([4], [5]) == 0.0


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e160, 1e300])
def test_very_small_and_very_large_numbers_do_not_overflow(scale):
    a, b = np.array([1.0, 2, 3, 4]), np.array([1.0, 3, 2, 5])
    assert pearson(a * scale, b) == pytest.approx(pearson(a, b), rel=1e-12)


@pytest.mark.parametrize("measure", [pearson, spearman])
@pytest.mark.parametrize("a, b", [([1, 2], [1]), ([], []), ([1, math.nan], [1, 2]), ([1, 2], [1, math.inf])])
def test_numbers_without_correlation_are_rejected(measure, a, b):
    with pytest.raises(InputError):
        measure(a, b)
