"""The model families that are imported and exported: their heads and settings."""

from __future__ import annotations

from dataclasses import replace

from ensue.exchange.huggingface.deberta import DEBERTA, DEBERTA_V2
from ensue.exchange.huggingface.family import REQUIRED_SETTINGS, Family
from ensue.exchange.huggingface.weight_maps import (
    ALBERT_BODY,
    BERT_BODY,
    DISTILBERT_BODY,
    ELECTRA_BODY,
    GPT2_BODY,
    POOLER,
    ROBERTA_BODY,
    TOKEN_HEADS,
    masked_head,
    pooled_head,
)

BERT_SETTINGS: dict[str, tuple[str, object]] = {
    "vocab_size": ("vocabulary", 30522),
    "num_hidden_layers": ("layers", 12),
    "num_attention_heads": ("heads", 12),
    "hidden_size": ("hidden", 768),
    "intermediate_size": ("inner", 3072),
    "max_position_embeddings": ("context", 512),
    "type_vocab_size": ("segments", 2),
    "hidden_dropout_prob": ("dropout", 0.1),
    "hidden_act": ("activation", "gelu"),
    "layer_norm_eps": ("epsilon", 1e-12),
}
BERT = Family(
    name="bert",
    system="bert",
    stem="Bert",
    more={"ForNextSentencePrediction": ("next",)},
    prefix="bert.",
    body=BERT_BODY,
    heads={
        "masked": masked_head(
            "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias"
        ),
        "pooler": {"bert.pooler.dense": (POOLER, "")},
        "next": {"bert.pooler.dense": (POOLER, ""), "cls.seq_relationship": ("next", "")},
        "whole": pooled_head("bert.pooler.dense"),
        "choice": pooled_head("bert.pooler.dense"),
        **TOKEN_HEADS,
    },
    tied={
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    settings=BERT_SETTINGS,
    needs=REQUIRED_SETTINGS,
    dropouts=("attention_probs_dropout_prob",),
    head_dropouts=dict.fromkeys(("whole", "choice", "token"), "classifier_dropout"),
)
ROBERTA = Family(
    name="roberta",
    system="roberta",
    stem="Roberta",
    prefix="roberta.",
    body=ROBERTA_BODY,
    heads={
        "masked": masked_head("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
        "pooler": {"roberta.pooler.dense": (POOLER, "")},
        "whole": pooled_head("classifier.dense", "classifier.out_proj"),
        "choice": pooled_head("roberta.pooler.dense"),
        **TOKEN_HEADS,
    },
    tied={
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    settings={**BERT_SETTINGS, "vocab_size": ("vocabulary", 50265)},
    needs=REQUIRED_SETTINGS,
    dropouts=("attention_probs_dropout_prob",),
    head_dropouts={"whole": "classifier_dropout", "choice": "hidden_dropout_prob", "token": "classifier_dropout"},
)
DISTILBERT = Family(
    name="distilbert",
    system="bert",
    stem="DistilBert",
    prefix="distilbert.",
    body=DISTILBERT_BODY,
    heads={
        "masked": masked_head("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
        "whole": pooled_head("pre_classifier"),
        "choice": pooled_head("pre_classifier"),
        **TOKEN_HEADS,
    },
    tied={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
    settings={
        "vocab_size": ("vocabulary", 30522),
        "n_layers": ("layers", 6),
        "n_heads": ("heads", 12),
        "dim": ("hidden", 768),
        "hidden_dim": ("inner", 3072),
        "max_position_embeddings": ("context", 512),
        "dropout": ("dropout", 0.1),
        "activation": ("activation", "gelu"),
    },
    fixed={"segments": 0},
    needs=REQUIRED_SETTINGS,
    dropouts=("attention_dropout",),
    head_dropouts={
        "whole": "seq_classif_dropout",
        "choice": "seq_classif_dropout",
        "token": "dropout",
        "span": "qa_dropout",
    },
    dense="relu",
)
ALBERT = Family(
    name="albert",
    system="albert",
    stem="Albert",
    prefix="albert.",
    body=ALBERT_BODY,
    heads={
        "masked": masked_head("predictions.dense", "predictions.LayerNorm", "predictions.bias"),
        "pooler": {"albert.pooler": (POOLER, "")},
        "next": {"albert.pooler": (POOLER, ""), "sop_classifier.classifier": ("next", "")},
        "whole": pooled_head("albert.pooler"),
        "choice": pooled_head("albert.pooler"),
        **TOKEN_HEADS,
    },
    tied={
        "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    },
    settings={
        "vocab_size": ("vocabulary", 30000),
        "embedding_size": ("embedding", 128),
        "num_hidden_layers": ("layers", 12),
        "num_hidden_groups": ("groups", 1),
        "num_attention_heads": ("heads", 64),
        "hidden_size": ("hidden", 4096),
        "intermediate_size": ("inner", 16384),
        "max_position_embeddings": ("context", 512),
        "type_vocab_size": ("segments", 2),
        "hidden_dropout_prob": ("dropout", 0.0),
        "hidden_act": ("activation", "gelu_new"),
        "layer_norm_eps": ("epsilon", 1e-12),
    },
    needs={**REQUIRED_SETTINGS, "inner_group_num": (1,)},
    dropouts=("attention_probs_dropout_prob",),
    head_dropouts=dict.fromkeys(("whole", "choice", "token"), "classifier_dropout_prob"),
    head_dropout=0.1,
    blocks="groups",
)
ELECTRA = Family(
    name="electra",
    system="electra",
    stem="Electra",
    more={"ForPreTraining": ("replaced",)},
    prefix="electra.",
    body=ELECTRA_BODY,
    heads={
        "masked": masked_head(
            "generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head.bias"
        ),
        "replaced": {
            "discriminator_predictions.dense": ("replaced.dense", ""),
            "discriminator_predictions.dense_prediction": ("replaced.out", ""),
        },
        "whole": pooled_head("classifier.dense", "classifier.out_proj"),
        "choice": pooled_head("sequence_summary.summary"),
        **TOKEN_HEADS,
    },
    tied={"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"},
    settings={
        **BERT_SETTINGS,
        "embedding_size": ("embedding", 128),
        "hidden_size": ("hidden", 256),
        "num_attention_heads": ("heads", 4),
        "intermediate_size": ("inner", 1024),
    },
    needs={
        **REQUIRED_SETTINGS,
        "summary_type": ("first",),
        "summary_use_proj": (True,),
        "summary_activation": ("gelu",),
    },
    dropouts=("attention_probs_dropout_prob",),
    head_dropouts={"whole": "classifier_dropout", "choice": "summary_last_dropout", "token": "classifier_dropout"},
    dense="gelu-erf",
)
WIDE_ELECTRA = replace(ELECTRA, body=BERT_BODY, fixed={"embedding": 0})
"""ELECTRA with embeddings as wide as the model, which are not mapped."""
GPT2 = Family(
    name="gpt2",
    system="gpt",
    stem="GPT2",
    bare=("LMHeadModel", "Model"),
    prefix="transformer.",
    body=GPT2_BODY,
    heads={"whole": {"score.weight": ("out.weight", "")}, **TOKEN_HEADS},
    tied={"lm_head.weight": "transformer.wte.weight"},
    settings={
        "vocab_size": ("vocabulary", 50257),
        "n_layer": ("layers", 12),
        "n_head": ("heads", 12),
        "n_embd": ("hidden", 768),
        "n_positions": ("context", 1024),
        "resid_pdrop": ("dropout", 0.1),
    },
    fixed={"positions": "learned", "norm": "pre"},
    needs={
        "add_cross_attention": (False,),
        "is_encoder_decoder": (False,),
        "pruned_heads": ({}, None),
        "quantization_config": (None,),
        "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
        "layer_norm_epsilon": (1e-5,),
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
    },
    dropouts=("embd_pdrop", "attn_pdrop"),
    head_dropouts={"token": "classifier_dropout"},
    dense="none",
    buffers=(".attn.bias", ".attn.masked_bias"),
)
FAMILIES = {family.name: family for family in (BERT, DISTILBERT, ROBERTA, ALBERT, ELECTRA, DEBERTA, DEBERTA_V2, GPT2)}


def electra_family(embedding: int, hidden: int) -> Family:
    """Return the family of an ELECTRA with embeddings of this width; 0 means as wide as the model."""
    return WIDE_ELECTRA if embedding in (0, hidden) else ELECTRA
