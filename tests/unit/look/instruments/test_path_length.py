"""Chains of operations, and the tables of the lectures, counted."""

import math

import pytest
import torch

from ensue.core.errors import InputError
from ensue.look.instruments.path_length import (
    ChainTracker,
    Dilated,
    LayerSettings,
    depth,
    layer_flops,
    layer_table,
    shortest_path,
)
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.models.recurrent import LSTMConfig, LSTMLanguageModel
from ensue.models.window import WindowConfig, WindowLanguageModel
from ensue.nn.convolution import CausalConvolution
from ensue.nn.mixers.local import LocalAttention
from ensue.nn.mixers.mixer import MixerConfig


def test_r103_flops_of_layers_are_the_lectures():
    found = layer_flops(LayerSettings(length=1000, hidden=1000, kernel=3))
    assert found["self-attention"] == 4e9  # 4 n² d
    assert found["recurrent (LSTM)"] == 16e9  # 16 n d²
    assert found["convolutional"] == 6e9  # 2 k n d²


def test_r102_sequential_operations_and_paths_are_the_papers():
    small, large = (
        {one.layer: one for one in layer_table(LayerSettings(length=n, hidden=8, span=10))} for n in (81, 243)
    )
    for name in ("self-attention", "convolutional"):  # O(1)
        assert large[name].sequential == small[name].sequential < 10
    recurrent = "recurrent (LSTM)"  # O(n)
    assert large[recurrent].sequential - small[recurrent].sequential == 6 * 162
    assert large["self-attention"].path == small["self-attention"].path  # O(1)
    assert large[recurrent].path - small[recurrent].path == 2 * 162  # O(n)
    assert (small["convolutional"].path, large["convolutional"].path) == (4, 5)  # log_3 n
    assert small["restricted attention"].path == 3 * math.ceil(80 / 9)  # O(n / r)


def test_r102_complexity_grows_with_length_as_the_paper_says():
    short, long = (layer_flops(LayerSettings(length=n, hidden=16, span=8)) for n in (32, 64))
    assert {name: long[name] / short[name] for name in list(short)[:3]} == {
        "self-attention": 4,
        "recurrent (LSTM)": 2,
        "convolutional": 2,
    }
    assert long["restricted attention"] == pytest.approx(2 * short["restricted attention"], rel=0.1)


@pytest.mark.parametrize(("length", "reached"), [(2, True), (3, True), (4, False)])
def test_a_convolution_reaches_as_far_as_its_kernel(length, reached):
    found = shortest_path(CausalConvolution(2, 2, 3), torch.zeros(1, length, 2))
    assert found == (1 if reached else None)


@pytest.mark.parametrize(("length", "path"), [(26, 3), (27, 3), (28, None)])
def test_dilated_convolutions_reach_a_power_of_their_kernel(length, path):
    assert shortest_path(Dilated(2, 3, 27), torch.zeros(1, length, 2)) == path


@pytest.mark.parametrize(("length", "path"), [(9, 3), (10, 3), (11, None)])
def test_restricted_attention_reaches_as_far_as_its_span(length, path):
    assert shortest_path(LocalAttention(MixerConfig(width=2, heads=1), span=10), torch.zeros(1, length, 2)) == path


def on_meta(build):
    with torch.device("meta"):
        return build()


def test_a_recurrent_model_has_chains_as_long_as_the_text_and_a_transformer_does_not():
    lstm = on_meta(lambda: LSTMLanguageModel(LSTMConfig(vocabulary=9, hidden=4)))
    gpt = on_meta(lambda: GPTLanguageModel(GPTConfig(vocabulary=9, layers=2, heads=1, hidden=4, context=16)))
    few, many = depth(lstm, 4), depth(lstm, 8)
    assert many.sequential - few.sequential == 6 * 4 and many.path - few.path == 2 * 4
    few, many = depth(gpt, 4), depth(gpt, 8)
    assert many.sequential == few.sequential and many.path == few.path


def test_a_window_does_not_see_beyond_it():
    window = on_meta(lambda: WindowLanguageModel(WindowConfig(vocabulary=9, context=4, embedding=2, hidden=4)))
    assert depth(window, 4).path is not None and depth(window, 5).path is None


def test_chains_count_arithmetic_only():
    a, b = torch.ones(2, 2), torch.ones(2, 2)
    with ChainTracker(max, 0) as longest:
        c = (a @ b).relu().view(4)
        d = torch.cat([c, b.view(4)])
    assert longest.length(c) == 2 and longest.length(d) == 2
    with ChainTracker(min, math.inf) as shortest:
        shortest.track(a)
        both = torch.cat([(a + 1) * 2, b])
        near, far = both[:2] + 0, both[2:] + 0
    assert shortest.length(near) == 3 and shortest.length(far) == math.inf


def test_settings_of_the_table_are_checked():
    with pytest.raises(InputError, match="kernel"):
        LayerSettings(kernel=1)
    with pytest.raises(InputError, match="length"):
        LayerSettings(length=1)
