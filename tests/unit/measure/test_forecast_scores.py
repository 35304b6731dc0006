"""Measures of forecasts, by hand."""

import numpy as np
import pytest

from ensue.data.series_encoding import seasonal_scale
from ensue.measure.forecast import error_band, pinball, score_forecasts

TRUTH = np.array([[[1.0], [2.0]], [[3.0], [5.0]]])  # (N, H, Y) = (2, 2, 1)
FOUND = np.array([[[[1.0]], [[4.0]]], [[[2.0]], [[5.0]]]])


def scored(found=FOUND, real=None, levels=(0.5,), **how):
    real = np.ones(TRUTH.shape, bool) if real is None else real
    how = {"names": ["x"], "seasonal": np.array([0.5]), "deviation": np.array([2.0])} | how
    return score_forecasts(found, TRUTH, real, levels, **how)


def test_the_measures_of_four_forecasts():
    found = scored()
    assert found.mse == pytest.approx((0 + 4 + 1 + 0) / 4) and found.mae == pytest.approx(3 / 4)
    assert found.mase == pytest.approx(1.5) and found.pinball == pytest.approx(3 / 8)
    assert found.scaled_mse == pytest.approx(found.mse / 4) and found.coverage is None
    assert [(row["step"], row["mae"]) for row in found.by_step] == [(1, 0.5), (2, 1.0)]
    assert found.by_target == [{"target": "x", "mse": 1.25, "mae": 0.75, "mase": 1.5}]
    assert (found.origins, found.values) == (2, 4)


def test_imputed_values_do_not_count():
    real = np.array([[[True], [False]], [[True], [True]]])
    found = scored(real=real)
    assert found.mse == pytest.approx(1 / 3) and found.values == 3


def test_pinball_weighs_the_sides_and_coverage_counts_the_band():
    assert pinball(np.array(3.0), np.array([1.0, 4.0]), (0.1, 0.9)).tolist() == pytest.approx([0.2, 0.1])
    wide = np.concatenate([FOUND - 1, FOUND, FOUND + 1], axis=-1)
    assert scored(wide, levels=(0.1, 0.5, 0.9)).coverage == pytest.approx(3 / 4)


def test_a_past_that_never_changes_has_no_mase():
    assert scored(seasonal=np.array([0.0])).mase is None


def test_the_seasonal_scale_is_the_mean_change_of_a_season():
    values, real = np.array([[1.0], [10.0], [3.0], [10.0], [6.0]]), np.ones((5, 1), bool)
    total, count = seasonal_scale(values, real, 2)
    assert (total / count).tolist() == [5 / 3]
    real[2] = False
    total, count = seasonal_scale(values, real, 2)
    assert (total[0], count[0]) == (0, 1)


def test_a_band_holds_the_errors_it_was_made_of():
    errors = np.random.default_rng(0).normal(size=(500, 2, 1)) * np.array([1.0, 3.0])[:, None]
    band = error_band(errors, np.ones(errors.shape, bool), (0.1, 0.5, 0.9))
    assert band.shape == (2, 1, 3) and (band[..., 1] == 0).all() and np.array_equal(band[..., 0], -band[..., 2])
    assert (np.abs(errors) <= band[..., 2]).mean(0).ravel().tolist() == pytest.approx([0.8, 0.8], abs=0.004)
    few = error_band(errors[:3], np.ones((3, 2, 1), bool), (0.1, 0.5, 0.9))
    assert few[0, 0, 2] == np.abs(errors[:3, 0, 0]).max()  # three errors are too few to leave one out
