"""How layers join, and that what is computed is what is written."""

import pytest
import torch

from ensue.nn.recurrent import GRUCell, LSTMCell, Recurrent
from ensue.nn.stacks import CONNECTIONS, Backward, Bidirectional, Stack, reverse

B, T, D = 2, 5, 4
LENGTHS = torch.tensor([5, 2])


def stack(connect, layers=3, width=D, dropout=0.0):
    return Stack(lambda size: Recurrent(GRUCell(size, D)), width, layers, connect, dropout).eval()


def by_hand(made, join, x):
    """The layers one after the other, joined as ``join(number, x, y)`` says."""
    for number, layer in enumerate(made.layers):
        y, _ = layer(x)
        x = join(number, x, y)
    return x


JOINS = {
    "plain": lambda made: lambda number, x, y: y,
    "residual": lambda made: lambda number, x, y: x + y,
    "dense": lambda made: lambda number, x, y: torch.cat([x, y], dim=-1),
    "fast-forward": lambda made: (
        lambda number, x, y: torch.cat([x, y], dim=-1) @ made.connections[number].straight.weight.T
    ),
}


def test_every_connection_is_tested():
    assert set(JOINS) == set(CONNECTIONS)


@pytest.mark.parametrize("connect", CONNECTIONS)
def test_a_stack_is_its_equation(connect):
    made, x = stack(connect), torch.randn(B, T, D)
    y = made(x).h
    torch.testing.assert_close(y, by_hand(made, JOINS[connect](made), x))
    assert y.shape[-1] == made.output == (4 * D if connect == "dense" else D)


@pytest.mark.parametrize("connect", CONNECTIONS)
def test_widths_follow_the_connection(connect):
    widths = [layer.cell.width for layer in stack(connect, width=6).layers]
    assert widths == ([6, 10, 14] if connect == "dense" else [6, D, D])


def test_a_residual_needs_one_width_and_does_without_where_it_is_another():
    made, x = stack("residual", layers=1, width=6), torch.randn(B, T, 6)
    y = made(x).h
    torch.testing.assert_close(y, made.layers[0](x)[0])


def test_the_gradient_goes_straight_up_through_fast_forward_connections():
    """With layers that answer nothing, x comes out as products of W_f alone: no nonlinearity on the way."""
    made, x = stack("fast-forward"), torch.randn(B, T, D)
    for layer in made.layers:
        for weight in layer.parameters():
            torch.nn.init.zeros_(weight)
    expected = x
    for join in made.connections:
        expected = expected @ join.straight.weight[:, :D].T
    torch.testing.assert_close(made(x)[0], expected)


def test_dropout_falls_between_layers_only():
    torch.manual_seed(0)
    made, x = stack("plain", layers=1, dropout=0.9).train(), torch.randn(B, T, D)
    assert torch.equal(made(x)[0], made(x)[0])  # one layer has no between
    made = stack("plain", layers=2, dropout=0.9).train()
    assert not torch.equal(made(x)[0], made(x)[0])


@pytest.mark.parametrize("connect", CONNECTIONS)
def test_a_stack_run_in_chunks_equals_one_run(connect):
    made, x = stack(connect), torch.randn(B, T, D)
    whole, after, _ = made(x)
    first, state, _ = made(x[:, :2])
    rest, last, _ = made(x[:, 2:], state)
    torch.testing.assert_close(torch.cat([first, rest], dim=1), whole)
    for (_, left), (_, right) in zip(after.tensors(), last.tensors(), strict=True):
        torch.testing.assert_close(left, right)


def test_reversing_twice_is_nothing_and_padding_stays():
    x = torch.randn(B, T, D)
    assert torch.equal(reverse(reverse(x, LENGTHS), LENGTHS), x)
    turned = reverse(x, LENGTHS)
    assert torch.equal(turned[1, :2], x[1, :2].flip(0)) and torch.equal(turned[1, 2:], x[1, 2:])
    assert torch.equal(reverse(x, torch.tensor([5, 5])), reverse(x))


def test_a_layer_that_reads_from_the_end_ends_at_the_beginning():
    layer, x = Recurrent(LSTMCell(D, D)), torch.randn(B, T, D)
    y, state = Backward(layer)(x, None, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        alone, memory = layer(x[row : row + 1, :length].flip(1))
        torch.testing.assert_close(y[row, :length], alone[0].flip(0))
        torch.testing.assert_close(y[row, 0], state.memory[0][row])  # what it says of the first token is its memory
        for ours, other in zip(state.memory, memory.memory, strict=True):
            torch.testing.assert_close(ours[row], other[0])


def test_two_directions_side_by_side_equal_torch():
    ours = Bidirectional(Recurrent(LSTMCell(D, 3)), Recurrent(LSTMCell(D, 3)))
    theirs = torch.nn.LSTM(D, 3, bidirectional=True, batch_first=True)
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    held = dict(zip(names, ours.onward.cell.weights()))
    held |= {f"{name}_reverse": weight for name, weight in zip(names, ours.backward.layer.cell.weights())}
    theirs.load_state_dict(held)
    x = torch.randn(B, T, D)
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, LENGTHS, batch_first=True)
    expected, (h, c) = theirs(packed)
    expected, _ = torch.nn.utils.rnn.pad_packed_sequence(expected, batch_first=True)
    y, state = ours(x, None, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        torch.testing.assert_close(y[row, :length], expected[row, :length])
    for number, side in enumerate((state.forward, state.backward)):
        torch.testing.assert_close(side.memory[0], h[number])
        torch.testing.assert_close(side.memory[1], c[number])
