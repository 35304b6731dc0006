"""Our GPT against transformers' GPT-2 and OpenAI-GPT with mapped weights; our attention against torch's."""

import pytest
import torch

from ensue.exchange.huggingface import gpt_from_weights
from ensue.kernels.attention import attention
from ensue.nn.blocks import PostNormBlock
from ensue.nn.feed_forward import FeedForward
from ensue.nn.mixers.full import SelfAttention
from ensue.nn.mixers.mixer import MixerConfig

transformers = pytest.importorskip("transformers")
SIZES = {"vocab_size": 37, "n_positions": 24, "n_embd": 16, "n_layer": 3, "n_head": 4}


@pytest.mark.parametrize("family", ["gpt2", "openai-gpt"])
def test_logits_equal_transformers(family):
    config, cls = {
        "gpt2": (transformers.GPT2Config, transformers.GPT2LMHeadModel),
        "openai-gpt": (transformers.OpenAIGPTConfig, transformers.OpenAIGPTLMHeadModel),
    }[family]
    settings = config(**SIZES)
    theirs = cls(settings).eval()
    for weight in theirs.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    ours = gpt_from_weights(family, settings.to_dict(), theirs.state_dict()).eval()
    tokens = torch.randint(37, (2, 24))
    with torch.no_grad():
        expected = theirs(tokens).logits
        whole = ours(tokens)
        torch.testing.assert_close(whole.logits, expected, atol=1e-5, rtol=1e-5)
        first = ours(tokens[:, :10])
        rest = [ours(tokens[:, :0], first.state).logits]
        state = first.state
        for t in range(10, 24):  # one at a time, from the cache
            step = ours(tokens[:, t : t + 1], state)
            rest.append(step.logits)
            state = step.state
        cached = torch.cat([first.logits, *rest], dim=1)
        torch.testing.assert_close(cached, expected, atol=1e-5, rtol=1e-5)


def test_attention_weights_equal_transformers():
    settings = transformers.GPT2Config(**SIZES, attn_implementation="eager")
    theirs = transformers.GPT2LMHeadModel(settings).eval()
    ours = gpt_from_weights("gpt2", settings.to_dict(), theirs.state_dict()).eval()
    tokens = torch.randint(37, (2, 7))
    with torch.no_grad():
        expected = theirs(tokens, output_attentions=True).attentions
        found = ours(tokens, want=("attention",)).attention
    for left, right in zip(found, expected, strict=True):
        torch.testing.assert_close(left, right, atol=1e-6, rtol=0)


def test_multi_head_attention_equals_torch():
    """R89 at the paper's size: h = 8, d = 512, d_k = d_v = 64."""
    ours, theirs = SelfAttention(MixerConfig(width=512, heads=8)), torch.nn.MultiheadAttention(512, 8, batch_first=True)
    theirs.in_proj_weight.data, theirs.in_proj_bias.data = ours.project.weight.data, ours.project.bias.data
    theirs.out_proj.weight.data, theirs.out_proj.bias.data = ours.out.weight.data, ours.out.bias.data
    x = torch.randn(2, 6, 512)
    y, _, weights = ours(x, weights=True)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(6)
    expected, seen = theirs(x, x, x, attn_mask=mask, average_attn_weights=False)
    torch.testing.assert_close(y, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(weights, seen, atol=1e-6, rtol=0)


def test_post_norm_block_equals_torch_encoder_layer():
    ours = PostNormBlock(
        SelfAttention(MixerConfig(width=16, heads=2)), FeedForward(16, 64, "relu"), lambda: torch.nn.LayerNorm(16)
    ).eval()
    theirs = torch.nn.TransformerEncoderLayer(16, 2, 64, dropout=0.0, batch_first=True).eval()
    names = {
        "self_attn.in_proj_weight": ours.attention.project.weight,
        "self_attn.in_proj_bias": ours.attention.project.bias,
        "self_attn.out_proj.weight": ours.attention.out.weight,
        "self_attn.out_proj.bias": ours.attention.out.bias,
        "linear1.weight": ours.feed.up.weight,
        "linear1.bias": ours.feed.up.bias,
        "linear2.weight": ours.feed.down.weight,
        "linear2.bias": ours.feed.down.bias,
        "norm1.weight": ours.norm_attention.weight,
        "norm1.bias": ours.norm_attention.bias,
        "norm2.weight": ours.norm_feed.weight,
        "norm2.bias": ours.norm_feed.bias,
    }
    theirs.load_state_dict({name: weight.data for name, weight in names.items()})
    x = torch.randn(2, 5, 16)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(5)
    with torch.no_grad():
        torch.testing.assert_close(ours(x)[0], theirs(x, src_mask=mask, is_causal=True), atol=1e-5, rtol=0)


def test_the_fused_kernel_equals_the_reference():
    q, k, v = torch.randn(3, 2, 4, 6, 8).unbind(0)
    mask = torch.ones(6, 6).tril().bool()
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(attention(q, k, v, mask), expected, atol=1e-6, rtol=0)
