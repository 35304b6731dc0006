"""int8 linear layers against the same in float32; the engine is whatever this machine has."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ensue.core.errors import InputError
from ensue.data.labelled_rows import make_rows
from ensue.data.tokenizers.char import ByteTokenizer
from ensue.kernels import int8 as quantised
from ensue.kernels.int8 import ENGINES, QuantisedLinear, panels, part, quantise
from ensue.models.bert import BERT, BERTConfig
from ensue.models.encoder import Encoder, EncoderConfig
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.models.labelled import HeadConfig, Labelled
from ensue.models.recurrent import LSTMLanguageModel
from ensue.models.window import WindowLanguageModel
from ensue.nn.layout import Layout
from ensue.nn.mixers.full import SelfAttention
from ensue.nn.mixers.mixer import MixerConfig
from ensue.runs.sentence_vectors import sentence_vectors
from ensue.tasks.labels.labeller import compute_logits

pytestmark = pytest.mark.skipif(
    not set(ENGINES) & set(torch.backends.quantized.supported_engines), reason="torch has no int8 engine here"
)


@pytest.fixture(autouse=True)
def repeatable() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.inference_mode():
        yield


def error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


def spread(model: nn.Module) -> Any:
    """A model whose weights are large enough for its answers to differ."""
    for weight in model.parameters():
        weight.add_(0.1 * torch.randn_like(weight))
    return model.eval()


def encoder(**more: Any) -> Encoder:
    return Encoder(EncoderConfig(vocabulary=300, layers=2, heads=4, hidden=64, context=40, **more))


@pytest.mark.parametrize("shape", [(1, 64), (3, 5, 64), (0, 64)])
def test_a_layer_in_eight_bits_is_near_the_layer(shape: tuple[int, ...]) -> None:
    layer, x = nn.Linear(64, 96), torch.randn(*shape)
    y = QuantisedLinear(layer.weight, layer.bias)(x)
    assert y.shape == (*shape[:-1], 96) and y.dtype == torch.float32
    if x.numel():
        assert 0 < error(y, layer(x)) < 0.02


def test_a_layer_without_bias_and_a_row_of_zeros() -> None:
    layer, x = nn.Linear(64, 96, bias=False), torch.randn(4, 64)
    x[2] = 0
    y = QuantisedLinear(layer.weight, None)(x)
    assert not y[2].any()
    assert error(y, layer(x)) < 0.02


def test_a_large_token_does_not_coarsen_the_others() -> None:
    layer, x = nn.Linear(64, 96, bias=False), torch.randn(8, 64)
    x[0] *= 1000
    small = quantised.QuantisedLinear(layer.weight, None)(x)[1:]
    assert error(small, layer(x[1:])) < 0.02


def test_full_range_does_not_overflow() -> None:
    """Where it would, activations have seven bits: 63 · 1 is then still 63."""
    x, weight = torch.ones(1, 64), torch.ones(4, 64)
    x[0, 0] = 0.0
    assert torch.allclose(QuantisedLinear(weight, None)(x), torch.tensor(63.0), atol=0.5)


def test_parts_of_the_outputs_are_those_of_the_whole() -> None:
    layer = nn.Linear(64, 96)
    held, x = QuantisedLinear(layer.weight, layer.bias), torch.randn(7, 64)
    assert torch.allclose(part(held, x, 32, 96), held(x)[:, 32:], atol=1e-5)
    assert torch.allclose(part(layer, x, 32, 96), layer(x)[:, 32:], atol=1e-6)
    assert error(held.weight, layer.weight) < 0.01


def test_the_original_is_untouched_and_the_copy_its_own() -> None:
    model = spread(Labelled(encoder(), HeadConfig(outputs=3)))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        copy = quantise(model)
    copy.body.embed.weight.zero_()
    assert {type(m) for m in model.modules()}.isdisjoint({QuantisedLinear})
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert torch.backends.quantized.engine in torch.backends.quantized.supported_engines


def test_what_is_quantised_and_what_is_not() -> None:
    bert = quantise(BERT(BERTConfig(vocabulary=300, layers=1, heads=2, hidden=64, context=16)))
    eight = {name for name, module in bert.named_modules() if isinstance(module, QuantisedLinear)}
    inside = {f"body.blocks.0.{name}" for name in ("attention.project", "attention.out", "feed.up", "feed.down")}
    assert eight == {
        *inside,
        "body.pooler",
        "head.dense",
    }  # not what is tied, nor the two outputs of next
    assert bert.head.out.weight is bert.body.embed.weight


@pytest.mark.parametrize("kind", ["whole", "token"])
@pytest.mark.parametrize("pooled", [True, False])
def test_an_encoder_in_eight_bits_answers_nearly_the_same(kind: str, pooled: bool) -> None:
    model = spread(Labelled(encoder(pooled=pooled), HeadConfig(outputs=3, kind=kind)))
    chance = np.random.default_rng(0)
    texts = [chance.integers(0, 300, length) for length in chance.integers(1, 41, 60)]
    rows = make_rows([(text, np.zeros(len(text))) for text in texts], np.zeros(60, dtype=np.int64))
    wanted, found = (
        np.concatenate([x.reshape(-1, 3) for x in compute_logits(m, rows)]) for m in (model, quantise(model))
    )
    assert 0 < error(torch.from_numpy(found), torch.from_numpy(wanted)) < 0.05
    assert (found.argmax(1) == wanted.argmax(1)).mean() > 0.95


def test_attention_at_some_places_in_eight_bits() -> None:
    layer = SelfAttention(MixerConfig(width=64, heads=4, causal=False)).eval()
    x, lengths = torch.randn(3, 9, 64), torch.tensor([9, 2, 5])
    held = quantise(layer)
    first, layout = torch.zeros(3, 1, dtype=torch.long), Layout(lengths)
    found, _ = held.at(first, x[:, :1], x, layout)
    assert torch.allclose(found, held(x, None, layout)[0][:, :1], atol=0.02)
    assert error(found, layer.at(first, x[:, :1], x, layout)[0]) < 0.05


@pytest.mark.parametrize(
    "body",
    [
        lambda: GPTLanguageModel(GPTConfig(vocabulary=50, layers=2, hidden=64, context=16)),
        lambda: LSTMLanguageModel(LSTMLanguageModel.Config(vocabulary=50)),
        lambda: WindowLanguageModel(WindowLanguageModel.Config(vocabulary=50)),
    ],
)
def test_language_models_label_in_eight_bits(body: Any) -> None:
    model = spread(Labelled(body(), HeadConfig(outputs=4)))
    tokens, lengths = torch.randint(50, (6, 12)), torch.tensor([12, 3, 12, 7, 1, 9])
    found, wanted = quantise(model)(tokens, None, lengths).logits, model(tokens, None, lengths).logits
    assert error(found, wanted) < 0.05


def test_sentence_vectors_in_eight_bits_point_the_same_way() -> None:
    body, texts = spread(encoder()), ["one", "a longer text", "", "one", "the longest of all these texts"]
    exact, near = (sentence_vectors(body, ByteTokenizer(), texts, int8=int8) for int8 in (False, True))
    assert np.allclose(exact[0], exact[3], atol=1e-6)
    assert (exact * near).sum(1).min() > 0.99
    assert not np.array_equal(exact, near)


def test_a_build_without_an_engine_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantised, "ENGINES", ())
    with pytest.raises(InputError, match="no int8 engine"):
        quantise(nn.Sequential(nn.Linear(64, 64)))


def test_other_devices_are_refused() -> None:
    with pytest.raises(InputError, match="on the CPU only"):
        quantise(nn.Linear(64, 64, device="meta"))


def test_what_a_row_comes_to_does_not_depend_on_those_beside_it() -> None:
    layer, x = nn.Linear(64, 96), torch.randn(5, 64)
    x[1:] *= torch.tensor([1e-3, 1.0, 50.0, 1e4])[:, None]
    small = QuantisedLinear(layer.weight, layer.bias)
    alone = torch.cat([small(row[None]) for row in x])
    torch.testing.assert_close(small(x), alone, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shape", [(48, 32), (33, 7), (1, 64)])
def test_panels_hold_every_weight_once(shape):
    whole = torch.randint(-127, 128, shape, dtype=torch.int8)
    outputs, inputs = shape
    found = panels(whole)
    assert found.shape == (2 * -(-outputs // 32), (inputs + 1) // 2, 16, 2) and found.is_contiguous()
    for j, i in itertools.product(range(outputs), range(inputs)):
        assert found[j // 16, i // 2, j % 16, i % 2] == whole[j, i]
    assert found.abs().sum(dtype=torch.int64) == whole.abs().sum(dtype=torch.int64)  # the rest is zeros


def test_panels_are_made_where_a_step_reads_them() -> None:
    layer = QuantisedLinear(torch.randn(40, 64), None)
    layer(torch.randn(3, 64))
    assert not {"panels", "most"} & set(vars(layer))
    made = layer.panels.transpose(1, 2).reshape(-1, 64)[:40] * layer.scale[:, None]
    assert torch.equal(made, layer.weight) and layer.panels is layer.panels


@pytest.mark.parametrize(("vocabulary", "kind"), [(31, nn.Linear), (32, QuantisedLinear)])
def test_a_few_letters_are_told_apart_in_full(vocabulary: int, kind: type) -> None:
    model = quantise(GPTLanguageModel(GPTConfig(vocabulary=vocabulary, layers=1, hidden=64, context=16)))
    assert type(model.head) is kind
    assert model(torch.zeros(1, 3, dtype=torch.long)).logits.isfinite().all()
