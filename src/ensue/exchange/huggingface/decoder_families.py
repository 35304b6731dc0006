"""Families of decoder-only language models in Hugging Face's folders: what all models of a ``model_type`` share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

NEEDS: dict[str, tuple[object, ...]] = {
    "hidden_act": ("silu", "swish"),
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "quantization_config": (None,),
    "is_encoder_decoder": (False,),
    "add_cross_attention": (False,),
    "partial_rotary_factor": (1.0, None),
    "auto_map": (None,),
}
"""Allowed values of other settings; the first is the default."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DecoderFamily:
    """A ``model_type``."""

    name: str
    stem: str
    """How the names of their classes begin."""
    fixed: dict[str, Any] = field(default_factory=dict)
    """Our settings that are the same for all its models."""
    needs: dict[str, tuple[object, ...]] = field(default_factory=lambda: NEEDS)
    tied: bool = False
    """Whether the output layer is the embedding if config.json does not say."""
    context: int = 2048
    """The context if config.json does not say."""
    caps: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Their caps of scores and logits → our setting, and the default; 0 means none."""

    @property
    def architecture(self) -> str:
        """Their class."""
        return f"{self.stem}ForCausalLM"


GEMMA_NEEDS = {
    **{name: values for name, values in NEEDS.items() if name != "hidden_act"},
    "hidden_activation": ("gelu_pytorch_tanh",),
    "use_bidirectional_attention": (False, None),
}
ATTENTION_CAP, LOGIT_CAP = "attn_logit_softcapping", "final_logit_softcapping"
GEMMA2 = DecoderFamily(
    name="gemma2",
    stem="Gemma2",
    fixed={"norm": "sandwich-rms", "feed": "geglu", "qk_norm": False},
    needs=GEMMA_NEEDS,
    tied=True,
    context=8192,
    caps={ATTENTION_CAP: ("attention_cap", 50.0), LOGIT_CAP: ("logit_cap", 30.0)},
)
GEMMA3 = DecoderFamily(
    name="gemma3_text",
    stem="Gemma3",
    fixed={"norm": "sandwich-rms", "feed": "geglu", "qk_norm": True},
    needs={**GEMMA_NEEDS, ATTENTION_CAP: (None,)},  # their library reads it, and does not apply it
    tied=True,
    context=131072,
    caps={LOGIT_CAP: ("logit_cap", 0.0)},
)
GEMMAS = (GEMMA2, GEMMA3)
FAMILIES = {
    one.name: one
    for one in (
        DecoderFamily(name="llama", stem="Llama"),
        DecoderFamily(name="mistral", stem="Mistral", context=131072),
        DecoderFamily(name="qwen2", stem="Qwen2", fixed={"qkv_bias": True}, context=32768),
        DecoderFamily(name="qwen3", stem="Qwen3", fixed={"qk_norm": True}, context=32768),
        GEMMA2,
        GEMMA3,
    )
}
"""Families by ``model_type``."""
