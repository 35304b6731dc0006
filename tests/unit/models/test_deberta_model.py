"""DeBERTa: the enhanced mask decoder, its settings, and what a task takes from it."""

from dataclasses import replace

import pytest
import torch

from ensue.core.errors import InputError
from ensue.kernels.int8 import quantise
from ensue.models.bert import BERT, BERTConfig
from ensue.models.deberta import SIZES, DeBERTa, DeBERTaConfig
from ensue.models.encoder import Encoder
from ensue.models.labelled import HeadConfig, Labelled
from ensue.nn.layout import Layout
from ensue.nn.recompute import recompute_blocks
from ensue.train.sharding import shard_units

TINY = {"vocabulary": 31, "layers": 3, "heads": 2, "hidden": 16, "context": 12, "dropout": 0.0}
TOKENS = torch.randint(31, (3, 9), generator=torch.Generator().manual_seed(1))
LENGTHS = torch.tensor([9, 4, 1])
PLACES = torch.tensor([[1, 3, 8], [0, 1, 2], [0, 0, 0]])


def deberta(**changes):
    torch.manual_seed(0)
    made = DeBERTa(DeBERTaConfig(**{**TINY, **changes}))
    for name, weight in made.named_parameters():
        torch.nn.init.normal_(weight, mean=float("norm" in name and name.endswith("weight")), std=0.3)
    return made


def decoded(model, times):
    """q_M of every position, block by block: scores of q against h_{L-1}."""
    h = model.body(TOKENS, None, LENGTHS, layers=True).layers[-2]
    block = model.body.blocks.blocks[-1]
    q = h + model.decoder.positions.weight[:9]
    every, layout = torch.arange(9).expand(3, -1), Layout(LENGTHS)
    for _ in range(times):
        y, _ = block.attention.at(every, q, h, layout)
        z = block.norm_attention(q + y)
        q = block.norm_feed(z + block.feed(z))
    return q


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("training", [False, True])
def test_masked_tokens_are_decoded_from_the_block_before_the_last_and_absolute_positions(times, training):
    model = deberta(decoder=times).train(training)
    expected = decoded(model, times)
    real = torch.arange(9) < LENGTHS[:, None]
    output = model(TOKENS, None, LENGTHS, ("hidden", "logits", "attention"))
    torch.testing.assert_close(output.hidden[real], expected[real], atol=1e-5, rtol=0)
    torch.testing.assert_close(output.logits, model.head(output.hidden))
    assert len(output.attention) == 3 and output.attention[-1].shape == (3, 2, 9, 9)
    found = model.encode(TOKENS, None, LENGTHS, PLACES).hidden
    index = torch.cat([PLACES[:, :1] * 0, PLACES], 1)[..., None].expand(-1, -1, 16)
    torch.testing.assert_close(found, expected.gather(1, index), atol=1e-5, rtol=0)
    with torch.no_grad():
        torch.testing.assert_close(model.encode(TOKENS, None, LENGTHS, PLACES).hidden, found, atol=1e-5, rtol=0)


def test_only_the_decoder_knows_where_a_text_begins():
    plain, model = deberta(decoder=0), deberta(decoder=2)
    same = torch.full((1, 12), 7)  # equal tokens differ by their distances to the ends alone
    assert not torch.allclose(model(same).logits[0, 5], model(same).logits[0, 6], atol=1e-3)
    model.load_state_dict(plain.state_dict(), strict=False)
    torch.nn.init.zeros_(model.decoder.positions.weight)
    torch.testing.assert_close(model.body(TOKENS).hidden, plain.body(TOKENS).hidden)
    once = DeBERTa(replace(model.config, decoder=1))
    once.load_state_dict(model.state_dict())
    torch.testing.assert_close(once(TOKENS).logits, plain(TOKENS).logits)  # with E_p = 0 and M = 1 it is BERT's head
    assert not torch.allclose(model(TOKENS).logits, plain(TOKENS).logits, atol=1e-2)


