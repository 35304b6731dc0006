"""Settings of decoder-only language models in config.json: Llama, Mistral, Qwen2, Qwen3, Gemma 2 and Gemma 3.

All of them are our ``llama`` with other settings. What a config.json says and our model does not compute is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isclose, sqrt
from typing import Any

from ensue.core.errors import InputError
from ensue.core.schema import shown
from ensue.exchange.huggingface.conversion import MAX_SETTING
from ensue.exchange.huggingface.decoder_families import FAMILIES, GEMMA2, GEMMA3, GEMMAS, DecoderFamily
from ensue.models.llama import LlamaConfig
from ensue.nn.mixers.mixer import parse_mixer, parse_pattern, pattern_text
from ensue.nn.positions import SCALINGS, parse_scaling

SLIDING, FULL = "sliding_attention", "full_attention"
"""Their names of layers that see a window, and of those that see all."""
SETTINGS: dict[str, tuple[str, type, Any]] = {
    "vocab_size": ("vocabulary", int, None),
    "num_hidden_layers": ("layers", int, None),
    "num_attention_heads": ("heads", int, None),
    "hidden_size": ("hidden", int, None),
    "intermediate_size": ("inner", int, None),
    "max_position_embeddings": ("context", int, None),
    "rms_norm_eps": ("epsilon", float, 1e-6),
}
"""Their setting → ours, its type, and the default; None means that it must be there."""
ROPE_NAMES = {
    "factor": "factor",
    "original": "original_max_position_embeddings",
    "low": "low_freq_factor",
    "high": "high_freq_factor",
    "slow": "beta_slow",
    "fast": "beta_fast",
    "attention": "attention_factor",
}
"""Our options of rope_scaling → theirs."""
MAX_LAYERS = 1 << 16
"""Layers of which the kinds are looked at; no folder has tensors for more."""


def import_config(config: Mapping[str, Any], where: str) -> LlamaConfig:
    """Return our settings of a config.json; the error for what our model does not compute names it."""
    family = FAMILIES[str(config["model_type"])]
    names = config.get("architectures") or [family.architecture]
    if not isinstance(names, list) or family.architecture not in names:
        what = f"architectures = {shown(names)} is not supported"
        raise InputError(what, where=where, hint=f"{family.architecture} is")
    biased = family.name == "llama" and config.get("attention_bias") is True and config.get("mlp_bias") is True
    for name, allowed in family.needs.items():
        value = config.get(name, allowed[0])
        if value not in allowed and not (biased and name.endswith("_bias")):
            hint = f"it can be {' or '.join(map(str, allowed))}"
            raise InputError(f"{name} = {shown(value)} is not supported", where=where, hint=hint)
    values = {
        ours: number_setting(config, theirs, kind, default, where) for theirs, (ours, kind, default) in _all(family)
    }
    heads, hidden = values["heads"], values["hidden"]
    width = number_setting(config, "head_dim", int, hidden // heads if heads > 0 else 0, where)
    values |= {
        "kv_heads": number_setting(config, "num_key_value_heads", int, heads, where),
        "head_width": 0 if width * heads == hidden else width,
        "tied": flag_setting(config, "tie_word_embeddings", family.tied, where),
        "bias": biased,
        **_positions(config, where),
        **{ours: _cap(config, theirs, default, where) for theirs, (ours, default) in family.caps.items()},
        **family.fixed,
    }
    values["attention"] = _attention(config, family, values, where)
    if family in GEMMAS:
        values["embed_scale"] = sqrt(hidden)
    try:
        return LlamaConfig(**values)
    except (InputError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"its settings do not fit together: {error}", where=where) from error


def query_factor(config: Mapping[str, Any], where: str) -> float:
    """√d / √query_pre_attn_scalar: what our queries, whose scores are divided by √d, are multiplied by."""
    if FAMILIES[str(config["model_type"])] not in GEMMAS:
        return 1.0
    heads = number_setting(config, "num_attention_heads", int, None, where)
    width = number_setting(
        config, "head_dim", int, number_setting(config, "hidden_size", int, None, where) // heads, where
    )
    scalar = number_setting(config, "query_pre_attn_scalar", float, float(width), where)
    if scalar <= 0:
        raise InputError(f"query_pre_attn_scalar = {scalar} should be above 0", where=where)
    return 1.0 if scalar == width else sqrt(width / scalar)


def _all(family: DecoderFamily) -> list[tuple[str, tuple[str, type, Any]]]:
    defaults = {"max_position_embeddings": family.context}
    return [(name, (ours, kind, defaults.get(name, default))) for name, (ours, kind, default) in SETTINGS.items()]


def number_setting(config: Mapping[str, Any], name: str, kind: type, default: Any, where: str) -> Any:
    """One of their settings or its default; raise InputError for another type, or where there is none."""
    value = config.get(name)
    value = default if value is None else value
    if value is None:
        raise InputError(f"has no {name}", where=where)
    kinds = (int, float) if kind is float else (int,)
    if not isinstance(value, kinds) or isinstance(value, bool) or not 0 <= value <= MAX_SETTING:
        what = "a number" if kind is float else "a whole number"
        raise InputError(f"{name} = {shown(value)} should be {what} from 0 to {MAX_SETTING:,}", where=where)
    return kind(value)


def _cap(config: Mapping[str, Any], name: str, default: float, where: str) -> float:
    """One of their caps; 0 where it is null."""
    return float(number_setting(config, name, float, 0.0 if name in config else default, where))


def flag_setting(config: Mapping[str, Any], name: str, default: bool, where: str) -> bool:
    """One of their settings that is true or false, or its default."""
    value = config.get(name, default)
    if not isinstance(value, bool):
        raise InputError(f"{name} = {shown(value)} should be true or false", where=where)
    return value


def _rope(config: Mapping[str, Any], layers: str, where: str) -> dict[str, Any]:
    """The table ``rope_parameters`` of newer folders, of some kind of layers; empty where there is none."""
    found = config.get("rope_parameters")
    if isinstance(found, Mapping) and layers in found:
        found = found[layers]
    if found is not None and not isinstance(found, Mapping):
        raise InputError(f"rope_parameters = {shown(found)} should be a table", where=where)
    return dict(found or {})


def _positions(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Base and scaling of rotary positions, of layers that see all."""
    new = _rope(config, FULL, where)
    default = 1e6 if config["model_type"] == GEMMA3.name else 10000.0
    base = number_setting({**config, **new}, "rope_theta", float, default, where)
    scaling = new or config.get("rope_scaling") or {}
    if not isinstance(scaling, Mapping):
        raise InputError(f"rope_scaling = {shown(scaling)} should be a table", where=where)
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    text = "none" if kind == "default" else kind
    if not isinstance(text, str) or text not in SCALINGS:
        what = f"rope_scaling {shown(kind)} is not supported"
        raise InputError(what, where=where, hint="linear, llama3 and yarn are")
    if text == "yarn":
        scaling = _yarn(config, scaling, where)
    for ours in SCALINGS[text]:
        text += f":{ours}={_short(number_setting(scaling, ROPE_NAMES[ours], float, None, where))}"
    return {"rope_base": base, "rope_scaling": text}


