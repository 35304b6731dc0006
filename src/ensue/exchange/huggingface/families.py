"""The model families that are imported and exported: their weight maps and settings."""

from __future__ import annotations

from ensue.exchange.huggingface.deberta import DEBERTA, DEBERTA_V2
from ensue.exchange.huggingface.family import (
    ENCODER_EMBEDDINGS,
    POOLER,
    REQUIRED_SETTINGS,
    TOKEN_HEADS,
    Family,
    WeightMap,
    masked_head,
    pooled_head,
)

BERT_BODY: WeightMap = {
    **ENCODER_EMBEDDINGS,
    "embeddings.token_type_embeddings.weight": ("segments.weight", ""),
    "encoder.layer.*.attention.self.query": ("blocks.*.attention.project", "1/3"),
    "encoder.layer.*.attention.self.key": ("blocks.*.attention.project", "2/3"),
    "encoder.layer.*.attention.self.value": ("blocks.*.attention.project", "3/3"),
    "encoder.layer.*.attention.output.dense": ("blocks.*.attention.out", ""),
    "encoder.layer.*.attention.output.LayerNorm": ("blocks.*.norm_attention", ""),
    "encoder.layer.*.intermediate.dense": ("blocks.*.feed.up", ""),
    "encoder.layer.*.output.dense": ("blocks.*.feed.down", ""),
    "encoder.layer.*.output.LayerNorm": ("blocks.*.norm_feed", ""),
}
ALBERT_BODY: WeightMap = {
    **ENCODER_EMBEDDINGS,
    "embeddings.token_type_embeddings.weight": ("segments.weight", ""),
    "encoder.embedding_hidden_mapping_in": ("project", ""),
    "encoder.albert_layer_groups.*.albert_layers.0.attention.query": ("blocks.*.attention.project", "1/3"),
    "encoder.albert_layer_groups.*.albert_layers.0.attention.key": ("blocks.*.attention.project", "2/3"),
    "encoder.albert_layer_groups.*.albert_layers.0.attention.value": ("blocks.*.attention.project", "3/3"),
    "encoder.albert_layer_groups.*.albert_layers.0.attention.dense": ("blocks.*.attention.out", ""),
    "encoder.albert_layer_groups.*.albert_layers.0.attention.LayerNorm": ("blocks.*.norm_attention", ""),
    "encoder.albert_layer_groups.*.albert_layers.0.ffn": ("blocks.*.feed.up", ""),
    "encoder.albert_layer_groups.*.albert_layers.0.ffn_output": ("blocks.*.feed.down", ""),
    "encoder.albert_layer_groups.*.albert_layers.0.full_layer_layer_norm": ("blocks.*.norm_feed", ""),
}
ROBERTA_BODY: WeightMap = {**BERT_BODY, "embeddings.position_embeddings.weight": ("positions.weight", "cut")}
DISTILBERT_BODY: WeightMap = {
    **ENCODER_EMBEDDINGS,
    "transformer.layer.*.attention.q_lin": ("blocks.*.attention.project", "1/3"),
    "transformer.layer.*.attention.k_lin": ("blocks.*.attention.project", "2/3"),
    "transformer.layer.*.attention.v_lin": ("blocks.*.attention.project", "3/3"),
    "transformer.layer.*.attention.out_lin": ("blocks.*.attention.out", ""),
    "transformer.layer.*.sa_layer_norm": ("blocks.*.norm_attention", ""),
    "transformer.layer.*.ffn.lin1": ("blocks.*.feed.up", ""),
    "transformer.layer.*.ffn.lin2": ("blocks.*.feed.down", ""),
    "transformer.layer.*.output_layer_norm": ("blocks.*.norm_feed", ""),
}
GPT_BLOCK: WeightMap = {
    "h.*.ln_1": ("blocks.*.norm_attention", ""),
    "h.*.attn.c_attn": ("blocks.*.attention.project", "T"),
    "h.*.attn.c_proj": ("blocks.*.attention.out", "T"),
    "h.*.ln_2": ("blocks.*.norm_feed", ""),
    "h.*.mlp.c_fc": ("blocks.*.feed.up", "T"),
    "h.*.mlp.c_proj": ("blocks.*.feed.down", "T"),
}
GPT2_BODY: WeightMap = {
    "wte.weight": ("embed.weight", ""),
    "wpe.weight": ("positions.weight", ""),
    "ln_f": ("norm", ""),
    **GPT_BLOCK,
}
OPENAI_GPT_BODY: WeightMap = {
    "tokens_embed.weight": ("embed.weight", ""),
    "positions_embed.weight": ("positions.weight", ""),
    **GPT_BLOCK,
}
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
FAMILIES = {family.name: family for family in (BERT, DISTILBERT, ROBERTA, ALBERT, DEBERTA, DEBERTA_V2, GPT2)}
