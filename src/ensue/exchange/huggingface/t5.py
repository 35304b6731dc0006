"""Folders of T5, version 1.0 and 1.1, and of mT5, in and out.

Their library keeps the bias of distances in the first layer of each stack, and may store the embedding under several
names. SentencePiece's own file is not read: the tokenizer is tokenizer.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from ensue.core.errors import InputError, errors_in
from ensue.core.files import atomic_file, write_json
from ensue.core.schema import shown
from ensue.data.tokenizers.sentinels import PAD
from ensue.data.tokenizers.subword import SubwordTokenizer
from ensue.exchange.huggingface.conversion import export_weights
from ensue.exchange.huggingface.decoder_config import flag_setting, number_setting
from ensue.exchange.huggingface.decoder_tokenizer import read_decoder_tokenizer, write_decoder_tokenizer
from ensue.exchange.huggingface.mapped_weights import build_filled
from ensue.exchange.huggingface.reading import CONFIG_FILE, check_has_tensors
from ensue.exchange.huggingface.stored import stored_tensors
from ensue.exchange.huggingface.weight_maps import WeightMap
from ensue.exchange.tensor_files import WEIGHTS_FILE
from ensue.models.t5 import T5, T5Config
from ensue.nn.gated_feed_forward import GATES
from ensue.nn.mixers.mixer import parse_mixer

MODEL_TYPES = ("t5", "mt5")
ARCHITECTURES = ("T5ForConditionalGeneration", "T5WithLMHeadModel", "MT5ForConditionalGeneration")
NUMBERS: dict[str, tuple[str, type, float]] = {
    "vocab_size": ("vocabulary", int, 32128),
    "d_model": ("hidden", int, 512),
    "d_kv": ("head_width", int, 64),
    "d_ff": ("inner", int, 2048),
    "num_layers": ("layers", int, 6),
    "num_heads": ("heads", int, 8),
    "n_positions": ("context", int, 512),
    "dropout_rate": ("dropout", float, 0.1),
    "layer_norm_epsilon": ("epsilon", float, 1e-6),
}
"""Their settings → ours, and their defaults."""
BUCKETS, DISTANCE = ("relative_attention_num_buckets", 32), ("relative_attention_max_distance", 128)
FEEDS = {
    "relu": "relu",
    "gated-gelu": "geglu",
    "gated-silu": "swiglu",
    "gelu": "gelu-erf",
    "gelu_new": "gelu",
}
"""Their feed-forward networks → ours."""
NEEDS: dict[str, tuple[object, ...]] = {"is_encoder_decoder": (True,), "quantization_config": (None,)}
EMBEDDING, HEAD = "shared.weight", "lm_head.weight"
EMBEDDINGS = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
"""Other names of the embedding."""
UNUSED = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
"""A tensor of the first published models, which nothing reads."""
FIRST_TOKEN = 0
"""The token before a target's first where their settings do not say."""


@dataclass(frozen=True, slots=True)
class T5Folder:
    """What a folder holds."""

    model: T5
    tokenizer: SubwordTokenizer


def is_t5(config: Any) -> bool:
    """True for the config.json of a T5."""
    return isinstance(config, dict) and config.get("model_type") in MODEL_TYPES


def read_t5(path: Path, config: Mapping[str, Any]) -> T5Folder:
    """Read and check a folder whose config.json is ``config``."""
    where = str(path / CONFIG_FILE)
    ours = config_from_theirs(config, where)
    stored = stored_tensors(path)
    check_has_tensors("num_layers", max(ours.layers, ours.decoder_layers), len(stored.tensors), where)
    names = weight_map(ours)
    found = {name: name for name in stored.tensors if name != UNUSED}
    aliases = [name for name in (*EMBEDDINGS, *([HEAD] if ours.tied == "all" else [])) if name in found]
    found.setdefault(EMBEDDING, aliases[0] if aliases else EMBEDDING)
    if EMBEDDING not in stored.tensors and not aliases:
        del found[EMBEDDING]
    for alias in aliases:
        if not torch.equal(stored.read(alias), stored.read(found[EMBEDDING])):
            what = f"{alias} is not {EMBEDDING}, which is not supported"
            raise InputError(what, where=str(path), hint="T5 has one embedding for both texts")
        del found[alias]
    model = build_filled(lambda: T5(ours), names, found, stored, path)
    tokenizer = read_decoder_tokenizer(path, config).tokenizer
    if tokenizer.size > ours.vocabulary:
        what = f"has {tokenizer.size:,} tokens, the model {ours.vocabulary:,}"
        raise InputError(what, where=str(path), hint="the tokenizer belongs to another model")
    return T5Folder(model, tokenizer)


