"""RMSNorm, SwiGLU, grouped-query attention and the base of rotary positions against transformers' Llama."""

import pytest
import torch

from ensue.models.gpt import GPTConfig, GPTLanguageModel

transformers = pytest.importorskip("transformers")
V, LAYERS = 37, 3


def both(heads=4, kv_heads=2, base=100_000.0, tied=False):
    """A tiny random Llama, and ours with its weights."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=V,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=LAYERS,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        rope_theta=base,
        rms_norm_eps=1e-5,
        tie_word_embeddings=tied,
        max_position_embeddings=64,
    )
    theirs = transformers.LlamaForCausalLM._from_config(config, attn_implementation="eager").eval()
    ours = GPTLanguageModel(
        GPTConfig(
            vocabulary=V,
            hidden=32,
            inner=48,
            layers=LAYERS,
            heads=heads,
            kv_heads=kv_heads,
            rope_base=base,
            norm="rms",
            feed="swiglu",
            bias=False,
            tied=tied,
            context=64,
        )
    ).eval()
    state = theirs.state_dict()
    weights = {"embed.weight": "model.embed_tokens.weight", "norm.weight": "model.norm.weight"}
    if not tied:
        weights["head.weight"] = "lm_head.weight"
    names = {"norm_attention": "input_layernorm", "attention.out": "self_attn.o_proj", "feed.gate": "mlp.gate_proj"}
    names |= {"norm_feed": "post_attention_layernorm", "feed.up": "mlp.up_proj", "feed.down": "mlp.down_proj"}
    for layer in range(LAYERS):
        weights |= {f"blocks.{layer}.{a}.weight": f"model.layers.{layer}.{b}.weight" for a, b in names.items()}
    found = {name: state[other] for name, other in weights.items()}
    for layer in range(LAYERS):
        parts = [state[f"model.layers.{layer}.self_attn.{one}_proj.weight"] for one in "qkv"]
        found[f"blocks.{layer}.attention.project.weight"] = torch.cat(parts)
    if tied:
        found["head.weight"] = found["embed.weight"]
    with torch.no_grad():
        ours.load_state_dict(found)
    return ours, theirs


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2), (4, 1)])
@pytest.mark.parametrize("base", [10_000.0, 100_000.0])
def test_logits_and_attention_equal_llama(heads, kv_heads, base):
    ours, theirs = both(heads, kv_heads, base)
    tokens = torch.randint(V, (3, 17))
    with torch.no_grad():
        expected = theirs(tokens, output_attentions=True)
        found = ours(tokens, want=("logits", "attention"))
    torch.testing.assert_close(found.logits, expected.logits, atol=1e-5, rtol=1e-5)
    for left, right in zip(found.attention, expected.attentions, strict=True):
        torch.testing.assert_close(left, right, atol=1e-6, rtol=1e-5)


def test_tokens_one_by_one_equal_llama():
    ours, theirs = both(tied=True)
    tokens, state, found = torch.randint(V, (2, 12)), None, []
    with torch.no_grad():
        expected = theirs(tokens).logits
        for at in range(tokens.shape[1]):
            step = ours(tokens[:, at : at + 1], state)
            state = step.state
            found.append(step.logits)
    torch.testing.assert_close(torch.cat(found, dim=1), expected, atol=1e-5, rtol=1e-5)


def test_gradients_equal_llama():
    ours, theirs = both()
    tokens = torch.randint(V, (2, 20))
    ours.train()
    theirs.train()
    loss, _ = ours.loss(tokens[:, :-1], tokens[:, 1:])
    loss.backward()
    expected = theirs(tokens, labels=tokens).loss
    expected.backward()
    torch.testing.assert_close(loss, expected, atol=1e-5, rtol=1e-5)
    for layer in range(LAYERS):
        theirs_layer = theirs.model.layers[layer]
        parts = [getattr(theirs_layer.self_attn, f"{one}_proj").weight.grad for one in "qkv"]
        torch.testing.assert_close(
            ours.blocks[layer].attention.project.weight.grad, torch.cat(parts), atol=1e-5, rtol=1e-4
        )
        down = theirs_layer.mlp.down_proj.weight.grad
        torch.testing.assert_close(ours.blocks[layer].feed.down.weight.grad, down, atol=1e-5, rtol=1e-4)
