"""Folders of Transformer-XL (``transfo-xl``), in and out.

Their library begins with a memory of zeros, which is attended to: ``begin=zeros``. What it calls ``same_length`` is
``window=fixed``; without it a segment is what one call reads, for which ``tgt_len`` stands. Their vocabulary is a
pickle, which is not read; the words can be in vocab.txt, a line each, and subwords in tokenizer.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isclose, sqrt
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from ensue.core.errors import InputError, errors_in
from ensue.core.files import atomic_file, write_json, write_text
from ensue.core.notes import note_once
from ensue.core.schema import shown
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.data.tokenizers.subword import SubwordTokenizer
from ensue.data.tokenizers.word import END, WordTokenizer, word_tokenizer
from ensue.exchange.huggingface.conversion import export_weights
from ensue.exchange.huggingface.decoder_config import flag_setting, number_setting
from ensue.exchange.huggingface.decoder_tokenizer import (
    TOKENIZER_FILE,
    read_decoder_tokenizer,
    write_decoder_tokenizer,
)
from ensue.exchange.huggingface.mapped_weights import build_filled
from ensue.exchange.huggingface.reading import CONFIG_FILE, check_has_tensors
from ensue.exchange.huggingface.stored import stored_tensors
from ensue.exchange.huggingface.weight_maps import WeightMap
from ensue.exchange.tensor_files import WEIGHTS_FILE
from ensue.models.transformer_xl import MEMORY, TransformerXL, TransformerXLConfig

MODEL_TYPE, ARCHITECTURE = "transfo-xl", "TransfoXLLMHeadModel"
WORDS_FILE, LINE_END = "vocab.txt", "<eos>"
NUMBERS: dict[str, tuple[str, type, float]] = {
    "vocab_size": ("vocabulary", int, 267735),
    "n_layer": ("layers", int, 18),
    "n_head": ("heads", int, 16),
    "d_head": ("head_width", int, 64),
    "d_model": ("hidden", int, 1024),
    "d_inner": ("inner", int, 4096),
    "mem_len": ("memory", int, 1600),
    "tgt_len": ("segment", int, 128),
    "div_val": ("adaptive_factor", int, 4),
    "dropout": ("dropout", float, 0.1),
    "layer_norm_epsilon": ("epsilon", float, 1e-5),
}
"""Their settings → ours, and their defaults."""
CUTOFFS, CLAMP = (20000, 40000, 200000), 1000
NEEDS: dict[str, tuple[object, ...]] = {
    "attn_type": (0,),
    "pre_lnorm": (False,),
    "untie_r": (True,),
    "sample_softmax": (-1, 0),
    "quantization_config": (None,),
    "auto_map": (None,),
}
"""Allowed values of other settings; the first is the default."""
BLOCK: WeightMap = {
    "dec_attn.qkv_net.weight": ("attention.project.weight", ""),
    "dec_attn.r_net.weight": ("attention.positions.weight", "sines"),
    "dec_attn.r_w_bias": ("attention.content_bias", ""),
    "dec_attn.r_r_bias": ("attention.position_bias", ""),
    "dec_attn.o_net.weight": ("attention.out.weight", ""),
    **{f"dec_attn.layer_norm.{end}": (f"norm_attention.{end}", "") for end in ("weight", "bias")},
    **{f"pos_ff.CoreNet.0.{end}": (f"feed.up.{end}", "") for end in ("weight", "bias")},
    **{f"pos_ff.CoreNet.3.{end}": (f"feed.down.{end}", "") for end in ("weight", "bias")},
    **{f"pos_ff.layer_norm.{end}": (f"norm_feed.{end}", "") for end in ("weight", "bias")},
}
"""Their names in a layer → ours in a block."""
BUFFERS = (".inv_freq",)


@dataclass(frozen=True, slots=True)
class TransfoXLFolder:
    """What a folder holds."""

    model: TransformerXL
    tokenizer: Tokenizer
    notes: tuple[str, ...]


def is_transfo_xl(config: Any) -> bool:
    """True for the config.json of a Transformer-XL."""
    return isinstance(config, dict) and config.get("model_type") == MODEL_TYPE


def read_transfo_xl(path: Path, config: Mapping[str, Any]) -> TransfoXLFolder:
    """Read and check a folder whose config.json is ``config``."""
    where = str(path / CONFIG_FILE)
    ours = config_from_theirs(config, where)
    stored = stored_tensors(path)
    check_has_tensors("n_layer", ours.layers, len(stored.tensors), where)
    names = weight_map(ours)
    aliases = tied_names(ours)
    found = {aliases.get(name, name): name for name in stored.tensors if not name.endswith(BUFFERS)}
    found |= {name: name for name in stored.tensors if name in names}  # the embedding's own where both are there
    model = build_filled(lambda: TransformerXL(ours), names, found, stored, path)
    tokenizer = _read_tokenizer(path, config)
    if tokenizer.size > ours.vocabulary:
        what = f"has {tokenizer.size:,} tokens, the model {ours.vocabulary:,}"
        raise InputError(what, where=str(path), hint="the tokenizer belongs to another model")
    share = config.get("dropatt", 0.0)
    differs = f"dropatt = {shown(share)} is {ours.dropout} here: there is one dropout for the whole model"
    return TransfoXLFolder(model, tokenizer, (differs,) if share != ours.dropout else ())


def config_from_theirs(config: Mapping[str, Any], where: str) -> TransformerXLConfig:
    """Return our settings for their config.json; raise InputError for what is not supported."""
    for name, allowed in NEEDS.items():
        if config.get(name, allowed[0]) not in allowed:
            hint = f"it can be {' or '.join(map(str, allowed))}"
            raise InputError(f"{name} = {shown(config[name])} is not supported", where=where, hint=hint)
    values: dict[str, Any] = {
        ours: number_setting(config, theirs, kind, default, where) for theirs, (ours, kind, default) in NUMBERS.items()
    }
    hidden, heads = values["hidden"], values["heads"]
    values["head_width"] = 0 if values["head_width"] * heads == hidden else values["head_width"]
    cutoffs, clamp = config.get("cutoffs", list(CUTOFFS)), config.get("clamp_len", CLAMP)
    if not isinstance(cutoffs, list) or not all(isinstance(one, int) for one in cutoffs):
        raise InputError(f"cutoffs = {shown(cutoffs)} should be a list of whole numbers", where=where)
    if not isinstance(clamp, int):
        raise InputError(f"clamp_len = {shown(clamp)} should be a whole number", where=where)
    values["adaptive"], factor = tuple(cutoffs), values["adaptive_factor"]
    if bool(cutoffs) != (factor != 1):
        what = f"div_val = {factor} with {'' if cutoffs else 'no '}cutoffs is not supported"
        raise InputError(what, where=where, hint="cutoffs and a div_val above 1 are, and neither")
    if number_setting(config, "d_embed", int, hidden, where) != hidden:
        raise InputError(f"d_embed = {shown(config['d_embed'])} is not d_model = {hidden}", where=where)
    values["tied"] = flag_setting(config, "tie_word_embeddings", True, where)
    shared = [False, *[values["tied"]] * len(cutoffs)]
    if cutoffs and config.get("tie_projs", [False, *[True] * len(cutoffs)]) != shared:
        what = f"tie_projs = {shown(config.get('tie_projs'))} beside tie_word_embeddings = {values['tied']}"
        raise InputError(f"{what} is not supported", where=where, hint=f"it can be {shared}")
    fixed = flag_setting(config, "same_length", True, where) and values["memory"] > 0
    with errors_in(where):
        return TransformerXLConfig(
            **values,
            clamp=max(0, clamp),
            window="fixed" if fixed else "segment",
            begin="zeros" if values["memory"] else "empty",
        )


def weight_map(config: TransformerXLConfig) -> WeightMap:
    """Their name of each tensor → ours and its layout; of tied ones the embedding's."""
    names: WeightMap = {
        f"transformer.layers.{layer}.{theirs}": (f"blocks.{layer}.{ours}", how)
        for layer in range(config.layers)
        for theirs, (ours, how) in BLOCK.items()
    }
    names |= {f"crit.cluster_{end}": (f"head.choice.{end}", "") for end in ("weight", "bias") if config.adaptive}
    for band in range(len(config.adaptive) + 1):
        embed, layer = (f"embed.tables.{band}", f"head.layers.{band}") if config.adaptive else ("embed", "head")
        names[f"transformer.word_emb.emb_layers.{band}.weight"] = f"{embed}.weight", ""
        names[f"crit.out_layers.{band}.weight"] = f"{layer}.weight", ""
        names[f"crit.out_layers.{band}.bias"] = f"{layer}.bias", ""
        if config.adaptive:
            names[f"transformer.word_emb.emb_projs.{band}"] = f"embed.projections.{band}", ""
            names[f"crit.out_projs.{band}"] = f"head.projections.{band}", ""
    tied = tied_names(config)
    return {name: ours for name, ours in names.items() if name not in tied}


