"""The built-in corpus ``waves``: the sums of two sines and noise of the forecasting lecture.

    x(t) = 0.5 sin((t − a)(10 f + 10)) + 0.2 sin((t − b)(20 g + 20)) + 0.1 (u_t − 0.5)

with a, b, f, g and every u_t drawn evenly from 0 … 1, t = 0, 1/50, 2/50 … Of 10,000 series 7,000 are to learn from,
2,000 choose among weights, and 1,000 are held out. The numbers are those of Géron's *Hands-On Machine Learning*,
chapter 15, whose figures the lecture quotes: the same generator with the same seed.

What no model can know is the last u_t: its variance, 0.1² / 12 = 0.00083, is the floor under every squared error.
"""

from __future__ import annotations

from functools import cache

import numpy as np

WAVES = "waves"
SERIES, STEPS = 10_000, 50
"""How many series there are, and how long the past of each is."""
LEARNT, CHOSEN = 7_000, 9_000
"""Where those to learn from end, and those that choose among weights."""
NOISE = 0.1**2 / 12
"""The variance of the noise."""


@cache
def waves(horizon: int = 1) -> np.ndarray:
    """All series, (10000, 50 + horizon), float32; a longer horizon goes on with the same series.

    >>> waves().shape, waves(10)[:, :51].tolist() == waves().tolist()
    ((10000, 51), True)
    """
    chance = np.random.RandomState(42)
    f, g, a, b = chance.rand(4, SERIES, 1)
    noise = chance.rand(SERIES, STEPS + 1)
    more = np.random.default_rng(42).random((SERIES, max(0, horizon - 1)))
    noise = np.concatenate([noise, more], axis=1)[:, : STEPS + horizon]
    return (clean(f, g, a, b, STEPS + horizon) + 0.1 * (noise - 0.5)).astype(np.float32)


def clean(f: np.ndarray, g: np.ndarray, a: np.ndarray, b: np.ndarray, steps: int) -> np.ndarray:
    """The two sines without noise, (N, steps), of parameters (N, 1)."""
    t = np.arange(steps) / STEPS
    result: np.ndarray = 0.5 * np.sin((t - a) * (10 * f + 10)) + 0.2 * np.sin((t - b) * (20 * g + 20))
    return result


def parameters() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """f, g, a, b of every series, (10000, 1) each: what a model would have to find out."""
    f, g, a, b = np.random.RandomState(42).rand(4, SERIES, 1)
    return f, g, a, b
