"""Llama: the decoder-only Transformer of today's open models (Touvron et al., 2023).

    h_0 = x W_e
    h_l = Block(h_{l-1})                 RMSNorm before each part, rotary positions, grouped key–value heads, SwiGLU
    P(u) = softmax(RMSNorm(h_L) W_o)     W_o = W_eᵀ (tied), or a matrix of its own

It is a GPT with other defaults: no bias, no position in the embedding. Mistral is the same with ``attention =
"local:span=4096"``, Qwen2 with ``qkv_bias``, Qwen3 with ``qk_norm``, Llama 3.1 with ``rope_scaling``. Gemma 3 has norms
on both sides of each part, ``qk_norm``, GEGLU, embeddings times √D, and five local layers for each full one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ensue.models.gpt import COSINE, GPTConfig, GPTLanguageModel

PUBLISHED: dict[str, Any] = {"train.schedule": "cosine", "train.floor": 0.1, "train.beta2": 0.95}
"""The training settings of Touvron et al. (2023) that fit any size."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LlamaConfig(GPTConfig):
    """Configuration of the Llama language model."""

    norm: str = "rms"
    feed: str = "swiglu"
    bias: bool = False


class LlamaLanguageModel(GPTLanguageModel):
    """softmax(RMSNorm(h_L) W_o), h_l = Block(h_{l-1}), h_0 = x W_e."""

    Config = LlamaConfig
    expect: ClassVar[dict[str, str]] = {}
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {**COSINE, "context": 64, "kv_heads": 2, "train.lr": 3e-3, "train.batch": 8},
        "smollm2-135m": {  # Allal et al. (2025); for ``ensue cost``
            **PUBLISHED,
            "layers": 30,
            "heads": 9,
            "kv_heads": 3,
            "hidden": 576,
            "inner": 1536,
            "context": 8192,
            "rope_base": 100000.0,
            "train.lr": 3e-3,
            "tokenizer.kind": "bpe",
            "tokenizer.vocabulary": 49152,
        },
        "llama2-7b": {  # Touvron et al. (2023); for ``ensue cost``
            **PUBLISHED,
            "layers": 32,
            "heads": 32,
            "hidden": 4096,
            "inner": 11008,
            "context": 4096,
            "tied": False,
            "train.lr": 3e-4,
            "tokenizer.kind": "bpe",
            "tokenizer.vocabulary": 32000,
        },
        "gemma3-270m": {  # Gemma Team (2025); for ``ensue cost``
            **PUBLISHED,
            "layers": 18,
            "heads": 4,
            "kv_heads": 1,
            "head_width": 256,
            "hidden": 640,
            "inner": 2048,
            "context": 32768,
            "attention": "local:span=512:base=10000*5,full",
            "rope_base": 1e6,
            "norm": "sandwich-rms",
            "feed": "geglu",
            "qk_norm": True,
            "embed_scale": 640**0.5,
            "epsilon": 1e-6,
            "train.lr": 1e-3,
            "tokenizer.kind": "bpe",
            "tokenizer.vocabulary": 262144,
        },
    }
