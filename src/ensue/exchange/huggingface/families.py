"""Weight maps and settings of the model families that are imported and exported.

A map is their name → (our name, layout). A ``*`` stands for the number of a layer; a name that ends in neither
``.weight`` nor ``.bias`` stands for both. Layouts:

    ""        the same
    "T"       transposed: (in, out) where ours is (out, in)
    "1/3"     the first of three that are concatenated in ours: queries, keys, values
    "cut"     with unused rows at the start, which ours does not have

Names of the backbone are without the prefixes of either side. ``POOLER`` in a head is the layer that turns the first
token into a vector for the whole text, of the encoder or of the head. The maps are used in both directions.
"""

from __future__ import annotations

from dataclasses import dataclass

WeightMap = dict[str, tuple[str, str]]

POOLER = "pool"

BERT_BLOCK: WeightMap = {
    "encoder.layer.*.attention.self.query": ("blocks.*.attention.project", "1/3"),
    "encoder.layer.*.attention.self.key": ("blocks.*.attention.project", "2/3"),
    "encoder.layer.*.attention.self.value": ("blocks.*.attention.project", "3/3"),
    "encoder.layer.*.attention.output.dense": ("blocks.*.attention.out", ""),
    "encoder.layer.*.attention.output.LayerNorm": ("blocks.*.norm_attention", ""),
    "encoder.layer.*.intermediate.dense": ("blocks.*.feed.up", ""),
    "encoder.layer.*.output.dense": ("blocks.*.feed.down", ""),
    "encoder.layer.*.output.LayerNorm": ("blocks.*.norm_feed", ""),
}
BERT_BODY: WeightMap = {
    "embeddings.word_embeddings.weight": ("embed.weight", ""),
    "embeddings.position_embeddings.weight": ("positions.weight", ""),
    "embeddings.token_type_embeddings.weight": ("segments.weight", ""),
    "embeddings.LayerNorm": ("norm", ""),
    **BERT_BLOCK,
}
ROBERTA_BODY: WeightMap = {**BERT_BODY, "embeddings.position_embeddings.weight": ("positions.weight", "cut")}
DISTILBERT_BODY: WeightMap = {
    "embeddings.word_embeddings.weight": ("embed.weight", ""),
    "embeddings.position_embeddings.weight": ("positions.weight", ""),
    "embeddings.LayerNorm": ("norm", ""),
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


@dataclass(frozen=True, slots=True)
class Family:
    """One ``model_type``: weight maps, classes and settings."""

    name: str
    prefix: str
    """Prefix of the backbone's names in models with a head."""
    body: WeightMap
    heads: dict[str, WeightMap]
    """Heads by purpose: masked, pooler, next, and labelling heads (whole, choice, token, span)."""
    classes: dict[str, tuple[str, ...]]
    """Their classes, and the heads of each."""
    tied: dict[str, str]
    """Names of tied tensors."""
    settings: dict[str, tuple[str, object]]
    """Their setting → ours, and their default."""
    needs: dict[str, tuple[object, ...]]
    """Allowed values of other settings; the first is written."""
    dropouts: tuple[str, ...]
    """Their other dropout settings; ours has one for the whole backbone."""
    head_dropouts: dict[str, str]
    """The dropout setting of each head; a head that is not listed has none."""
    buffers: tuple[str, ...] = (".position_ids", ".token_type_ids")
    """Suffixes of buffers, which are not trained."""


REQUIRED_SETTINGS: dict[str, tuple[object, ...]] = {
    "position_embedding_type": ("absolute",),
    "is_decoder": (False,),
    "add_cross_attention": (False,),
    "is_encoder_decoder": (False,),
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
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
    prefix="bert.",
    body=BERT_BODY,
    heads={
        "masked": {
            "cls.predictions.transform.dense": ("head.dense", ""),
            "cls.predictions.transform.LayerNorm": ("head.norm", ""),
            "cls.predictions.bias": ("head.out.bias", ""),
        },
        "pooler": {"bert.pooler.dense": (POOLER, "")},
        "next": {"bert.pooler.dense": (POOLER, ""), "cls.seq_relationship": ("next", "")},
        "whole": {"bert.pooler.dense": (POOLER, ""), "classifier": ("out", "")},
        "choice": {"bert.pooler.dense": (POOLER, ""), "classifier": ("out", "")},
        "token": {"classifier": ("out", "")},
        "span": {"qa_outputs": ("out", "")},
    },
    classes={
        "BertModel": (),
        "BertForPreTraining": ("masked", "next"),
        "BertForMaskedLM": ("masked",),
        "BertForNextSentencePrediction": ("next",),
        "BertForSequenceClassification": ("whole",),
        "BertForMultipleChoice": ("choice",),
        "BertForTokenClassification": ("token",),
        "BertForQuestionAnswering": ("span",),
    },
    tied={
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    settings=BERT_SETTINGS,
    needs=REQUIRED_SETTINGS,
    dropouts=("attention_probs_dropout_prob",),
    head_dropouts={"whole": "classifier_dropout", "choice": "classifier_dropout", "token": "classifier_dropout"},
)
ROBERTA = Family(
    name="roberta",
    prefix="roberta.",
    body=ROBERTA_BODY,
    heads={
        "masked": {
            "lm_head.dense": ("head.dense", ""),
            "lm_head.layer_norm": ("head.norm", ""),
            "lm_head.bias": ("head.out.bias", ""),
        },
        "pooler": {"roberta.pooler.dense": (POOLER, "")},
        "whole": {"classifier.dense": (POOLER, ""), "classifier.out_proj": ("out", "")},
        "choice": {"roberta.pooler.dense": (POOLER, ""), "classifier": ("out", "")},
        "token": {"classifier": ("out", "")},
        "span": {"qa_outputs": ("out", "")},
    },
    classes={
        "RobertaModel": (),
        "RobertaForMaskedLM": ("masked",),
        "RobertaForSequenceClassification": ("whole",),
        "RobertaForMultipleChoice": ("choice",),
        "RobertaForTokenClassification": ("token",),
        "RobertaForQuestionAnswering": ("span",),
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
    prefix="distilbert.",
    body=DISTILBERT_BODY,
    heads={
        "masked": {
            "vocab_transform": ("head.dense", ""),
            "vocab_layer_norm": ("head.norm", ""),
            "vocab_projector.bias": ("head.out.bias", ""),
        },
        "whole": {"pre_classifier": (POOLER, ""), "classifier": ("out", "")},
        "choice": {"pre_classifier": (POOLER, ""), "classifier": ("out", "")},
        "token": {"classifier": ("out", "")},
        "span": {"qa_outputs": ("out", "")},
    },
    classes={
        "DistilBertModel": (),
        "DistilBertForMaskedLM": ("masked",),
        "DistilBertForSequenceClassification": ("whole",),
        "DistilBertForMultipleChoice": ("choice",),
        "DistilBertForTokenClassification": ("token",),
        "DistilBertForQuestionAnswering": ("span",),
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
    needs=REQUIRED_SETTINGS,
    dropouts=("attention_dropout",),
    head_dropouts={
        "whole": "seq_classif_dropout",
        "choice": "seq_classif_dropout",
        "token": "dropout",
        "span": "qa_dropout",
    },
)
GPT2 = Family(
    name="gpt2",
    prefix="transformer.",
    body=GPT2_BODY,
    heads={
        "whole": {"score.weight": ("out.weight", "")},
        "token": {"classifier": ("out", "")},
        "span": {"qa_outputs": ("out", "")},
    },
    classes={
        "GPT2LMHeadModel": (),
        "GPT2Model": (),
        "GPT2ForSequenceClassification": ("whole",),
        "GPT2ForTokenClassification": ("token",),
        "GPT2ForQuestionAnswering": ("span",),
    },
    tied={"lm_head.weight": "transformer.wte.weight"},
    settings={
        "vocab_size": ("vocabulary", 50257),
        "n_layer": ("layers", 12),
        "n_head": ("heads", 12),
        "n_embd": ("hidden", 768),
        "n_positions": ("context", 1024),
        "resid_pdrop": ("dropout", 0.1),
    },
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
    buffers=(".attn.bias", ".attn.masked_bias"),
)
FAMILIES = {family.name: family for family in (BERT, DISTILBERT, ROBERTA, GPT2)}
ACTIVATIONS = {"gelu": "gelu-erf", "gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "relu": "relu"}
"""Their activations → ours; the first name of each is written."""