@pytest.mark.parametrize("attention", ["disentangled", "disentangled-shared:buckets=6"])
def test_every_weight_gets_a_gradient_also_of_recomputed_blocks(attention):
    found = []
    for recomputed in (False, True):
        model = deberta(attention=attention)
        if recomputed:
            assert recompute_blocks(model) == 3
        hidden = model.encode(TOKENS, None, LENGTHS, PLACES).hidden[:, 1:].flatten(0, 1)
        model.masked_loss(hidden, TOKENS[:, :3].flatten()).backward()
        found.append({name: weight.grad for name, weight in model.named_parameters()})
    for name, gradient in found[0].items():
        assert gradient is not None and gradient.abs().sum() > 0, name
        torch.testing.assert_close(gradient, found[1][name])


@pytest.mark.parametrize("kind", ["whole", "choice", "token", "span"])
def test_heads_read_the_body_without_the_decoder(kind):
    body = deberta(decoder=2).body
    model = Labelled(body, HeadConfig(kind=kind, outputs=2, dropout=0.0), 3 if kind == "choice" else 1)
    logits = model(TOKENS, None, LENGTHS).logits
    assert logits.shape == {"whole": (3, 2), "choice": (2, 3)}.get(kind, (3, 9, 2))
    if kind in ("whole", "choice"):
        assert model.config.dense == "gelu-erf"
        pooled = torch.nn.functional.gelu(model.dense(body(TOKENS, None, LENGTHS).hidden[:, 0]))
        torch.testing.assert_close(logits.flatten(), model.out(pooled).flatten())


def test_blocks_that_share_the_vectors_of_distances_are_not_sharded_apart():
    model = deberta()
    units = shard_units(model)
    assert not any(unit is block for unit in units for block in model.body.blocks)
    apart = BERT(BERTConfig(**TINY))
    assert sum(unit is block for unit in shard_units(apart) for block in apart.body.blocks) == 3


def test_int8_is_near():
    for attention in ("disentangled", "disentangled-shared:buckets=6"):
        model = deberta(attention=attention).eval()
        with torch.no_grad():
            exact, near = (
                model(TOKENS, None, LENGTHS).hidden,
                quantise(model)(TOKENS, None, LENGTHS, ("hidden",)).hidden,
            )
            exact = model(TOKENS, None, LENGTHS, ("hidden",)).hidden
        assert 0 < float((exact - near).abs().mean()) < 0.1 * float(exact.std())


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"decoder": -1}, "decoder"),
        ({"attention": "full"}, "decoder = 2 works with disentangled attention only, not full"),
        ({"attention": "disentangled,local:span=2"}, "decoder = 2 works with disentangled attention only"),
        ({"attention": "full+disentangled"}, "decoder = 2 works with disentangled attention only"),
        ({"next_sentence": True, "pooled": True}, "not trained on pairs"),
    ],
)
def test_settings_that_do_not_fit_are_refused_in_one_line(settings, says):
    with pytest.raises(InputError, match=says) as error:
        DeBERTaConfig(**TINY | settings)
    assert "\n" not in str(error.value)


def test_texts_longer_than_the_context_are_refused():
    with pytest.raises(InputError, match="13 tokens do not fit into a context of 12"):
        deberta()(torch.zeros(1, 13, dtype=torch.long))


@pytest.mark.parametrize(("size", "body"), [("base", 138_601_728), ("v3-base", 183_831_552)])
def test_the_published_sizes(size, body):
    shape = {name: value for name, value in DeBERTa.presets[size].items() if "." not in name}
    assert shape == SIZES[size]
    with torch.device("meta"):
        vocabulary = DeBERTa.presets[size]["tokenizer.vocabulary"]
        model = DeBERTa(DeBERTaConfig(vocabulary=vocabulary, **shape))
    assert sum(p.numel() for p in model.body.parameters()) == body
    assert sum(p.numel() for p in model.decoder.parameters()) == 512 * 768
    assert isinstance(model.body, Encoder)
