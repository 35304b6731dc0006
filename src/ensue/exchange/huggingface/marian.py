"""Import and export the weights of Hugging Face's Marian models. The map is data: our part, theirs, layout.

Marian has the sines of a position in the first half of the width and the cosines in the second; ours alternate, as in
the paper. So the width is permuted: "in" for a matrix that reads it, "out" for a matrix or vector that writes it. Its
queries, keys and values are separate matrices, which are concatenated in ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ensue.core.errors import InputError
from ensue.models.transformer import Transformer, TransformerConfig

MARIAN_ENCODER: dict[str, tuple[tuple[str, ...], str]] = {
    "attention.project": (("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), "in"),
    "attention.out": (("self_attn.out_proj",), "out"),
    "norm_attention": (("self_attn_layer_norm",), "out"),
    "feed.up": (("fc1",), "in"),
    "feed.down": (("fc2",), "out"),
    "norm_feed": (("final_layer_norm",), "out"),
}
MARIAN_DECODER: dict[str, tuple[tuple[str, ...], str]] = {
    **MARIAN_ENCODER,
    "cross.query": (("encoder_attn.q_proj",), "in"),
    "cross.remember": (("encoder_attn.k_proj", "encoder_attn.v_proj"), "in"),
    "cross.out": (("encoder_attn.out_proj",), "out"),
    "norm_cross": (("encoder_attn_layer_norm",), "out"),
}
"""Our part → theirs, and the layout. Each has a weight and a bias; biases of "in" matrices are not permuted."""
MARIAN_SIDES = {"encoder": MARIAN_ENCODER, "decoder": MARIAN_DECODER}
MARIAN_REQUIRED: dict[str, Any] = {
    "scale_embedding": True,
    "share_encoder_decoder_embeddings": True,
    "static_position_embeddings": True,
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
}
"""Settings a Marian model must have, if given, to match the paper's Transformer."""


def marian_config(config: dict[str, Any]) -> TransformerConfig:
    """Return our settings for a Marian model; raise an error if it is not the paper's Transformer."""
    sides = [(config[f"{side}_layers"], config[f"{side}_attention_heads"]) for side in MARIAN_SIDES]
    inner = [config[f"{side}_ffn_dim"] for side in MARIAN_SIDES]
    wrong = [name for name, value in MARIAN_REQUIRED.items() if config.get(name, value) != value]
    if wrong or sides[0] != sides[1] or inner[0] != inner[1] or config["activation_function"] != "relu":
        what = f"{wrong[0]} = {config[wrong[0]]}" if wrong else "different sides, or an activation other than relu"
        raise InputError(f"a Marian model with {what} is not supported")
    return TransformerConfig(
        vocabulary=config["vocab_size"],
        source_vocabulary=config["vocab_size"],
        layers=sides[0][0],
        heads=sides[0][1],
        hidden=config["d_model"],
        inner=inner[0],
        context=config["max_position_embeddings"],
        norm="post",
        tied="all",
    )


def marian_from_weights(config: dict[str, Any], weights: dict[str, Tensor]) -> Transformer:
    """Build our model with Marian's weights, from their configuration and state dict."""
    model = Transformer(marian_config(config))
    if bool(weights["final_logits_bias"].any()):
        raise InputError("a Marian model with a bias of its logits is not supported")
    width = _width_order(config["d_model"])
    own = model.state_dict()
    for name in ("embed", "embed_source", "head"):
        own[f"{name}.weight"] = weights["model.shared.weight"][:, width]
    for ours, theirs, how in _marian_parts(config["encoder_layers"]):
        own[ours] = _ordered(torch.cat([weights[name] for name in theirs]), how, width)
    with torch.no_grad():
        model.load_state_dict({name: tensor.clone() for name, tensor in own.items()})
    return model


def marian_weights(model: Transformer) -> dict[str, Tensor]:
    """Return the weights of our model under Marian's names; the inverse of ``marian_from_weights``."""
    config = model.config
    plain = (config.attention, config.feed_kind, config.positions) == ("full", "relu", "sinusoidal") and config.bias
    plain = plain and not config.qk_norm
    if config.norm != "post" or config.tied != "all" or not plain or config.kv_heads not in (0, config.heads):
        raise InputError("a Transformer without norm=post, tied=all, activation=relu is not a Marian model")
    own, width = model.state_dict(), _width_order(config.hidden).argsort()
    shared = own["embed.weight"][:, width]
    weights = {"final_logits_bias": shared.new_zeros(1, len(shared))}
    for name in ("model.shared", "model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head"):
        weights[f"{name}.weight"] = shared
    for ours, theirs, how in _marian_parts(config.layers):
        parts = _ordered(own[ours], how, width).chunk(len(theirs))
        weights |= dict(zip(theirs, parts, strict=True))
    return {name: tensor.detach().clone() for name, tensor in weights.items()}


def _width_order(width: int) -> Tensor:
    """Return the index in their width of each position of ours: 0, D/2, 1, …"""
    return torch.arange(width).view(2, -1).T.flatten()


def _marian_parts(layers: int) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Yield our name, their names that are concatenated in it, and the layout, for a whole model."""
    for side, parts in MARIAN_SIDES.items():
        for layer in range(layers):
            for ours, (theirs, how) in parts.items():
                for kind in ("weight", "bias"):
                    names = tuple(f"model.{side}.layers.{layer}.{name}.{kind}" for name in theirs)
                    yield f"{side}.{layer}.{ours}.{kind}", names, "" if how == "in" and kind == "bias" else how


def _ordered(tensor: Tensor, how: str, width: Tensor) -> Tensor:
    """Permute the model width of a tensor."""
    if how == "out":
        return tensor[width]
    return tensor[:, width] if how == "in" else tensor
