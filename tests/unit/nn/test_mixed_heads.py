"""Heads of different kinds in one layer."""

import pytest
import torch

from ensue.core.errors import InputError
from ensue.models.gpt import GPTConfig
from ensue.nn.mixers.mixer import MixerConfig, build_mixer, parse_heads
from ensue.nn.positions import LinearBias

WIDTH, HEADS = 24, 4


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "both"])
@pytest.mark.parametrize("kinds", [("full", "full"), ("full", "local:span=3"), ("sparse:stride=3", "local:span=2")])
def test_the_heads_of_each_mixer_are_those_of_a_layer_of_it_alone(kinds, causal):
    torch.manual_seed(0)
    config = MixerConfig(width=WIDTH, heads=HEADS, causal=causal, score_bias=LinearBias(HEADS), bias=False)
    mixed = build_mixer("+".join(kinds), config).double()
    x = torch.randn(2, 9, WIDTH, dtype=torch.double)
    y, _, weights = mixed(x, weights=True)
    expected, half = 0.0, WIDTH // 2
    for number, kind in enumerate(kinds):
        whole, own = build_mixer(kind, config).double(), mixed.parts[number]
        mine = slice(number * half, number * half + half)
        with torch.no_grad():
            whole.out.weight.zero_()[:, mine] = own.out.weight
            whole.project.weight.view(3, WIDTH, WIDTH)[:, mine] = own.project.weight.view(3, half, WIDTH)
        found = whole(x, weights=True)
        expected = expected + found.y
        heads = slice(number * 2, number * 2 + 2)
        torch.testing.assert_close(weights[:, heads], found.weights[:, heads], atol=1e-12, rtol=0)
    torch.testing.assert_close(y, expected, atol=1e-12, rtol=0)


def test_a_layer_of_bounded_heads_is_bounded():
    config = MixerConfig(width=WIDTH, heads=HEADS)
    assert build_mixer("local:span=3+linear", config).bounded
    assert not build_mixer("local:span=3+full", config).bounded


def test_a_number_with_a_plus_is_one_option():
    assert parse_heads("local:span=64:base=1e+16+full") == ["local:span=64:base=1e+16", "full"]


@pytest.mark.parametrize(
    ("attention", "message"),
    [("full+loca", "did you mean 'local'"), ("full+", "unknown attention"), ("full+mean:x=1", "'mean' has no options")],
)
def test_a_wrong_mixer_among_them_is_refused(attention, message):
    with pytest.raises(InputError, match=message):
        GPTConfig(vocabulary=5, attention=attention)
        build_mixer(attention, MixerConfig(width=WIDTH, heads=HEADS))


def test_heads_that_cannot_be_divided_are_refused():
    with pytest.raises(InputError, match="heads = 4 cannot be divided among 3 mixers"):
        build_mixer("full+local+linear", MixerConfig(width=WIDTH, heads=HEADS))
    with pytest.raises(InputError, match="kv_heads = 1 cannot"):
        build_mixer("full+local", MixerConfig(width=WIDTH, heads=HEADS, kv_heads=1))
    with pytest.raises(InputError, match="left to right only"):
        build_mixer("full+mean", MixerConfig(width=WIDTH, heads=HEADS, causal=False))
