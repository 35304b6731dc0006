"""Linear attention with decays: the recurrence written out, its weights, and what it refuses."""

import math

import pytest
import torch
from torch.nn import functional as F

from ensue.core.errors import InputError
from ensue.nn.layout import Layout
from ensue.nn.mixers.mixer import MixerConfig, build_mixer
from ensue.nn.positions import LinearBias

D, H, T = 12, 3, 150
NAMES = ("retention", "gated-linear", "gated-linear:rank=2")


def built(name, **more):
    torch.manual_seed(0)
    return build_mixer(name, MixerConfig(width=D, heads=H, **more)).double().eval()


def recurrence(mixer, x):
    """S_t = g_t S_{t-1} + k_t v_tᵀ and y_t, token by token, from the docstrings."""
    projected = mixer.project(x)
    q, k, v = (part.view(*x.shape[:2], H, D // H) for part in projected.split(D, -1))
    if hasattr(mixer, "decay_in"):
        decay = torch.sigmoid(mixer.decay_out(mixer.decay_in(x))).view_as(q) ** (1 / 16)
    else:
        decay = (1 - 2.0 ** (-5 - torch.arange(H, dtype=torch.float64)))[None, None, :, None].expand_as(q)
    state, found = torch.zeros(len(x), H, D // H, D // H, dtype=x.dtype), []
    for t in range(x.shape[1]):
        state = decay[:, t, :, :, None] * state + k[:, t, :, :, None] * v[:, t, :, None, :]
        found.append((q[:, t, :, None] @ state)[:, :, 0] / math.sqrt(D // H))
    y = torch.stack(found, 1)
    y = y / (y.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    return mixer.out(F.silu(mixer.gate(x)) * y.flatten(2))


@pytest.mark.parametrize("name", NAMES)
def test_the_mixer_is_its_recurrence(name):
    mixer, x = built(name), torch.randn(2, T, D, dtype=torch.float64)
    torch.testing.assert_close(mixer(x).y, recurrence(mixer, x), atol=1e-6, rtol=1e-5)  # γ is stored as float32


@pytest.mark.parametrize("name", [*NAMES, "mamba"])
def test_weights_of_the_view_are_shares_of_what_is_mixed(name):
    mixer, x = built(name), torch.randn(2, 70, D, dtype=torch.float64)
    seen = mixer(x, weights=True).weights
    assert seen.shape == (2, H, 70, 70)
    assert not seen.triu(1).any()
    torch.testing.assert_close(seen.sum(-1), torch.ones(2, H, 70, dtype=torch.float64))
    if name == "retention":
        q, k, _ = (part.view(2, 70, H, D // H).transpose(1, 2) for part in mixer.project(x).split(D, -1))
        apart = torch.arange(70)[:, None] - torch.arange(70)
        gamma = (1 - 2.0 ** (-5 - torch.arange(H, dtype=torch.float64)))[:, None, None]
        wanted = (q @ k.mT * gamma**apart).tril().abs()
        wanted = wanted / wanted.sum(-1, keepdim=True)
        torch.testing.assert_close(seen, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", [*NAMES, "mamba"])
def test_long_texts_stay_finite_and_padding_changes_no_state(name):
    mixer = built(name).float()
    x = 30 * torch.randn(2, 5000, D)
    y, state, _ = mixer(x)
    assert y.isfinite().all() and all(one.isfinite().all() for _, one in state.tensors())
    lengths = torch.tensor([5000, 40])
    _, padded, _ = mixer(x, None, Layout(lengths))
    _, alone, _ = mixer(x[1:, :40])
    for (_, one), (_, other) in zip(padded.rows(torch.tensor([1])).tensors(), alone.tensors(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_a_score_bias_is_refused(name):
    with pytest.raises(InputError, match="no scores"):
        built(name, score_bias=LinearBias(H))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gated-linear:rank=0", "rank = 0"),
        ("mamba:state=0", "state = 0"),
        ("mamba:groups=2", "groups = 2"),
        ("mamba:convolution=-1", "convolution = -1"),
    ],
)
def test_wrong_options_are_refused_in_one_line(name, message):
    with pytest.raises(InputError, match=message):
        built(name)


@pytest.mark.parametrize("name", ["retention", "gated-linear", "mamba"])
def test_none_of_them_reads_in_both_directions(name):
    with pytest.raises(InputError, match="left to right only"):
        built(name, causal=False)
