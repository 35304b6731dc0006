"""The corpus of the forecasting lecture."""

import hashlib

import numpy as np

from ensue.data.waves import NOISE_VARIANCE, noiseless_waves, parameters, waves


def test_the_series_are_the_same_everywhere():
    held = waves()
    assert held.shape == (10_000, 51) and held.dtype == np.float32
    rounded = np.round(held.astype(float), 4) + 0.0
    assert hashlib.sha256(rounded[:100].tobytes()).hexdigest()[:16] == DIGEST


def test_they_are_two_sines_and_noise():
    noise = waves().astype(float) - noiseless_waves(*parameters(), 51)
    assert np.abs(noise).max() <= 0.05 + 1e-6 and abs(noise.var() - NOISE_VARIANCE) < 1e-6


def test_a_longer_horizon_continues_the_same_series():
    longer = waves(5)
    assert longer.shape == (10_000, 55) and np.array_equal(longer[:, :51], waves())
    assert np.abs(longer.astype(float) - noiseless_waves(*parameters(), 55)).max() <= 0.05 + 1e-6


DIGEST = "9a86617889bee2a4"
