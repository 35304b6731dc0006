"""Weight maps of the model families that are imported and exported.

A map is their name → (our name, layout). A ``*`` stands for the number of a block; a name that ends in neither
``.weight`` nor ``bias`` stands for both. Layouts:

    ""        the same
    "T"       transposed: (in, out) where ours is (out, in)
    "1/3"     the first of three that are concatenated in ours: queries, keys, values
    "cut"     with unused rows at the start, which ours does not have
    "sines"   columns of sines, then of cosines, where ours alternate
    "heads"   rows of queries, keys and values head by head, where ours has all queries, then all keys, then all values

Names of the backbone are without the prefixes of either side. ``POOLER`` in a head is the layer that turns the first
token into a vector for the whole text, of the encoder or of the head. The maps are used in both directions.
"""

from __future__ import annotations

WeightMap = dict[str, tuple[str, str]]

POOLER = "pool"

ENCODER_EMBEDDINGS: WeightMap = {
    "embeddings.word_embeddings.weight": ("embed.weight", ""),
    "embeddings.position_embeddings.weight": ("positions.weight", ""),
    "embeddings.LayerNorm": ("norm", ""),
}
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
ELECTRA_BODY: WeightMap = {**BERT_BODY, "embeddings_project": ("project", "")}
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
TOKEN_HEADS: dict[str, WeightMap] = {"token": {"classifier": ("out", "")}, "span": {"qa_outputs": ("out", "")}}


def masked_head(dense: str, norm: str, bias: str) -> WeightMap:
    """The map of a masked head, from the names of its layers."""
    return {dense: ("head.dense", ""), norm: ("head.norm", ""), bias: ("head.out.bias", "")}


def pooled_head(pooler: str, out: str = "classifier") -> WeightMap:
    """The map of a head for whole texts: a dense layer for the first token, and the output layer."""
    return {pooler: (POOLER, ""), out: ("out", "")}
