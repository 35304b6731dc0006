"""DeBERTa's folders, versions 1, 2 and 3: weight maps, and settings that follow from several of theirs.

Both kinds of folder are read by one backbone. ``deberta`` has attention=disentangled, where a head's queries, keys and
values lie side by side in one matrix; ``deberta-v2`` has attention=disentangled-shared. The authors' folders have the
absolute positions of the mask decoder, E_p, under a name that transformers ignores: it predicts masked tokens from h_L.
Their masked head has two names: ``cls.predictions``, and ``lm_predictions.lm_head`` with legacy = false.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ensue.core.errors import InputError
from ensue.core.schema import shown
from ensue.exchange.huggingface.family import REQUIRED_SETTINGS, Family
from ensue.exchange.huggingface.weight_maps import TOKEN_HEADS, WeightMap, masked_head, pooled_head
from ensue.nn.mixers.mixer import parse_mixer, parse_turns

DECODER_TIMES = 2
"""How often the authors apply the last block to masked positions."""
EMBEDDINGS: WeightMap = {
    "embeddings.word_embeddings.weight": ("embed.weight", ""),
    "embeddings.position_embeddings.weight": ("positions.weight", ""),
    "embeddings.token_type_embeddings.weight": ("segments.weight", ""),
    "embeddings.LayerNorm": ("norm", ""),
}
REST: WeightMap = {
    "encoder.layer.*.attention.output.dense": ("blocks.*.attention.out", ""),
    "encoder.layer.*.attention.output.LayerNorm": ("blocks.*.norm_attention", ""),
    "encoder.layer.*.intermediate.dense": ("blocks.*.feed.up", ""),
    "encoder.layer.*.output.dense": ("blocks.*.feed.down", ""),
    "encoder.layer.*.output.LayerNorm": ("blocks.*.norm_feed", ""),
    "encoder.rel_embeddings.weight": ("blocks.0.attention.distances.weight", ""),
}
BODY: WeightMap = {
    **EMBEDDINGS,
    "encoder.layer.*.attention.self.in_proj.weight": ("blocks.*.attention.project.weight", "heads"),
    "encoder.layer.*.attention.self.q_bias": ("blocks.*.attention.query_bias", ""),
    "encoder.layer.*.attention.self.v_bias": ("blocks.*.attention.value_bias", ""),
    "encoder.layer.*.attention.self.pos_proj.weight": ("blocks.*.attention.position_key.weight", ""),
    "encoder.layer.*.attention.self.pos_q_proj": ("blocks.*.attention.position_query", ""),
    **REST,
}
BODY_V2: WeightMap = {
    **EMBEDDINGS,
    "encoder.layer.*.attention.self.query_proj": ("blocks.*.attention.project", "1/3"),
    "encoder.layer.*.attention.self.key_proj": ("blocks.*.attention.project", "2/3"),
    "encoder.layer.*.attention.self.value_proj": ("blocks.*.attention.project", "3/3"),
    **REST,
    "encoder.LayerNorm": ("blocks.0.attention.distances.norm", ""),
}


def _derived(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Our ``attention`` and ``positions``."""
    hidden = config.get("hidden_size")
    for name, wanted in (("embedding_size", hidden), ("pooler_hidden_size", hidden)):
        if config.get(name, wanted) != wanted:
            what = f"{name} = {shown(config[name])} is not supported"
            raise InputError(what, where=where, hint=f"it can be hidden_size = {wanted}")
    numbers = {"max_position_embeddings": 512, "max_relative_positions": -1, "position_buckets": -1}
    for name, default in numbers.items():
        numbers[name] = value = config.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise InputError(f"{name} = {shown(value)} should be an int", where=where)
    context, longest, buckets = numbers.values()
    options = f":longest={longest}" if longest > 0 and longest != context else ""
    name = "disentangled"
    if config.get("model_type") == DEBERTA_V2.name:
        name, options = "disentangled-shared", options + (f":buckets={buckets}" if buckets > 0 else "")
    return {
        "attention": name + options,
        "positions": "learned" if config.get("position_biased_input", True) else "none",
    }


