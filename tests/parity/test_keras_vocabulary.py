"""What the words of Keras mean here: the same weights give the same numbers."""

import numpy as np
import pytest
import torch
from torch import nn

from ensue.nn.recurrent import Recurrent, TanhCell
from ensue.nn.stacks import Stack

B, T = 12, 9
CHANCE = np.random.default_rng(0)
X = CHANCE.normal(size=(B, T, 1)).astype("float32")
Y = CHANCE.normal(size=(B, 1)).astype("float32")


@pytest.fixture(scope="module")
def keras():
    return pytest.importorskip("keras")


class Deep(nn.Module):
    """Two layers of a plain RNN, of the second the last output only, and a linear layer: R56's fourth network."""

    def __init__(self):
        super().__init__()
        self.stack = Stack(lambda width: Recurrent(TanhCell(width, 20)), 1, 2)
        self.head = nn.Linear(20, 1)

    def forward(self, x):
        return self.head(self.stack(x)[0][:, -1])


def simple_rnn(cell):
    """The weights of a cell as SimpleRNN takes them."""
    return [p.detach().numpy() for p in (cell.weight_x.T, cell.weight_h.T, cell.bias)]


def dense(linear):
    """The weights of a linear layer as Dense takes them."""
    return [linear.weight.detach().numpy().T, linear.bias.detach().numpy()]


def twins(keras):
    """The same network here and there."""
    ours = Deep()
    nn.init.normal_(ours.stack.layers[0].cell.bias)
    theirs = keras.models.Sequential(
        [
            keras.layers.SimpleRNN(20, return_sequences=True),
            keras.layers.SimpleRNN(20),
            keras.layers.Dense(1),
        ]
    )
    theirs.build((None, T, 1))
    for layer, cell in zip(theirs.layers, (one.cell for one in ours.stack.layers)):
        layer.set_weights(simple_rnn(cell))
    theirs.layers[-1].set_weights(dense(ours.head))
    return ours, theirs


def test_return_sequences_is_every_output_and_without_it_the_last(keras):
    cell = TanhCell(1, 20)
    nn.init.normal_(cell.bias)
    y, state = Recurrent(cell)(torch.from_numpy(X))
    for all_of_them, expected in ((True, y), (False, y[:, -1]), (False, state.memory[0])):
        layer = keras.layers.SimpleRNN(20, return_sequences=all_of_them)
        layer.build(X.shape)
        layer.set_weights(simple_rnn(cell))
        found = keras.ops.convert_to_numpy(layer(X))
        np.testing.assert_allclose(found, expected.detach().numpy(), atol=1e-6)


def test_flatten_and_dense_are_those_of_torch(keras):
    linear = nn.Linear(T, 1)
    theirs = keras.models.Sequential([keras.layers.Flatten(), keras.layers.Dense(1)])
    theirs.build((None, T, 1))
    theirs.layers[-1].set_weights(dense(linear))
    ours = nn.Sequential(nn.Flatten(), linear)(torch.from_numpy(X)).detach().numpy()
    np.testing.assert_allclose(keras.ops.convert_to_numpy(theirs(X)), ours, atol=1e-6)


def test_predict_and_evaluate_are_forward_and_the_mean_of_squares(keras):
    ours, theirs = twins(keras)
    theirs.compile(loss="mse", optimizer="adam")
    with torch.no_grad():
        found = ours(torch.from_numpy(X)).numpy()
    np.testing.assert_allclose(theirs.predict(X, verbose=0), found, atol=1e-6)
    loss = theirs.evaluate(X, Y, verbose=0)
    assert loss == pytest.approx(float(((found - Y) ** 2).mean()), abs=1e-6)


def test_fit_is_the_loop_and_its_history_the_mean_loss_of_an_epoch(keras):
    ours, theirs = twins(keras)
    theirs.compile(loss="mse", optimizer=keras.optimizers.SGD(learning_rate=0.05))
    history = theirs.fit(X, Y, epochs=3, batch_size=4, shuffle=False, verbose=0).history["loss"]
    optimiser = torch.optim.SGD(ours.parameters(), lr=0.05)
    means = []
    for _ in range(3):
        losses = []
        for x, y in zip(torch.from_numpy(X).split(4), torch.from_numpy(Y).split(4)):
            loss = nn.functional.mse_loss(ours(x), y)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        means.append(np.mean(losses))
    np.testing.assert_allclose(history, means, atol=1e-5)
    for mine, other in zip(simple_rnn(ours.stack.layers[1].cell), theirs.layers[1].get_weights()):
        np.testing.assert_allclose(mine, other, atol=1e-5)


@pytest.mark.parametrize(("layers", "count"), [((1,), 3), ((20, 20, 1), 1282), ((20, 20), 1281 - 21)])
def test_one_bias_a_cell_gives_the_lectures_counts(keras, layers, count):
    widths = (1, *layers[:-1])
    cells = [TanhCell(width, hidden) for width, hidden in zip(widths, layers)]
    assert sum(p.numel() for cell in cells for p in cell.parameters()) == count
    theirs = keras.models.Sequential([keras.layers.SimpleRNN(hidden, return_sequences=True) for hidden in layers])
    theirs.build((None, 50, 1))
    assert theirs.count_params() == count