def tied_names(config: TransformerXLConfig) -> dict[str, str]:
    """Their names of tied tensors → the embedding's: every table, and every projection but the first."""
    names = {}
    for band in range(len(config.adaptive) + 1 if config.tied else 0):
        names[f"crit.out_layers.{band}.weight"] = f"transformer.word_emb.emb_layers.{band}.weight"
        if band:
            names[f"crit.out_projs.{band}"] = f"transformer.word_emb.emb_projs.{band}"
    return names


def _read_tokenizer(path: Path, config: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer of a folder: words, or a tokenizer of their library."""
    words = path / WORDS_FILE
    if (path / TOKENIZER_FILE).exists() or not words.exists():
        return read_decoder_tokenizer(path, config).tokenizer
    with errors_in(words, OSError, UnicodeDecodeError):
        lines = words.read_text(encoding="utf-8").splitlines()
        names = [line.split()[0] for line in lines if line.split()]
        if LINE_END not in names and END not in names:
            raise InputError(f"has no {LINE_END}, which ends a line")
        return word_tokenizer([END if name == LINE_END and END not in names else name for name in names])


def write_transfo_xl(model: TransformerXL, out: Path, tokenizer: Tokenizer) -> None:
    """Write a model and its tokenizer as a folder."""
    config = theirs_of_config(model.config)
    if isinstance(tokenizer, WordTokenizer):
        names = [LINE_END if token == tokenizer.end else tokenizer.name(token) for token in range(tokenizer.size)]
        write_text(out / WORDS_FILE, "".join(f"{name}\n" for name in names))
        config["eos_token_id"] = tokenizer.end
    elif isinstance(tokenizer, SubwordTokenizer):
        end = tokenizer.name(tokenizer.end)
        first = tokenizer.name(getattr(tokenizer, "begin", tokenizer.end))
        config |= write_decoder_tokenizer(out, tokenizer, model.config.segment, "", first, end, (end,))
    else:
        what = f"a tokenizer of kind {tokenizer.kind} is not supported by Hugging Face's library"
        raise InputError(what, hint="word, bpe, wordpiece and unigram are")
    if model.config.begin == "empty" and model.config.memory:
        note_once(f"{out}: the library attends to zeros before the first token, unless it is given mems of length 0")
    own: dict[str, Tensor] = {name: tensor.detach().float().cpu() for name, tensor in model.state_dict().items()}
    with atomic_file(out / WEIGHTS_FILE) as temporary:
        save_file(export_weights(weight_map(model.config), own), temporary, metadata={"format": "pt"})
        temporary.chmod(0o644)
    write_json(out / CONFIG_FILE, config)


def theirs_of_config(config: TransformerXLConfig) -> dict[str, Any]:
    """Return their settings for ours; raise InputError for what they do not have."""
    scale, needed = sqrt(config.hidden), {"norm": "post", "feed": "relu", "bias": True, "attention": MEMORY}
    needed |= {"qkv_bias": False, "qk_norm": False}
    wrong = {name: value for name, value in needed.items() if getattr(config, name) != value}
    if config.kv_heads not in (0, config.heads):
        wrong["kv_heads"] = 0
    if config.embed_scale and not isclose(config.embed_scale, scale, rel_tol=1e-6):
        wrong["embed_scale"] = 0
    if config.adaptive and config.adaptive_factor == 1:
        wrong["adaptive_factor"] = "2 or more"
    for name, value in wrong.items():
        what = f"a transformer-xl with {name} = {getattr(config, name)} is not supported by Hugging Face's library"
        raise InputError(what, hint=f"one with {name} = {value} is")
    bands = len(config.adaptive)
    return {
        "architectures": [ARCHITECTURE],
        "model_type": MODEL_TYPE,
        **{theirs: getattr(config, ours) for theirs, (ours, _, _) in NUMBERS.items()},
        **{name: values[0] for name, values in NEEDS.items() if values[0] is not None},
        "d_embed": config.hidden,
        "d_head": config.head_width or config.hidden // config.heads,
        "d_inner": config.feed_width,
        "cutoffs": list(config.adaptive),
        "div_val": config.adaptive_factor if bands else 1,
        "tie_word_embeddings": config.tied,
        "tie_projs": [False, *[config.tied] * bands],
        "proj_share_all_but_first": config.tied,
        "same_length": config.window == "fixed",
        "clamp_len": config.clamp or -1,
        "dropatt": config.dropout,
        "torch_dtype": "float32",
    }
