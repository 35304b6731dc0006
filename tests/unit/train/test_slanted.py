"""The slanted triangle by its equation, rates by layer, and plans for layers that are let go one after the other."""

import itertools
import math

import pytest

from ensue.train.layer_unfreezing import LayerUnfreezing
from ensue.train.optimisers import build_optimiser, learning_rate
from ensue.train.settings import LabelTrainSettings, TrainSettings


def paper(t, T, cut_frac=0.1, ratio=32, highest=0.01):
    """Equation 3 of Howard and Ruder (2018), as it is printed."""
    cut = math.floor(T * cut_frac)
    p = t / cut if t < cut else 1 - (t - cut) / (cut * (1 / cut_frac - 1))
    return highest * (1 + p * (ratio - 1)) / ratio


SLANTED = {"schedule": "slanted", "warmup": 0.1, "floor": 1 / 32}


@pytest.mark.parametrize("steps", [10, 30, 100, 1000])
def test_the_slanted_triangle_is_the_papers(steps):
    settings = TrainSettings(lr=0.01, **SLANTED)
    found = [learning_rate(step, steps, settings) for step in range(steps)]
    assert found == pytest.approx([paper(step, steps) for step in range(steps)], rel=1e-9)


def test_the_slanted_triangle_at_known_steps():
    settings = TrainSettings(lr=0.01, **SLANTED)
    found = [learning_rate(step, 100, settings) for step in (0, 5, 10, 55, 100)]
    half = 0.01 * (1 + 0.5 * 31) / 32
    assert found == pytest.approx([0.01 / 32, half, 0.01, half, 0.01 / 32])
    counted = TrainSettings(lr=0.01, schedule="slanted", warmup=20, floor=1 / 32)
    rates = [learning_rate(step, 100, counted) for step in range(100)]
    assert rates[20] == pytest.approx(0.01) == max(rates)


@pytest.mark.parametrize("steps", [1, 2, 9, 105, 119])
def test_a_rate_never_falls_below_its_floor(steps):
    """Of 105 steps the printed equation gives the last ones a negative rate: 105 · 0.1 is cut down to 10."""
    settings = TrainSettings(lr=1.0, **SLANTED)
    found = [learning_rate(step, steps, settings) for step in range(steps)]
    assert all(1 / 32 <= rate <= 1 for rate in found)
    assert paper(104, 105, highest=1.0) < 0 or steps != 105
    assert steps < 9 or max(found) == 1.0


def test_each_layer_learns_at_the_next_ones_rate_over_2_6():
    import torch

    model = torch.nn.ModuleDict({name: torch.nn.Linear(2, 2) for name in ("embed", "one", "two", "head")})
    depths = {f"{name}.{part}": depth for depth, name in enumerate(model) for part in ("weight", "bias")}
    settings = LabelTrainSettings(lr=0.01, beta1=0.7)
    optimiser = build_optimiser(model, settings, LayerUnfreezing(depths, 1 / 2.6).scales())
    assert optimiser.defaults["betas"] == (0.7, 0.99)
    scale = {id(p): group["scale"] for group in optimiser.param_groups for p in group["params"]}
    rates = [0.01 * scale[id(model[name].weight)] for name in model]
    assert rates == pytest.approx([0.01 / 2.6**3, 0.01 / 2.6**2, 0.01 / 2.6, 0.01])
    assert all(low == pytest.approx(high / 2.6) for low, high in itertools.pairwise(rates))
