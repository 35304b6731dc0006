"""Weights of Hugging Face's GPT-2 and OpenAI-GPT in our names. The map is data: their name, ours, how they lie.

Their linear layers are stored as (in, out), ours as (out, in); "T" turns one into the other.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ensue.models.gpt import GPTConfig, GPTLanguageModel

GPT2_TOP = {
    "wte.weight": ("embed.weight", ""),
    "wpe.weight": ("positions.weight", ""),
    "ln_f.weight": ("norm.weight", ""),
    "ln_f.bias": ("norm.bias", ""),
}
OPENAI_TOP = {"tokens_embed.weight": ("embed.weight", ""), "positions_embed.weight": ("positions.weight", "")}
BLOCK = {
    "ln_1.weight": ("norm_attention.weight", ""),
    "ln_1.bias": ("norm_attention.bias", ""),
    "attn.c_attn.weight": ("attention.project.weight", "T"),
    "attn.c_attn.bias": ("attention.project.bias", ""),
    "attn.c_proj.weight": ("attention.out.weight", "T"),
    "attn.c_proj.bias": ("attention.out.bias", ""),
    "ln_2.weight": ("norm_feed.weight", ""),
    "ln_2.bias": ("norm_feed.bias", ""),
    "mlp.c_fc.weight": ("feed.up.weight", "T"),
    "mlp.c_fc.bias": ("feed.up.bias", ""),
    "mlp.c_proj.weight": ("feed.down.weight", "T"),
    "mlp.c_proj.bias": ("feed.down.bias", ""),
}
FAMILIES = {"gpt2": (GPT2_TOP, "pre"), "openai-gpt": (OPENAI_TOP, "post")}


def gpt_names(family: str, layers: int) -> dict[str, tuple[str, str]]:
    """Their name → (our name, how it lies), for a whole model."""
    names = dict(FAMILIES[family][0])
    for layer in range(layers):
        for theirs, (ours, how) in BLOCK.items():
            names[f"h.{layer}.{theirs}"] = (f"blocks.{layer}.{ours}", how)
    return names


def gpt_from(family: str, config: dict[str, Any], weights: dict[str, Tensor]) -> GPTLanguageModel:
    """Our model with their weights, given their configuration and state dict."""
    model = GPTLanguageModel(
        GPTConfig(
            vocabulary=config["vocab_size"],
            layers=config["n_layer"],
            heads=config["n_head"],
            hidden=config["n_embd"],
            context=config["n_positions"],
            positions="learned",
            norm=FAMILIES[family][1],
        )
    )
    own = model.state_dict()
    for theirs, (ours, how) in gpt_names(family, config["n_layer"]).items():
        weight = weights[theirs if theirs in weights else f"transformer.{theirs}"]
        own[ours] = weight.T if how == "T" else weight
    own["head.weight"] = own["embed.weight"]
    with torch.no_grad():
        model.load_state_dict({name: tensor.clone() for name, tensor in own.items()})
    return model
