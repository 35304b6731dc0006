"""Our Transformer against torch.nn.Transformer and transformers' Marian, with the same weights."""

import math

import pytest
import torch

from ensue.core.errors import InputError
from ensue.exchange.huggingface import marian_from_weights, marian_weights
from ensue.models.transformer import Transformer, TransformerConfig
from ensue.nn.cross_attention import CrossAttention
from ensue.nn.layout import Layout
from ensue.nn.positions import sinusoids
from ensue.nn.source import Source

WIDTH, HEADS, LAYERS, VOCABULARY = 16, 4, 2, 19
SOURCE, LENGTHS = torch.randint(VOCABULARY, (3, 7), generator=torch.Generator().manual_seed(1)), torch.tensor([7, 3, 1])
TOKENS = torch.randint(VOCABULARY, (3, 6), generator=torch.Generator().manual_seed(2))


def shaken(model):
    """A model whose every weight, biases and norms too, is far from its start."""
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return model.eval()


def step_by_step(model, tokens, state):
    """The logits of one token after the other."""
    found = []
    for t in range(tokens.shape[1]):
        output = model(tokens[:, t : t + 1], state)
        found.append(output.logits)
        state = output.state
    return torch.cat(found, dim=1)


NAMES = {
    "self_attn.in_proj_": "attention.project.",
    "self_attn.out_proj.": "attention.out.",
    "multihead_attn.out_proj.": "cross.out.",
    "linear1.": "feed.up.",
    "linear2.": "feed.down.",
    "norm1.": "norm_attention.",
}
LAST_NORMS = {"encoder": {"norm2.": "norm_feed."}, "decoder": {"norm2.": "norm_cross.", "norm3.": "norm_feed."}}


def torch_weights(ours):
    """Our weights under torch's names."""
    found = {}
    for side in ("encoder", "decoder"):
        for layer, block in enumerate(getattr(ours, side)):
            held = block.state_dict()
            for theirs, own in {**NAMES, **LAST_NORMS[side]}.items():
                if f"{own}weight" in held:
                    for kind in ("weight", "bias"):
                        found[f"{side}.layers.{layer}.{theirs}{kind}"] = held[f"{own}{kind}"]
            if side == "decoder":
                for kind in ("weight", "bias"):
                    parts = [held[f"cross.query.{kind}"], held[f"cross.remember.{kind}"]]
                    found[f"{side}.layers.{layer}.multihead_attn.in_proj_{kind}"] = torch.cat(parts)
        last = getattr(ours, "norm_source" if side == "encoder" else "norm")
        found |= {f"{side}.norm.{name}": weight for name, weight in last.state_dict().items()}
    return found


