"""Convolutions over time: against torch's own, in chunks, and with rows of different lengths."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ensue.nn.convolution import CausalConvolution, FullConvolution

SHAPES = [(1, 1), (2, 1), (3, 1), (3, 4), (4, 3)]  # width and dilation


def build(kind, width, dilation):
    """A layer 5 → 8 wide with a bias that is not zero, and torch's convolution with the same weights."""
    layer, plain = kind(5, 8, width, dilation), nn.Conv1d(5, 8, width, dilation=dilation)
    with torch.no_grad():
        layer.bias.normal_()
        plain.weight.copy_(layer.weight.transpose(1, 2))
        plain.bias.copy_(layer.bias)
    return layer, plain


def over_time(plain, x, before, after):
    return plain(F.pad(x.transpose(1, 2), (before, after))).transpose(1, 2)


@pytest.mark.parametrize(("width", "dilation"), SHAPES)
def test_a_causal_convolution_is_torchs_padded_on_the_left(width, dilation):
    (layer, plain), x = build(CausalConvolution, width, dilation), torch.randn(2, 9, 5)
    y, state = layer(x)
    torch.testing.assert_close(y, over_time(plain, x, (width - 1) * dilation, 0))
    assert state.inputs.shape == (2, (width - 1) * dilation, 5)


@pytest.mark.parametrize(("width", "dilation"), SHAPES)
def test_a_full_convolution_is_torchs_padded_on_both_sides(width, dilation):
    (layer, plain), x = build(FullConvolution, width, dilation), torch.randn(2, 9, 5)
    y, state = layer(x)
    reach = (width - 1) * dilation
    torch.testing.assert_close(y, over_time(plain, x, reach // 2, reach - reach // 2))
    assert state is None


def test_gradients_are_torchs():
    layer, plain = build(CausalConvolution, 3, 2)
    x = torch.randn(2, 6, 5, requires_grad=True)
    same = x.detach().clone().requires_grad_()
    F.glu(layer(x)[0], dim=-1).square().sum().backward()
    F.glu(over_time(plain, same, 4, 0), dim=-1).square().sum().backward()
    torch.testing.assert_close(x.grad, same.grad)
    torch.testing.assert_close(layer.weight.grad, plain.weight.grad.transpose(1, 2))
    torch.testing.assert_close(layer.bias.grad, plain.bias.grad)


@pytest.mark.parametrize(("width", "dilation"), SHAPES)
@pytest.mark.parametrize("ends", [(4, 9), (1, 1, 2, 9), tuple(range(1, 10))], ids=["two", "uneven", "steps"])
def test_in_chunks_a_causal_convolution_is_the_same(width, dilation, ends):
    (layer, _), x = build(CausalConvolution, width, dilation), torch.randn(2, 9, 5)
    whole, after = layer(x)
    state, parts, begin = layer.start(2), [], 0
    for end in ends:  # a chunk of no tokens is one too
        y, state = layer(x[:, begin:end], state)
        parts.append(y)
        begin = end
    torch.testing.assert_close(torch.cat(parts, dim=1), whole)
    assert torch.equal(state.inputs, after.inputs)


def test_a_padded_row_keeps_its_own_last_inputs():
    (layer, _), x, more = build(CausalConvolution, 3, 2), torch.randn(4, 6, 5), torch.randn(4, 3, 5)
    lengths = torch.tensor([6, 3, 1, 0])
    y, state = layer(x, None, lengths)
    later, _ = layer(more, state)
    for row, length in enumerate(lengths.tolist()):
        alone, memory = layer(x[row : row + 1, :length])
        torch.testing.assert_close(y[row : row + 1, :length], alone)
        assert torch.equal(state.inputs[row : row + 1], memory.inputs)
        torch.testing.assert_close(later[row : row + 1], layer(more[row : row + 1], memory)[0])


@pytest.mark.parametrize(("width", "dilation"), SHAPES)
def test_padding_never_reaches_what_a_full_convolution_makes_of_real_places(width, dilation):
    (layer, _), x = build(FullConvolution, width, dilation), torch.randn(3, 7, 5)
    lengths = torch.tensor([7, 4, 1])
    x[1, 4:], x[2, 1:] = float("nan"), float("inf")  # whatever stands there
    y, _ = layer(x, None, lengths)
    for row, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(y[row : row + 1, :length], layer(x[row : row + 1, :length])[0])