def config_from_theirs(config: Mapping[str, Any], where: str) -> T5Config:
    """Return our settings for their config.json; raise InputError for what is not supported."""
    names = config.get("architectures") or ARCHITECTURES[:1]
    if not isinstance(names, list | tuple) or not {*map(str, names)} & {*ARCHITECTURES}:
        raise InputError(f"{shown(names[0])} is not supported", where=where, hint=f"available: {ARCHITECTURES[0]}")
    for name, allowed in NEEDS.items():
        if config.get(name, allowed[0]) not in allowed:
            hint = f"it can be {' or '.join(map(str, allowed))}"
            raise InputError(f"{name} = {shown(config[name])} is not supported", where=where, hint=hint)
    values: dict[str, Any] = {
        ours: number_setting(config, theirs, kind, default, where) for theirs, (ours, kind, default) in NUMBERS.items()
    }
    feed = config.get("feed_forward_proj", "relu")
    if feed not in FEEDS:
        raise InputError(f"feed_forward_proj = {shown(feed)} is not supported", where=where, hint=f"{', '.join(FEEDS)}")
    buckets, distance = (number_setting(config, name, int, default, where) for name, default in (BUCKETS, DISTANCE))
    layers = number_setting(config, "num_decoder_layers", int, values["layers"], where)
    fits = values["head_width"] * values["heads"] == values["hidden"]
    tied = flag_setting(config, "tie_word_embeddings", config["model_type"] == "t5", where)
    with errors_in(where):
        return T5Config(
            **{**values, "head_width": 0 if fits else values["head_width"]},
            source_vocabulary=values["vocabulary"],
            decoder_layers=0 if layers == values["layers"] else layers,
            attention=f"relative:buckets={buckets}:distance={distance}",
            feed=FEEDS[feed],
            tied="all" if tied else "embeddings",
            start=number_setting(config, "decoder_start_token_id", int, FIRST_TOKEN, where),
        )


def weight_map(config: T5Config) -> WeightMap:
    """Their name of each tensor → ours and its layout."""
    gated = config.feed in GATES
    names: WeightMap = {EMBEDDING: ("embed.weight", "")}
    if config.tied != "all":
        names[HEAD] = "head.weight", ""
    for side, layers in (("encoder", config.layers), ("decoder", config.decoder_layers or config.layers)):
        first = "SelfAttention.relative_attention_bias.weight"
        names[f"{side}.block.0.layer.0.{first}"] = f"{side}.0.attention.bias", ""
        last = "norm_source" if side == "encoder" else "norm"
        names[f"{side}.final_layer_norm.weight"] = f"{last}.norm.weight", ""
        for layer in range(layers):
            theirs, ours = f"{side}.block.{layer}.layer", f"{side}.{layer}"
            names |= _self_attention(f"{theirs}.0", ours)
            if side == "decoder":
                names |= _cross_attention(f"{theirs}.1", ours)
            names |= _feed(f"{theirs}.{2 if side == 'decoder' else 1}", ours, gated)
    return names


def _self_attention(theirs: str, ours: str) -> WeightMap:
    parts: WeightMap = {
        f"{theirs}.SelfAttention.{part}.weight": (f"{ours}.attention.project.weight", f"{number}/3")
        for number, part in enumerate("qkv", start=1)
    }
    parts[f"{theirs}.SelfAttention.o.weight"] = f"{ours}.attention.out.weight", ""
    return parts | {f"{theirs}.layer_norm.weight": (f"{ours}.norm_attention.weight", "")}