@pytest.mark.filterwarnings("ignore:enable_nested_tensor", "ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_logits_equal_torch(norm):
    config = TransformerConfig(
        vocabulary=VOCABULARY, source_vocabulary=VOCABULARY, layers=LAYERS, heads=HEADS, hidden=WIDTH, norm=norm
    )
    ours = shaken(Transformer(config))
    theirs = torch.nn.Transformer(
        WIDTH, HEADS, LAYERS, LAYERS, 4 * WIDTH, norm_first=norm == "pre", batch_first=True
    ).eval()
    if norm == "post":  # torch has a last norm there too, which the paper has not
        theirs.encoder.norm = theirs.decoder.norm = None
    theirs.load_state_dict(torch_weights(ours))
    padded = torch.arange(SOURCE.shape[1]) >= LENGTHS[:, None]
    causal = torch.nn.Transformer.generate_square_subsequent_mask(TOKENS.shape[1])

    def read(table, tokens):
        return table(tokens) * math.sqrt(WIDTH) + sinusoids(torch.arange(tokens.shape[1]), WIDTH).float()

    with torch.no_grad():
        hidden = theirs(
            read(ours.embed_source, SOURCE),
            read(ours.embed, TOKENS),
            tgt_mask=causal,
            src_key_padding_mask=padded,
            memory_key_padding_mask=padded,
        )
        expected = hidden @ ours.embed.weight.T
        torch.testing.assert_close(ours(TOKENS, ours.start(SOURCE, LENGTHS)).logits, expected, atol=1e-5, rtol=1e-5)
        cached = step_by_step(ours, TOKENS, ours.start(SOURCE, LENGTHS))
        torch.testing.assert_close(cached, expected, atol=1e-5, rtol=1e-5)


def test_cross_attention_equals_torch():
    """The paper's size: 8 heads of 64."""
    ours, theirs = CrossAttention(512, 8), torch.nn.MultiheadAttention(512, 8, batch_first=True)
    theirs.in_proj_weight.data = torch.cat([ours.query.weight.data, ours.remember.weight.data])
    theirs.in_proj_bias.data = torch.cat([ours.query.bias.data, ours.remember.bias.data])
    theirs.out_proj.weight.data, theirs.out_proj.bias.data = ours.out.weight.data, ours.out.bias.data
    x, h = torch.randn(3, 4, 512), torch.randn(3, 7, 512)
    memory = ours.memory(h)
    y, weights = ours(x, memory, Source.of(memory, LENGTHS, 7), weights=True)
    padded = torch.arange(7) >= LENGTHS[:, None]
    expected, seen = theirs(x, h, h, key_padding_mask=padded, average_attn_weights=False)
    torch.testing.assert_close(y, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(weights, seen, atol=1e-6, rtol=0)
    assert (weights.masked_select(padded[:, None, None].expand_as(weights)) == 0).all()


MARIAN = {
    "vocab_size": VOCABULARY,
    "d_model": WIDTH,
    "encoder_layers": LAYERS,
    "decoder_layers": LAYERS,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 40,
    "max_position_embeddings": 24,
    "scale_embedding": True,
    "activation_function": "relu",
    "pad_token_id": VOCABULARY - 1,
    "decoder_start_token_id": VOCABULARY - 1,
    "eos_token_id": 0,
    "forced_eos_token_id": 0,
    "attn_implementation": "eager",
}


@pytest.fixture(scope="module")
def marian():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    theirs = transformers.MarianMTModel(transformers.MarianConfig(**MARIAN)).eval()
    positions = {name for name, _ in theirs.named_parameters() if "embed_positions" in name}
    for name, weight in theirs.named_parameters():
        if name not in positions:
            torch.nn.init.normal_(weight, std=0.3)
    return theirs


def test_weights_go_to_marian_and_back(marian):
    expected = marian.state_dict()
    found = marian_weights(marian_from_weights(marian.config.to_dict(), expected))
    assert set(expected) - set(found) == {name for name in expected if "embed_positions" in name}
    for name, weight in found.items():
        torch.testing.assert_close(weight, expected[name], atol=0, rtol=0)


@pytest.mark.parametrize("setting", [{"norm": "pre"}, {"tied": "none"}, {"activation": "gelu"}])
def test_another_form_does_not_go_to_marian(setting):
    form = {"norm": "post", "tied": "all"} | setting
    config = TransformerConfig(vocabulary=5, source_vocabulary=5, layers=1, heads=2, hidden=4, **form)
    with pytest.raises(InputError, match="not a Marian model"):
        marian_weights(Transformer(config))


def test_logits_equal_marian(marian):
    ours = marian_from_weights(marian.config.to_dict(), marian.state_dict()).eval()
    mask = (torch.arange(SOURCE.shape[1]) < LENGTHS[:, None]).long()
    with torch.no_grad():
        theirs = marian(SOURCE, attention_mask=mask, decoder_input_ids=TOKENS, output_attentions=True)
        found = ours(TOKENS, ours.start(SOURCE, LENGTHS), want=("logits", "attention"))
        torch.testing.assert_close(found.logits, theirs.logits, atol=1e-5, rtol=1e-5)
        cached = step_by_step(ours, TOKENS, ours.start(SOURCE, LENGTHS))
        torch.testing.assert_close(cached, theirs.logits, atol=1e-5, rtol=1e-5)
        for left, right in zip(found.attention, theirs.cross_attentions, strict=True):
            torch.testing.assert_close(left, right, atol=1e-5, rtol=0)
        seen = ours.encode(SOURCE, Layout(LENGTHS), weights=True).weights
        for left, right in zip(seen, theirs.encoder_attentions, strict=True):
            real = mask[:, None, :, None].bool().expand_as(left)
            torch.testing.assert_close(left[real], right[real], atol=1e-5, rtol=0)


@pytest.mark.parametrize("other", [{"scale_embedding": False}, {"decoder_layers": 1}, {"activation_function": "swish"}])
def test_a_marian_model_of_another_form_is_refused(marian, other):
    with pytest.raises(InputError, match="is not supported"):
        marian_from_weights({**marian.config.to_dict(), **other}, marian.state_dict())


def test_a_bias_of_marians_logits_is_refused_not_lost(marian):
    weights = {**marian.state_dict(), "final_logits_bias": torch.ones(1, VOCABULARY)}
    with pytest.raises(InputError, match="bias"):
        marian_from_weights(marian.config.to_dict(), weights)