def relative_settings(attention: str, positions: str) -> tuple[Family, dict[str, Any]]:
    """The family of a model with our settings, and theirs that follow from them; InputError if it has none."""
    kinds = set(parse_turns(attention))
    name, options = parse_mixer(kinds.pop())
    if kinds or name not in ATTENTIONS or positions not in ("learned", "none"):
        what = (
            f"a deberta with attention={attention} and positions={positions} is not supported by Hugging Face's library"
        )
        hint = "one with the same disentangled attention in all layers, and with positions=none or learned, is"
        raise InputError(what, hint=hint)
    settings: dict[str, Any] = {
        "max_relative_positions": int(options.get("longest", 0)) or -1,
        "position_biased_input": positions == "learned",
    }
    family = ATTENTIONS[name]
    if family is DEBERTA_V2:
        settings["position_buckets"] = int(options.get("buckets", 0)) or -1
    return family, settings


BOTH_TERMS = (["c2p", "p2c"], ["p2c", "c2p"], "c2p|p2c", "p2c|c2p")
_DECODER = {"deberta.embeddings.position_embeddings.weight": ("decoder.positions.weight", "")}
DEBERTA = Family(
    name="deberta",
    system="deberta",
    stem="Deberta",
    prefix="deberta.",
    body=BODY,
    heads={
        "masked": masked_head(
            "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias"
        ),
        "decoder": _DECODER,
        "whole": pooled_head("pooler.dense"),
        **TOKEN_HEADS,
    },
    tied={
        "cls.predictions.decoder.weight": "deberta.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    settings={
        "vocab_size": ("vocabulary", 50265),
        "num_hidden_layers": ("layers", 12),
        "num_attention_heads": ("heads", 12),
        "hidden_size": ("hidden", 768),
        "intermediate_size": ("inner", 3072),
        "max_position_embeddings": ("context", 512),
        "type_vocab_size": ("segments", 0),
        "hidden_dropout_prob": ("dropout", 0.1),
        "hidden_act": ("activation", "gelu"),
        "layer_norm_eps": ("epsilon", 1e-7),
    },
    needs={
        **REQUIRED_SETTINGS,
        "relative_attention": (True,),
        "pos_att_type": BOTH_TERMS,
        "talking_head": (False, None),
        "legacy": (True, False),
        "pooler_hidden_act": ("gelu",),
    },
    dropouts=("attention_probs_dropout_prob",),
    head_dropouts={"whole": "cls_dropout", "token": "hidden_dropout_prob"},
    dense="gelu-erf",
    renamed={
        "lm_predictions.lm_head.dense": "cls.predictions.transform.dense",
        "lm_predictions.lm_head.LayerNorm": "cls.predictions.transform.LayerNorm",
        "lm_predictions.lm_head.bias": "cls.predictions.bias",
    },
    optional={
        "embeddings.position_embeddings.weight": ("position_biased_input", True),
        "embeddings.token_type_embeddings.weight": ("type_vocab_size", 0),
    },
    derived=_derived,
)
DEBERTA_V2 = replace(
    DEBERTA,
    name="deberta-v2",
    stem="DebertaV2",
    body=BODY_V2,
    heads={**DEBERTA.heads, "choice": pooled_head("pooler.dense")},
    settings={
        **DEBERTA.settings,
        "vocab_size": ("vocabulary", 128100),
        "hidden_size": ("hidden", 1536),
        "num_hidden_layers": ("layers", 24),
        "num_attention_heads": ("heads", 24),
        "intermediate_size": ("inner", 6144),
    },
    needs={
        **DEBERTA.needs,
        "share_att_key": (True,),
        "norm_rel_ebd": ("layer_norm",),
        "conv_kernel_size": (0, None),
        "attention_head_size": (None,),
    },
    head_dropouts={**DEBERTA.head_dropouts, "choice": "cls_dropout"},
    ignored=("mask_predictions.",),
)
ATTENTIONS = {"disentangled": DEBERTA, "disentangled-shared": DEBERTA_V2}
