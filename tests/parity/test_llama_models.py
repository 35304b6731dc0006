"""Llama, with the weights of transformers' models: the same logits, at once and token by token."""

import pytest
import torch

from ensue.core.errors import InputError
from ensue.models.llama import LlamaConfig, LlamaLanguageModel
from ensue.nn.planning import without_storage

SIZES = {"vocabulary": 60, "layers": 2, "heads": 4, "kv_heads": 2, "hidden": 64, "inner": 96, "context": 64}
CASES = {
    "llama": ({}, {}),
    "tied": ({"tied": True}, {"tie_word_embeddings": True}),
    "wide heads": ({"head_width": 24}, {"head_dim": 24}),
    "linear": ({"rope_scaling": "linear:factor=4"}, {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
    "llama3": (
        {"rope_scaling": "llama3:factor=8:original=32"},
        {
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            }
        },
    ),
    "mistral": ({"attention": "local:span=8"}, {"sliding_window": 8}),
    "qwen2": ({"qkv_bias": True}, {}),
    "qwen3": ({"qk_norm": True, "head_width": 24}, {"head_dim": 24}),
    "gemma3": (
        {
            "attention": "local:span=8:base=1000,full",
            "rope_scaling": "linear:factor=4",
            "norm": "sandwich-rms",
            "feed": "geglu",
            "qk_norm": True,
            "embed_scale": 8.0,
            "head_width": 24,
            "tied": True,
        },
        {
            "sliding_window": 8,
            "layer_types": ["sliding_attention", "full_attention"],
            "rope_local_base_freq": 1000.0,
            "rope_scaling": {"rope_type": "linear", "factor": 4.0},
            "head_dim": 24,
            "query_pre_attn_scalar": 24,
            "tie_word_embeddings": True,
        },
    ),
}
NAMES = {"mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3", "gemma3": "Gemma3"}


PUBLISHED = {"smollm2-135m": 134_515_008, "llama2-7b": 6_738_415_616, "gemma3-270m": 268_098_176}
BEFORE = {"norm_attention": "input", "norm_feed": "post_attention"}
SANDWICH = {
    "norm_attention": "input",
    "norm_mixed": "post_attention",
    "norm_feed": "pre_feedforward",
    "norm_fed": "post_feedforward",
}


def theirs(kind, **settings):
    """A random model of transformers."""
    transformers = pytest.importorskip("transformers")
    name = NAMES.get(kind, "Llama")
    settings = {"tie_word_embeddings": False, **settings}
    config = getattr(transformers, f"{name}TextConfig" if kind == "gemma3" else f"{name}Config")(
        vocab_size=60,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        rope_theta=5e5,
        rms_norm_eps=1e-6,
        attn_implementation="eager",
        **settings,
    )
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    for parameter in model.parameters():  # norms that do something
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, 0.0 if kind == "gemma3" else 1.0, 0.3)
    return model


def copied(model, config):
    """Ours with their weights."""
    ours, given = LlamaLanguageModel(config).eval(), model.state_dict()
    parts = {"embed.weight": "model.embed_tokens.weight", "norm.weight": "model.norm.weight"}
    parts |= {} if config.tied else {"head.weight": "lm_head.weight"}
    new = {name: given[other] for name, other in parts.items()}
    for n in range(config.layers):
        block, layer = f"blocks.{n}.", f"model.layers.{n}."
        for end in ("weight", "bias") if config.qkv_bias else ("weight",):
            joined = torch.cat([given[f"{layer}self_attn.{part}_proj.{end}"] for part in "qkv"])
            new[f"{block}attention.project.{end}"] = joined
        new[f"{block}attention.out.weight"] = given[f"{layer}self_attn.o_proj.weight"]
        for mine, other in (SANDWICH if config.norm == "sandwich-rms" else BEFORE).items():
            new[f"{block}{mine}.weight"] = given[f"{layer}{other}_layernorm.weight"]
        if config.qk_norm:
            new[f"{block}attention.norm_query.weight"] = given[f"{layer}self_attn.q_norm.weight"]
            new[f"{block}attention.norm_key.weight"] = given[f"{layer}self_attn.k_norm.weight"]
        new |= {
            f"{block}feed.{part}.weight": given[f"{layer}mlp.{part}_proj.weight"] for part in ("gate", "up", "down")
        }
    if config.norm == "sandwich-rms":  # Gemma's norms multiply by 1 + w
        new |= {name: 1 + weight for name, weight in new.items() if weight.dim() == 1}
    if config.tied:
        new["head.weight"] = new["embed.weight"]
    ours.load_state_dict(new)
    return ours


@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_transformers(case):
    own, other = CASES[case]
    reference = theirs(case, **other)
    model = copied(reference, LlamaConfig(**{"tied": False, "rope_base": 5e5, "epsilon": 1e-6, **SIZES, **own}))
    tokens = torch.randint(0, 60, (2, 40), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted = reference(tokens).logits
        assert (model(tokens).logits - wanted).abs().max() < 1e-5
        state, found = None, []
        for token in tokens.split(1, dim=1):
            output = model(token, state)
            state = output.state
            found.append(output.logits)
    assert (torch.cat(found, dim=1) - wanted).abs().max() < 1e-5


def test_the_published_sizes():
    for name, parameters in PUBLISHED.items():
        preset = {key: value for key, value in LlamaLanguageModel.presets[name].items() if "." not in key}
        vocabulary = LlamaLanguageModel.presets[name]["tokenizer.vocabulary"]
        with without_storage():
            model = LlamaLanguageModel(LlamaConfig(vocabulary=vocabulary, **preset))
        assert sum(p.numel() for p in model.parameters()) == parameters


@pytest.mark.parametrize(
    "scaling", ["longrope", "linear:speed=2", "linear:factor=0", "linear:factor=x", "llama3:low=9"]
)
def test_an_unknown_scaling_of_positions_is_refused(scaling):
    with pytest.raises(InputError, match="rope_scaling"):
        LlamaConfig(**SIZES, rope_scaling=scaling)
