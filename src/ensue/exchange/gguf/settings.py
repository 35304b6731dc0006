"""Settings of language models in GGUF files, in and out: Llama, Mistral, Qwen2, Qwen3, Gemma 2 and 3.

All of them are our ``llama`` with other settings. What a file says and our model does not compute is refused, and so is
a key that is not known here: it may change what the model computes.

Legend: d head width.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isclose, isfinite, sqrt
from typing import Any

import numpy as np
import torch

from ensue.core.errors import InputError
from ensue.core.schema import shown
from ensue.exchange.gguf.file import GGUFFile
from ensue.models.llama import LlamaConfig
from ensue.nn.mixers.mixer import parse_mixer, parse_pattern, pattern_text
from ensue.nn.positions import parse_scaling, stretched

ARCHITECTURE = "general.architecture"
FREQUENCIES = "rope_freqs.weight"
"""The tensor of what the speeds of rotation are divided by (Llama 3.1)."""
LLAMA3 = "llama3:factor={}:original=8192:low=1:high=4"
"""The scaling of rotary positions of all models of Llama 3.1 and 3.2."""
WINDOW, PATTERN, LOCAL_BASE = "attention.sliding_window", "attention.sliding_window_pattern", "rope.freq_base_swa"
ATTENTION_CAP, LOGIT_CAP = "attn_logit_softcapping", "final_logit_softcapping"
KNOWN = {
    *("block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size", "rope.freq_base"),
    *(f"attention.{one}" for one in ("head_count", "head_count_kv", "key_length", "value_length")),
    *("attention.layer_norm_rms_epsilon", "rope.dimension_count", "rope.scale_linear", "tensor_data_layout"),
    *(f"rope.scaling.{one}" for one in ("type", "factor", "original_context_length", "finetuned")),
}
"""Keys of every architecture, without its name in front."""
NEUTRAL: dict[str, tuple[object, ...]] = {
    **dict.fromkeys(("expert_count", "expert_used_count", "pooling_type"), (0,)),
    **dict.fromkeys((ATTENTION_CAP, LOGIT_CAP, "attention.clamp_kqv"), (0,)),
    **{"attention.causal": (True,), "rope.scaling.attn_factor": (1,), "logit_scale": (0, 1)},
}
"""Keys that may be there if they say nothing, and what they say then."""
TOKENIZER_KEYS = {
    *(f"ggml.{one}" for one in ("model", "pre", "tokens", "token_type", "token_type_count", "scores", "merges")),
    *(f"ggml.add_{one}" for one in ("bos_token", "eos_token", "sep_token", "space_prefix")),
    *("ggml.remove_extra_whitespaces", "ggml.precompiled_charsmap", "ggml.added_tokens", "ggml.seperator_token_id"),
    *(f"ggml.{one}_token_id" for one in ("bos", "eos", "eot", "eom", "unknown", "padding", "mask", "cls", "sep")),
    *(f"ggml.{one}_token_id" for one in ("prefix", "suffix", "middle", "separator")),
    *(f"ggml.fim_{one}_token_id" for one in ("pre", "suf", "mid", "pad", "rep", "sep")),
}
OTHER_TOKENIZER_KEYS = ("chat_template", "huggingface.json", "rwkv.world")
"""Keys of tokenizers, without tokenizer in front."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Architecture:
    """A ``general.architecture`` that our model computes."""

    rotates_neighbours: bool = False
    """Whether its rows of queries and keys are in the other order; see ``ensue.exchange.gguf.decoder``."""
    fixed: dict[str, Any] = field(default_factory=dict)
    """Our settings that are the same for all its models."""
    keys: tuple[str, ...] = ()
    """Its own keys."""
    biases: bool = False
    """Whether queries, keys and values may have biases."""
    caps: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Its caps of scores and logits → our setting, and the default; with a default of 0 there may be none."""
    narrow_queries: int = 0
    """The layers of its one model that divides scores by √(hidden / heads) instead of √d, as llama.cpp knows it."""

    @property
    def known(self) -> set[str]:
        """Its own keys, caps among them."""
        return {*self.keys, *self.caps}


GEMMA2, GEMMA3 = "gemma2", "gemma3"
GEMMAS = (GEMMA2, GEMMA3)
GEMMA2_WINDOW = 4096
"""The window of Gemma 2's local layers if the file does not say."""
ARCHITECTURES = {
    "llama": Architecture(rotates_neighbours=True, keys=(WINDOW,), biases=True),
    "qwen2": Architecture(biases=True),
    "qwen3": Architecture(fixed={"qk_norm": True}),
    GEMMA2: Architecture(
        fixed={"norm": "sandwich-rms", "feed": "geglu", "qk_norm": False, "tied": True},
        keys=(WINDOW, PATTERN),
        caps={ATTENTION_CAP: ("attention_cap", 50.0), LOGIT_CAP: ("logit_cap", 30.0)},
        narrow_queries=46,
    ),
    GEMMA3: Architecture(
        fixed={"norm": "sandwich-rms", "feed": "geglu", "qk_norm": True},
        keys=(WINDOW, PATTERN, LOCAL_BASE),
        caps={LOGIT_CAP: ("logit_cap", 0.0)},
        narrow_queries=62,
    ),
}
MODEL_KEYS = KNOWN.union(*(one.known for one in ARCHITECTURES.values()))