def _cross_attention(theirs: str, ours: str) -> WeightMap:
    return {
        f"{theirs}.EncDecAttention.q.weight": (f"{ours}.cross.query.weight", ""),
        f"{theirs}.EncDecAttention.k.weight": (f"{ours}.cross.remember.weight", "1/2"),
        f"{theirs}.EncDecAttention.v.weight": (f"{ours}.cross.remember.weight", "2/2"),
        f"{theirs}.EncDecAttention.o.weight": (f"{ours}.cross.out.weight", ""),
        f"{theirs}.layer_norm.weight": (f"{ours}.norm_cross.weight", ""),
    }


def _feed(theirs: str, ours: str, gated: bool) -> WeightMap:
    up = {"wi_0": "gate", "wi_1": "up"} if gated else {"wi": "up"}
    layers = {**up, "wo": "down"}
    names: WeightMap = {
        f"{theirs}.DenseReluDense.{name}.weight": (f"{ours}.feed.{own}.weight", "") for name, own in layers.items()
    }
    return names | {f"{theirs}.layer_norm.weight": (f"{ours}.norm_feed.weight", "")}


def write_t5(model: T5, out: Path, tokenizer: Any) -> None:
    """Write a model and its tokenizer as a folder."""
    config = theirs_of_config(model.config)
    if not isinstance(tokenizer, SubwordTokenizer):
        what = f"a tokenizer of kind {tokenizer.kind} is not supported by Hugging Face's library"
        raise InputError(what, hint="bpe and unigram are")
    end = tokenizer.name(tokenizer.end)
    pad = PAD if PAD in tokenizer.named else end
    ids = write_decoder_tokenizer(out, tokenizer, model.config.context, "", "", end, (end,), pad)
    own: dict[str, Tensor] = {name: tensor.detach().float().cpu() for name, tensor in model.state_dict().items()}
    with atomic_file(out / WEIGHTS_FILE) as temporary:
        save_file(export_weights(weight_map(model.config), own), temporary, metadata={"format": "pt"})
        temporary.chmod(0o644)
    first = {"decoder_start_token_id": model.first(tokenizer.end)}
    write_json(out / "generation_config.json", {**ids, **first})
    write_json(out / CONFIG_FILE, {**config, **ids, **first})


def theirs_of_config(config: T5Config) -> dict[str, Any]:
    """Return their settings for ours; raise InputError for what they do not have."""
    mixer, options = parse_mixer(config.attention)
    feeds = {ours: theirs for theirs, ours in FEEDS.items()}
    wrong: dict[str, Any] = {}
    if mixer != "relative":
        wrong["attention"] = "relative"
    if config.kv_heads not in (0, config.heads):
        wrong["kv_heads"] = 0
    needed = {"norm": "rms", "bias": False, "qkv_bias": False, "qk_norm": False}
    wrong |= {name: value for name, value in needed.items() if getattr(config, name) != value}
    for name, value in wrong.items():
        what = f"a t5 with {name} = {getattr(config, name)} is not supported by Hugging Face's library"
        raise InputError(what, hint=f"one with {name} = {value} is")
    return {
        "architectures": [ARCHITECTURES[0]],
        "model_type": MODEL_TYPES[0],
        **{theirs: getattr(config, ours) for theirs, (ours, _, _) in NUMBERS.items()},
        "d_kv": config.head_width or config.hidden // config.heads,
        "d_ff": config.feed_width,
        "num_decoder_layers": config.decoder_layers or config.layers,
        BUCKETS[0]: int(options.get("buckets", BUCKETS[1])),
        DISTANCE[0]: int(options.get("distance", DISTANCE[1])),
        "feed_forward_proj": feeds[config.feed],
        "tie_word_embeddings": config.tied == "all",
        "is_encoder_decoder": True,
        "torch_dtype": "float32",
    }