def _yarn(config: Mapping[str, Any], scaling: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The settings of yarn with their library's defaults."""
    unsupported = [name for name in ("mscale", "mscale_all_dim") if scaling.get(name)]
    unsupported += [] if scaling.get("truncate", True) is True else ["truncate"]
    if unsupported:
        raise InputError(f"rope_scaling: {unsupported[0]} of yarn is not supported", where=where)
    usual = {"original_max_position_embeddings": config.get("max_position_embeddings")}
    usual |= {"beta_slow": 1.0, "beta_fast": 32.0, "attention_factor": 0.0}
    return usual | {name: value for name, value in scaling.items() if value is not None}


def _short(value: float) -> str:
    """A number as text: 10000 instead of 10000.0."""
    return str(int(value)) if value.is_integer() else repr(value)


def _attention(config: Mapping[str, Any], family: DecoderFamily, values: Mapping[str, Any], where: str) -> str:
    """The pattern of layers that see all and of those that see a window."""
    layers = values["layers"]
    span = number_setting(config, "sliding_window", int, 4096 if family in GEMMAS else 0, where)
    if family.name == "llama" or not span or layers > MAX_LAYERS:
        return "full"
    kinds = config.get("layer_types")
    if family.name == "mistral":
        kinds = [SLIDING] * layers
    elif family not in GEMMAS and not flag_setting(config, "use_sliding_window", False, where):
        kinds = [FULL] * layers
    elif kinds is None and family in GEMMAS:
        every = 2 if family is GEMMA2 else number_setting(config, "sliding_window_pattern", int, 6, where)
        kinds = [FULL if every and (layer + 1) % every == 0 else SLIDING for layer in range(layers)]
    elif kinds is None:
        first = number_setting(config, "max_window_layers", int, 28, where)
        kinds = [FULL if layer < first else SLIDING for layer in range(layers)]
    if not isinstance(kinds, Sequence) or len(kinds) != layers or any(kind not in (SLIDING, FULL) for kind in kinds):
        raise InputError(f"layer_types should name {layers} layers, each {SLIDING} or {FULL}", where=where)
    local = f"local:span={span}" if span < values["context"] else "full"
    if family is GEMMA3:
        old = number_setting(config, "rope_local_base_freq", float, 10000.0, where)
        base = number_setting(_rope(config, SLIDING, where), "rope_theta", float, old, where)
        local = f"local:span={min(span, values['context'])}:base={_short(base)}"
    return pattern_text([local if kind == SLIDING else "full" for kind in kinds])


def export_family(config: LlamaConfig) -> DecoderFamily:
    """Return the family of a model; the error for one that has none says why."""
    kinds = _layer_kinds(config)
    needed: dict[str, Any]
    if config.norm == GEMMA3.fixed["norm"]:
        family = GEMMA3 if config.qk_norm else GEMMA2
        needed = {**family.fixed, "bias": False, "qkv_bias": False}
        if not isclose(config.embed_scale, sqrt(config.hidden), rel_tol=1e-6):
            raise _unsupported("embed_scale", config.embed_scale, f"√hidden = {sqrt(config.hidden):g}")
    else:
        name = "qwen3" if config.qk_norm else "qwen2" if config.qkv_bias and not config.bias else ""
        name = name or ("mistral" if "local" in kinds else "llama")
        family = FAMILIES[name]
        needed = {"norm": "rms", "feed": "swiglu", "embed_scale": 1.0}
        if name != "llama":
            needed |= {"bias": False}
        if name == "qwen3":
            needed |= {"qkv_bias": False}
        if name == "mistral" and "full" in kinds:
            raise _unsupported("attention", config.attention, "one kind of layer, or qk_norm = true,")
    caps = {ours for ours, _ in family.caps.values()}
    needed |= {name: 0.0 for name in ("attention_cap", "logit_cap") if name not in caps}
    for key, value in (needed | {"positions": "rotary", "experts": 1, "adaptive": ()}).items():
        if getattr(config, key) != value:
            raise _unsupported(key, getattr(config, key), str(value))
    return family


def _unsupported(key: str, value: object, hint: str) -> InputError:
    what = f"a llama with {key} = {value} is not supported by Hugging Face's library"
    return InputError(what, hint=f"one with {key} = {hint} is")


def _layers(config: LlamaConfig) -> list[tuple[str, dict[str, str]]]:
    """The mixer of each layer."""
    return [parse_mixer(one) for one in parse_pattern(config.attention, config.layers)]


def _layer_kinds(config: LlamaConfig) -> set[str]:
    """Which mixers there are; raise InputError for those that their library does not have."""
    found = _layers(config)
    spans = {options.get("span", str(max(1, config.context // 4))) for name, options in found if name == "local"}
    bases = {options.get("base", "") for name, options in found}
    gemma = config.norm == GEMMA3.fixed["norm"] and config.qk_norm
    own = {(name, options["base"]) for name, options in found if "base" in options}
    wrong = not {name for name, _ in found} <= {"full", "local"} or len(spans) > 1
    if wrong or (bases != {""} and not gemma) or len({base for _, base in own}) > 1:
        raise _unsupported("attention", config.attention, "full and local layers of one span")
    if gemma and any(("base" in options) != (name == "local") for name, options in found):
        raise _unsupported("attention", config.attention, "a base in local layers, and none in full ones,")
    return {name for name, _ in found}


def export_config(config: LlamaConfig) -> dict[str, Any]:
    """Return a config.json without the ids of special tokens."""
    family = export_family(config)
    found = _layers(config)
    local = next((options for name, options in found if name == "local"), None)
    span = None if local is None else int(local.get("span", max(1, config.context // 4)))
    kinds = [SLIDING if name == "local" else FULL for name, _ in found]
    values: dict[str, Any] = {
        "architectures": [family.architecture],
        "model_type": family.name,
        **{theirs: getattr(config, ours) for theirs, (ours, _, _) in SETTINGS.items()},
        "intermediate_size": config.feed_width,
        "num_key_value_heads": config.kv_heads or config.heads,
        "head_dim": config.head_width or config.hidden // config.heads,
        "tie_word_embeddings": config.tied,
        "rope_theta": config.rope_base,
        "rope_scaling": _rope_scaling(config),
        "attention_dropout": 0.0,
    }
    if family in GEMMAS:
        values |= {"hidden_activation": "gelu_pytorch_tanh", "layer_types": kinds}
        values |= {"query_pre_attn_scalar": values["head_dim"], "sliding_window": span or config.context}
        values |= {theirs: getattr(config, ours) or None for theirs, (ours, _) in family.caps.items()}
        if family is GEMMA3:
            values |= {"rope_local_base_freq": float((local or {}).get("base", 10000.0))}
        return values
    values |= {"hidden_act": "silu"}
    if family.name == "mistral":
        values |= {"sliding_window": span}
    elif family.name == "llama":
        values |= {"attention_bias": config.bias, "mlp_bias": config.bias}
    else:
        values |= {"use_sliding_window": span is not None, "sliding_window": span, "layer_types": kinds}
    return values


def _rope_scaling(config: LlamaConfig) -> dict[str, Any] | None:
    kind, options = parse_scaling(config.rope_scaling)
    if kind == "none":
        return None
    found: dict[str, Any] = {"rope_type": kind} | {ROPE_NAMES[key]: value for key, value in options.items() if value}
    return found | ({ROPE_NAMES["original"]: int(options["original"])} if "original" in options else {})
