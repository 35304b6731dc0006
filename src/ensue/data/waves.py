"""The built-in corpus ``waves``: sums of two sines and noise, from the forecasting lecture.

    x(t) = 0.5 sin((t − a)(10 f + 10)) + 0.2 sin((t − b)(20 g + 20)) + 0.1 (u_t − 0.5)

with a, b, f, g and every u_t uniform in 0 … 1, t = 0, 1/50, 2/50 … Of 10,000 series 7,000 are for training, 2,000 for
validation and 1,000 for testing. The numbers are those of Géron's *Hands-On Machine Learning*, chapter 15, whose
figures the lecture quotes: the same generator with the same seed.

No model can predict the last u_t: its variance, 0.1² / 12 = 0.00083, is a lower bound of every mean squared error.
"""

from __future__ import annotations

from functools import cache

import numpy as np

WAVES = "waves"
SERIES_COUNT, PAST_STEPS = 10_000, 50
"""Number of series, and the length of each one's past."""
TRAIN_END, VALID_END = 7_000, 9_000
"""Where the training and the validation series end."""
NOISE_VARIANCE = 0.1**2 / 12


@cache
def waves(horizon: int = 1) -> np.ndarray:
    """Return all series, (10000, 50 + horizon), float32; a longer horizon continues the same series.

    >>> waves().shape, waves(10)[:, :51].tolist() == waves().tolist()
    ((10000, 51), True)
    """
    generator = np.random.RandomState(42)
    f, g, a, b = generator.rand(4, SERIES_COUNT, 1)
    noise = generator.rand(SERIES_COUNT, PAST_STEPS + 1)
    more = np.random.default_rng(42).random((SERIES_COUNT, max(0, horizon - 1)))
    noise = np.concatenate([noise, more], axis=1)[:, : PAST_STEPS + horizon]
    return (noiseless_waves(f, g, a, b, PAST_STEPS + horizon) + 0.1 * (noise - 0.5)).astype(np.float32)


def noiseless_waves(f: np.ndarray, g: np.ndarray, a: np.ndarray, b: np.ndarray, steps: int) -> np.ndarray:
    """Return the two sines without noise, (N, steps), for parameters (N, 1)."""
    t = np.arange(steps) / PAST_STEPS
    result: np.ndarray = 0.5 * np.sin((t - a) * (10 * f + 10)) + 0.2 * np.sin((t - b) * (20 * g + 20))
    return result


def parameters() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return f, g, a, b of every series, (10000, 1) each."""
    f, g, a, b = np.random.RandomState(42).rand(4, SERIES_COUNT, 1)
    return f, g, a, b
