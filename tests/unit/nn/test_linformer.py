"""Linformer: projections along time; its limit is full attention."""

import pytest
import torch

from ensue.core.errors import InputError
from ensue.models.bert import BERT, BERTConfig
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.nn.layout import Layout
from ensue.nn.mixers.full import SelfAttention
from ensue.nn.mixers.linformer import Linformer
from ensue.nn.mixers.mixer import MixerConfig, build_mixer

N = 12
CONFIG = MixerConfig(width=16, heads=4, kv_heads=2, causal=False, context=N)
SMALL = {"layers": 3, "heads": 4, "hidden": 16, "context": 16, "dropout": 0.0}


def mixer(**options):
    torch.manual_seed(0)
    return Linformer(CONFIG, **options).eval()


@pytest.mark.parametrize("share", ["none", "heads", "kv", "layer"])
def test_identity_projections_of_full_rank_are_full_attention(share):
    own, full = mixer(rank=N, share=share), SelfAttention(CONFIG).eval()
    full.load_state_dict({name: value for name, value in own.state_dict().items() if name in full.state_dict()})
    with torch.no_grad():
        for projection in (own.project_keys, own.project_values):
            projection.copy_(torch.eye(N).expand_as(projection))
    x = torch.randn(3, N, 16)
    found, wanted = own(x, None, weights=True), full(x, None, weights=True)
    torch.testing.assert_close(found.y, wanted.y, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found.weights, wanted.weights, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("share", ["none", "heads"])
def test_the_weights_that_are_shown_give_the_output(share):
    own, x, lengths = mixer(rank=3, share=share), torch.randn(2, 9, 16), torch.tensor([9, 5])
    found = own(x, None, Layout(lengths), weights=True)
    value = own._heads(own._projected(x))[2].repeat_interleave(2, dim=1)  # (B, H, T, d)
    y = own.out((found.weights @ value).transpose(1, 2).flatten(2))
    torch.testing.assert_close(y, found.y, atol=1e-5, rtol=1e-5)
    assert not found.weights[1, :, :, 5:].any()
    assert torch.equal(found.y, own(x, None, Layout(lengths)).y)


def test_a_short_row_uses_the_first_columns():
    own, x = mixer(rank=4), torch.randn(1, 5, 16)
    before = own(x).y
    with torch.no_grad():
        own.project_keys[:, :, 5:] = 9.0
        own.project_values[:, :, 5:] = 9.0
    assert torch.equal(own(x).y, before)


def test_sharing_takes_the_weights_that_the_paper_counts():
    counts = {share: sum(p.numel() for p in BERT(config(share)).parameters()) for share in ("none", "heads", "kv")}
    size, layers, heads = 4 * 16, 3, 4
    assert counts["none"] - counts["heads"] == 2 * (heads - 1) * size * layers
    assert counts["heads"] - counts["kv"] == size * layers
    one = BERT(config("layer"))
    assert counts["kv"] - sum(p.numel() for p in one.parameters()) == size * (layers - 1)
    projections = {id(module.project_keys) for module in one.modules() if isinstance(module, Linformer)}
    assert len(projections) == 1


def config(share):
    return BERTConfig(vocabulary=11, attention=f"linformer:rank=4:share={share}", **SMALL)


def test_a_projection_of_all_layers_is_one_after_loading_and_another_in_another_model():
    torch.manual_seed(0)
    one, other = BERT(config("layer")).eval(), BERT(config("layer")).eval()
    tokens = torch.randint(11, (2, 7))
    assert not torch.equal(one(tokens).logits, other(tokens).logits)
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(tokens).logits, other(tokens).logits)
    with torch.no_grad():
        next(m for m in other.modules() if isinstance(m, Linformer)).project_keys.zero_()
    assert all(not m.project_keys.any() for m in other.modules() if isinstance(m, Linformer))
    assert not torch.equal(one(tokens).logits, other(tokens).logits)


def test_what_it_cannot_do_is_refused_in_one_line():
    with pytest.raises(InputError, match="both directions only"):
        GPTLanguageModel(GPTConfig(vocabulary=11, attention="linformer", layers=1, heads=2, hidden=8, context=8))
    with pytest.raises(InputError, match="reads at most 12 tokens"):
        mixer()(torch.randn(1, N + 1, 16))
    with pytest.raises(InputError, match="did you mean 'heads'"):
        build_mixer("linformer:share=head", CONFIG)
    with pytest.raises(InputError, match="must be 0 or more"):
        mixer(rank=-1)
    with pytest.raises(InputError, match="needs a model with a context"):
        Linformer(MixerConfig(width=8, causal=False))
    with pytest.raises(InputError, match="cannot use positions=alibi"):
        BERT(BERTConfig(vocabulary=11, attention="linformer", positions="alibi", **SMALL))
