"""The four forecasters of the lecture against Keras, with the same weights (R56, R57)."""

import numpy as np
import pytest
import torch

from ensue.models.forecast import LinearForecaster
from ensue.models.forecast_networks import RNNForecaster

SHAPES = {
    "dense": (LinearForecaster, {}, 51),
    "one unit": (RNNForecaster, {"layers": 0, "head": "cell"}, 3),
    "20-20-1": (RNNForecaster, {"layers": 2, "hidden": 20, "head": "cell"}, 1_282),
    "20-20-dense": (RNNForecaster, {"layers": 2, "hidden": 20}, 1_281),
}


def build(name):
    cls, values, _ = SHAPES[name]
    model = cls(cls.Config(window=50, **values))
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return model


@pytest.mark.parametrize("name", SHAPES)
def test_r56_parameters(name):
    assert sum(p.numel() for p in build(name).parameters()) == SHAPES[name][2]


def theirs(keras, name):
    layers = keras.layers
    rnn = layers.SimpleRNN
    stacks = {
        "dense": lambda: [layers.Flatten(), layers.Dense(1)],
        "one unit": lambda: [rnn(1)],
        "20-20-1": lambda: [rnn(20, return_sequences=True), rnn(20, return_sequences=True), rnn(1)],
        "20-20-dense": lambda: [rnn(20, return_sequences=True), rnn(20), layers.Dense(1)],
    }
    return keras.Sequential([keras.Input((50, 1)), *stacks[name]()])


def weights(model):
    """Ours, as Keras has them: matrices the other way round."""
    for layer in model.stack.layers if hasattr(model, "stack") else ():
        yield from (layer.cell.weight_x.T, layer.cell.weight_h.T, layer.cell.bias)
    out = model.dense if isinstance(model, LinearForecaster) else model.out
    if hasattr(out, "weight"):
        yield from (out.weight.flatten(1).T, out.bias)


@pytest.mark.parametrize("name", SHAPES)
def test_r56_forecasts_equal_keras(name):
    keras = pytest.importorskip("keras")
    ours, other = build(name), theirs(keras, name)
    other.set_weights([weight.detach().numpy() for weight in weights(ours)])
    assert other.count_params() == SHAPES[name][2]
    x = np.random.default_rng(0).normal(size=(6, 50, 1)).astype("float32")
    with torch.no_grad():
        found, _ = ours(torch.from_numpy(x), last=True)
    expected = keras.ops.convert_to_numpy(other(x))
    np.testing.assert_allclose(found.reshape(6, 1).numpy(), expected, atol=1e-5)


def test_r57_return_sequences_is_every_place_and_without_it_the_last():
    keras = pytest.importorskip("keras")
    ours = build("20-20-dense")
    every = keras.Sequential(
        [
            keras.Input((50, 1)),
            *(keras.layers.SimpleRNN(20, return_sequences=True) for _ in range(2)),
            keras.layers.Dense(1),
        ]
    )
    every.set_weights([weight.detach().numpy() for weight in weights(ours)])
    x = np.random.default_rng(0).normal(size=(3, 50, 1)).astype("float32")
    with torch.no_grad():
        found, _ = ours(torch.from_numpy(x))
    np.testing.assert_allclose(found.reshape(3, 50, 1).numpy(), keras.ops.convert_to_numpy(every(x)), atol=1e-5)