def decoder_config(file: GGUFFile) -> LlamaConfig:
    """Return the settings of the model in a file."""
    name = file.text(ARCHITECTURE)
    if name not in ARCHITECTURES:
        what = f"the architecture {name[:40]!r} is not supported"
        raise InputError(what, where=str(file.path), hint=f"available: {', '.join(ARCHITECTURES)}")
    _check_keys(file, name)
    hidden, heads = _size(file, f"{name}.embedding_length"), _size(file, f"{name}.attention.head_count")
    width = _size(file, f"{name}.attention.key_length", max(1, hidden // heads))
    if _size(file, f"{name}.rope.dimension_count", width) != width:
        raise InputError("rotates a part of each head only, which is not supported", where=str(file.path))
    if _size(file, f"{name}.attention.value_length", width) != width:
        raise InputError("values are not as wide as keys, which is not supported", where=str(file.path))
    layers = _size(file, f"{name}.block_count")
    if layers > len(file.tensors):
        raise InputError(f"has {layers:,} layers and {len(file.tensors):,} tensors", where=str(file.path))
    base = float(_value(file, f"{name}.rope.freq_base", 10000.0, float))
    settings: dict[str, Any] = {
        "vocabulary": file.tensors["token_embd.weight"].shape[0],
        "layers": layers,
        "heads": heads,
        "kv_heads": _size(file, f"{name}.attention.head_count_kv", heads),
        "head_width": 0 if width * heads == hidden else width,
        "hidden": hidden,
        "inner": _size(file, f"{name}.feed_forward_length"),
        "context": _size(file, f"{name}.context_length"),
        "attention": _attention(file, name, layers),
        **{ours: _cap(file, f"{name}.{key}", default) for key, (ours, default) in ARCHITECTURES[name].caps.items()},
        "rope_base": base,
        "rope_scaling": _scaling(file, name, width, base),
        "epsilon": float(_value(file, f"{name}.attention.layer_norm_rms_epsilon", None, float)),
        "qkv_bias": ARCHITECTURES[name].biases and "blk.0.attn_q.bias" in file.tensors,
        "tied": "output.weight" not in file.tensors,
        **({"embed_scale": sqrt(hidden)} if name in GEMMAS else {}),
        **ARCHITECTURES[name].fixed,
    }
    try:
        return LlamaConfig(**settings)
    except InputError as error:
        raise InputError(f"its settings do not fit together: {error}", where=str(file.path)) from error


def _check_keys(file: GGUFFile, name: str) -> None:
    """Raise InputError for a file without a model, for a part of one, and for keys that are not known."""
    kind = file.text("general.type", "model")
    if kind != "model":
        raise InputError(f"holds no model: general.type is {kind[:40]!r}", where=str(file.path))
    if _size(file, "split.count", 0) > 1:
        what = "is one of several files of a model, which is not supported"
        raise InputError(what, where=str(file.path), hint="join them with llama.cpp's llama-gguf-split --merge")
    if "token_embd.weight" not in file.tensors:
        raise InputError("has no token_embd.weight", where=str(file.path))
    for key, value in file.values.items():
        first, _, own = key.partition(".")
        text = first == "tokenizer" or own.startswith(("ggml.", "chat_template"))
        named = own in TOKENIZER_KEYS or own.startswith(OTHER_TOKENIZER_KEYS)
        if (text and not (first == "tokenizer" and named)) or (first != name and own in MODEL_KEYS):
            raise InputError(f"{key[:80]!r} is not known", where=str(file.path), hint="the file may be damaged")
        if first != name or own in KNOWN or own in ARCHITECTURES[name].known:
            continue
        if own not in NEUTRAL or isinstance(value, np.ndarray) or value not in NEUTRAL[own]:
            raise InputError(f"{key[:80]} = {shown(_plain(value))} is not supported", where=str(file.path))


def _plain(value: Any) -> Any:
    return value[:8].tolist() if isinstance(value, np.ndarray) else value


def query_factor(config: LlamaConfig, name: str) -> float:
    """What our queries, whose scores are divided by √d, are multiplied by: Gemma 27B divides by √(hidden / heads).

    As llama.cpp does, that model is known by its number of layers.
    """
    if config.layers != ARCHITECTURES[name].narrow_queries:
        return 1.0
    return sqrt((config.head_width or config.hidden // config.heads) / (config.hidden // config.heads))


def _attention(file: GGUFFile, name: str, layers: int) -> str:
    """The pattern of layers that see all and of those that see a window."""
    if WINDOW not in ARCHITECTURES[name].keys:
        return "full"
    span = _size(file, f"{name}.{WINDOW}", GEMMA2_WINDOW if name == GEMMA2 else 0)
    context = _size(file, f"{name}.context_length")
    if not span or (name == GEMMA2 and span >= context):
        return "full"
    span = min(span, context)
    if name not in GEMMAS:
        return f"local:span={span}"
    usual = 2 if name == GEMMA2 else 6
    pattern = file.values.get(f"{name}.{PATTERN}", usual)
    if isinstance(pattern, np.ndarray):
        if len(pattern) != layers:
            raise InputError(f"{name}.{PATTERN} names {len(pattern)} of {layers} layers", where=str(file.path))
        local = pattern.astype(bool).tolist()
    else:
        every = _size(file, f"{name}.{PATTERN}", 0) if f"{name}.{PATTERN}" in file.values else usual
        local = [not every or layer % every < every - 1 for layer in range(layers)]
    mixer = f"local:span={span}"
    if name == GEMMA3:
        mixer += f":base={float(_value(file, f'{name}.{LOCAL_BASE}', 10000.0, float)):.17g}"
    return pattern_text([mixer if one else "full" for one in local])


def _cap(file: GGUFFile, key: str, default: float) -> float:
    """A cap of scores or logits; 0, which means none, only where that is the default."""
    value = float(_value(file, key, default, (float, int)))
    if not isfinite(value) or value < 0 or (default and not value):
        raise InputError(f"{key} = {value:g} is not supported", where=str(file.path))
    return value


def _scaling(file: GGUFFile, name: str, width: int, base: float) -> str:
    """How rotary positions are stretched: not, by a factor, or as those of Llama 3.1."""
    kind = _value(file, f"{name}.rope.scaling.type", "linear", str)
    old = float(_value(file, f"{name}.rope.scale_linear", 1.0, float))
    factor = float(_value(file, f"{name}.rope.scaling.factor", old, float))
    if kind not in ("none", "linear"):
        what = f"{name}.rope.scaling.type = {kind[:40]!r} is not supported"
        raise InputError(what, where=str(file.path), hint="linear is, and that of Llama 3.1")
    linear = kind == "linear" and factor not in (0.0, 1.0)
    if FREQUENCIES not in file.tensors:
        return f"linear:factor={factor:.17g}" if linear else "none"
    found = torch.from_numpy(file.tensor(FREQUENCIES).astype(np.float64)).flatten()
    if len(found) == width // 2 and bool(found.isfinite().all()) and float(found.min()) > 0 and not linear:
        text = LLAMA3.format(f"{float(found.max()):.17g}")
        if torch.allclose(found, frequency_factors(text, width, base), rtol=1e-4):
            return text
    raise InputError(f"its {FREQUENCIES} stretches positions in a way that is not supported", where=str(file.path))


def frequency_factors(scaling: str, width: int, base: float) -> torch.Tensor:
    """What the speeds of rotation are divided by under a scaling, (d / 2)."""
    speeds = base ** (-torch.arange(0, width, 2).double() / width)
    return speeds / stretched(speeds, scaling)


def _value(file: GGUFFile, key: str, default: Any, kind: type | tuple[type, ...]) -> Any:
    """A value of the metadata, of this type or one of these."""
    value = file.values.get(key, default)
    if value is None or isinstance(value, bool) or not isinstance(value, kind):
        what = f"has no {key}" if value is None else f"{key} is {str(value)[:40]!r}"
        raise InputError(what, where=str(file.path))
    return value


def _size(file: GGUFFile, key: str, default: int | None = None) -> int:
    """A whole number of the metadata; all but those with a default of 0 must be above 0."""
    value = int(_value(file, key, default, int))
    if value < (1 if default != 0 else 0) or value >= 1 << 31:
        raise InputError(f"{key} is {value:,}", where=str(file.path))
    return value


def architecture_of(config: LlamaConfig) -> str:
    """Return the architecture of a model; the error for one that llama.cpp does not compute says why."""
    gemma = config.norm == ARCHITECTURES[GEMMA3].fixed["norm"]
    name = (
        (GEMMA3 if config.qk_norm else GEMMA2)
        if gemma
        else "qwen3"
        if config.qk_norm
        else "qwen2"
        if config.qkv_bias
        else "llama"
    )
    needed: dict[str, Any] = {"norm": "rms", "feed": "swiglu", "bias": False, "qk_norm": False}
    needed |= {"positions": "rotary", "experts": 1, "adaptive": ()} | ARCHITECTURES[name].fixed
    caps = dict(ARCHITECTURES[name].caps.values())
    needed |= {key: 0.0 for key in ("attention_cap", "logit_cap") if key not in caps}
    if not ARCHITECTURES[name].biases:
        needed["qkv_bias"] = False
    for key, value in needed.items():
        if getattr(config, key) != value:
            raise _unsupported(key, getattr(config, key), str(value))
    for key, usual in caps.items():
        if usual and not getattr(config, key):
            raise _unsupported(key, getattr(config, key), f"{usual:g}")
    scale = sqrt(config.hidden) if gemma else 1.0
    if not isclose(config.embed_scale, scale, rel_tol=1e-6):
        raise _unsupported("embed_scale", config.embed_scale, f"{scale:g}")
    return name


def _unsupported(key: str, value: object, hint: str) -> InputError:
    return InputError(f"a llama with {key} = {value} has no GGUF form here", hint=f"one with {key} = {hint} has")


def config_values(config: LlamaConfig, name: str) -> dict[str, Any]:
    """Return the metadata of a model of this architecture."""
    width = config.head_width or config.hidden // config.heads
    values: dict[str, Any] = {
        "block_count": config.layers,
        "context_length": config.context,
        "embedding_length": config.hidden,
        "feed_forward_length": config.feed_width,
        "attention.head_count": config.heads,
        "attention.head_count_kv": config.kv_heads or config.heads,
        "attention.layer_norm_rms_epsilon": float(config.epsilon),
        "rope.freq_base": float(config.rope_base),
        "rope.dimension_count": width,
        "vocab_size": config.vocabulary,
        **_window_values(config, name),
    }
    values |= {key: value for key, (ours, _) in ARCHITECTURES[name].caps.items() if (value := getattr(config, ours))}
    if config.head_width:
        values |= {"attention.key_length": width, "attention.value_length": width}
    kind, options = parse_scaling(config.rope_scaling)
    if kind == "yarn":
        raise _unsupported("rope_scaling", config.rope_scaling, "none, linear or llama3")
    if kind == "linear":
        values |= {"rope.scaling.type": "linear", "rope.scaling.factor": options["factor"]}
    if kind == "llama3" and (options["original"], options["low"], options["high"]) != (8192.0, 1.0, 4.0):
        raise _unsupported("rope_scaling", config.rope_scaling, LLAMA3.format(8))
    return {f"{name}.{key}": value for key, value in values.items()}


def _window_values(config: LlamaConfig, name: str) -> dict[str, Any]:
    """The metadata of layers that see a window."""
    found = [parse_mixer(one) for one in parse_pattern(config.attention, config.layers)]
    kinds = [kind for kind, _ in found]
    local = [options for kind, options in found if kind == "local"]
    if set(kinds) == {"full"} and not any(options for _, options in found):
        return {WINDOW: config.context} if name == GEMMA2 else {}  # its every other layer has one
    spans = {int(options.get("span", max(1, config.context // 4))) for options in local}
    bases = {float(options["base"]) if "base" in options else None for options in local}
    regular = set(kinds) <= {"full", "local"} and len(spans) == 1 and len(bases) == 1
    regular = regular and not any("base" in options for kind, options in found if kind == "full")
    if name == "llama" and regular and kinds == ["local"] * config.layers and bases == {None}:
        return {WINDOW: spans.pop()}
    every = 2 if name == GEMMA2 else kinds.index("full") + 1 if "full" in kinds else 0
    regular = regular and all(
        (kind == "full") == (every and layer % every == every - 1) for layer, kind in enumerate(kinds)
    )
    if name not in GEMMAS or not regular or (bases == {None}) != (name == GEMMA2):
        hints = {GEMMA2: f"local:span={GEMMA2_WINDOW},full", GEMMA3: "local:span=512:base=10000*5,full"}
        raise _unsupported("attention", config.attention, hints.get(name, "full"))
    if name == GEMMA2:
        return {WINDOW: spans.pop()}
    base = bases.pop()
    return {WINDOW: spans.pop(), PATTERN: every, LOCAL_BASE: base}
