"""Our cells against torch.nn and Keras with the same weights."""

import numpy as np
import pytest
import torch

from ensue.nn.intra_attention import IntraAttention
from ensue.nn.mixers.full import SelfAttention
from ensue.nn.mixers.local import LocalAttention
from ensue.nn.mixers.mixer import MixerConfig
from ensue.nn.recurrent import (
    ChoGRUCell,
    GRUCell,
    LSTMCell,
    ProjectedLSTMCell,
    Recurrent,
    ReluCell,
    TanhCell,
)
from ensue.nn.stacks import Bidirectional

D, N, B, T = 5, 7, 3, 9
NAMES = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0", "weight_hr_l0")
PAIRS = {
    "tanh": (lambda: TanhCell(D, N), lambda: torch.nn.RNN(D, N, batch_first=True)),
    "relu": (lambda: ReluCell(D, N), lambda: torch.nn.RNN(D, N, batch_first=True, nonlinearity="relu")),
    "gru": (lambda: GRUCell(D, N), lambda: torch.nn.GRU(D, N, batch_first=True)),
    "lstm": (lambda: LSTMCell(D, N), lambda: torch.nn.LSTM(D, N, batch_first=True)),
    "projected": (
        lambda: ProjectedLSTMCell(D, N, 3),
        lambda: torch.nn.LSTM(D, N, batch_first=True, proj_size=3),
    ),
}


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("kernel", ["reference", "fused"])
@pytest.mark.parametrize("name", PAIRS)
def test_cells_equal_torch(name, kernel):
    cell, theirs = (make() for make in PAIRS[name])
    torch.nn.init.normal_(cell.bias)
    theirs.load_state_dict(dict(zip(NAMES, cell.weights())))
    x = torch.randn(B, T, D)
    y, state = Recurrent(cell, kernel)(x)
    expected, last = theirs(x)
    last = last if isinstance(last, tuple) else (last,)
    torch.testing.assert_close(y, expected, atol=1e-6, rtol=0)
    for ours, other in zip(state.memory, last):
        torch.testing.assert_close(ours, other[0], atol=1e-6, rtol=0)


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("name", PAIRS)
def test_gradients_of_the_fused_kernel_are_those_of_the_equation(name):
    cell = PAIRS[name][0]().double()
    x = torch.randn(B, T, D, dtype=torch.double)
    lengths = torch.tensor([T, 4, 0])
    gradients = []
    for kernel in ("reference", "fused"):
        cell.zero_grad()
        y, state = Recurrent(cell, kernel)(x, None, lengths)
        real = torch.arange(T)[None, :, None] < lengths[:, None, None]
        (y.where(real, 0).square().sum() + sum(m.square().sum() for m in state.memory)).backward()
        gradients.append([p.grad.clone() for p in cell.parameters()])
    for left, right in zip(*gradients):
        torch.testing.assert_close(left, right, atol=1e-10, rtol=0)


def test_the_gru_of_cho_equals_keras_with_reset_before():
    keras = pytest.importorskip("keras")
    cell = ChoGRUCell(D, N)
    torch.nn.init.normal_(cell.bias)
    theirs = keras.layers.GRU(N, reset_after=False, return_sequences=True)
    x = np.random.default_rng(0).normal(size=(B, T, D)).astype("float32")
    theirs.build(x.shape)
    w, u, b = (p.detach().numpy() for p in (cell.weight_x, cell.weight_h, cell.bias))
    r, z, h = (slice(i * N, (i + 1) * N) for i in range(3))
    # Keras orders z, r, h, and its z keeps what our u replaces: z = 1 − u, so the sign of that gate turns
    kernel = np.concatenate([-w[z].T, w[r].T, w[h].T], axis=1)
    recurrent = np.concatenate([-u[z].T, u[r].T, u[h].T], axis=1)
    theirs.set_weights([kernel, recurrent, np.concatenate([-b[z], b[r], b[h]])])
    y, _ = Recurrent(cell)(torch.from_numpy(x))
    expected = keras.ops.convert_to_numpy(theirs(x))
    np.testing.assert_allclose(y.detach().numpy(), expected, atol=1e-5)


def test_the_two_grus_differ():
    a, b = GRUCell(D, N), ChoGRUCell(D, N)
    b.load_state_dict(a.state_dict())
    x = torch.randn(B, T, D)
    assert (Recurrent(a)(x)[0] - Recurrent(b)(x)[0]).abs().max() > 1e-3


def multihead(attention, width, heads):
    """torch's attention with the weights of ours."""
    theirs = torch.nn.MultiheadAttention(width, heads, batch_first=True)
    weights = {"in_proj_weight": attention.project.weight, "in_proj_bias": attention.project.bias}
    theirs.load_state_dict({**weights, "out_proj.weight": attention.out.weight, "out_proj.bias": attention.out.bias})
    return theirs


@pytest.mark.parametrize("span", [T + 1, 4])
@pytest.mark.parametrize("name", ["tanh", "gru", "lstm"])
def test_attention_within_a_network_equals_torchs_on_its_outputs(name, span):
    cell, theirs = (make() for make in PAIRS[name])
    theirs.load_state_dict(dict(zip(NAMES, cell.weights())))
    ours = IntraAttention(Recurrent(cell), LocalAttention(MixerConfig(width=N, heads=7), span=span))
    x = torch.randn(B, T, D)
    plain, shown = ours(x), ours(x, weights=True)
    h, _ = theirs(x)
    hidden = ~torch.ones(T, T, dtype=torch.bool).tril().triu(1 - span)  # where torch must not look
    c, weights = multihead(ours.attention, N, 7)(h, h, h, attn_mask=hidden, average_attn_weights=False)
    torch.testing.assert_close(plain.y, h + c, atol=1e-5, rtol=0)
    torch.testing.assert_close(shown.y, h + c, atol=1e-5, rtol=0)
    torch.testing.assert_close(shown.weights, weights, atol=1e-5, rtol=0)


def test_attention_within_a_network_of_both_ends_equals_torchs_on_its_outputs():
    cells, lengths = [LSTMCell(D, N), LSTMCell(D, N)], torch.tensor([T, 4, 1])
    theirs = torch.nn.LSTM(D, N, batch_first=True, bidirectional=True)
    names = [name + end for end in ("", "_reverse") for name in NAMES[:4]]
    theirs.load_state_dict(dict(zip(names, [weight for cell in cells for weight in cell.weights()])))
    ours = IntraAttention(
        Bidirectional(*map(Recurrent, cells)),
        SelfAttention(MixerConfig(width=2 * N, heads=2, causal=False)),
        torch.nn.LayerNorm(2 * N),
    )
    x = torch.randn(B, T, D)
    y = ours(x, None, lengths).y
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
    h, _ = torch.nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)
    padded = torch.arange(T) >= lengths[:, None]
    n = torch.nn.functional.layer_norm(h, (2 * N,))
    c, _ = multihead(ours.attention, 2 * N, 2)(n, n, n, key_padding_mask=padded)
    torch.testing.assert_close(y[~padded], (h + c)[~padded], atol=1e-5, rtol=0)
