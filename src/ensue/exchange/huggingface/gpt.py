"""Import GPT-2 and OpenAI-GPT from their configuration and state dict."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ensue.exchange.huggingface.conversion import expand_map, import_weights
from ensue.exchange.huggingface.families import GPT2
from ensue.exchange.huggingface.weight_maps import OPENAI_GPT_BODY, WeightMap
from ensue.models.gpt import GPTConfig, GPTLanguageModel

GPT_MAPS: dict[str, tuple[WeightMap, str]] = {"gpt2": (GPT2.body, "pre"), "openai-gpt": (OPENAI_GPT_BODY, "post")}
"""The weight map of each, and the position of its layer norm."""


def gpt_from_weights(family: str, config: dict[str, Any], weights: dict[str, Tensor]) -> GPTLanguageModel:
    """Build our model with their weights, from their configuration and state dict."""
    body, norm = GPT_MAPS[family]
    sizes = {name: config[GPT2.their(name)] for name in ("vocabulary", "layers", "heads", "hidden", "context")}
    model = GPTLanguageModel(GPTConfig(**sizes, positions="learned", norm=norm))
    names = expand_map(body, sizes["layers"])
    own = import_weights(names, {name: weights[name if name in weights else f"transformer.{name}"] for name in names})
    own["head.weight"] = own["embed.weight"]
    with torch.no_grad():
        model.load_state_dict({name: tensor.clone() for name, tensor in own.items()})
    return model
