"""Convert settings between Hugging Face's config.json and ours."""

from __future__ import annotations

from typing import Any

from ensue.core.errors import InputError
from ensue.exchange.huggingface.families import ACTIVATIONS, Family
from ensue.models.encoder import EncoderConfig
from ensue.models.gpt import GPTConfig

ROBERTA_UNUSED_ROWS = 2
"""RoBERTa's unused position rows: one more than the id of its pad token, which is 1."""


def check_settings(family: Family, config: dict[str, Any], where: str) -> None:
    """Raise an error for the first setting that our models do not support."""
    needs = dict(family.needs)
    if family.name == "gpt2":
        needs["n_inner"] = (None, 4 * setting(family, config, "n_embd", where))
    else:  # RoBERTa's masked head always uses GELU; ours uses the activation of the blocks
        always_gelu = family.name == "roberta" and "RobertaForMaskedLM" in (config.get("architectures") or ())
        needs[family.their("activation")] = ("gelu",) if always_gelu else tuple(ACTIVATIONS)
    for name, allowed in needs.items():
        value = config.get(name, allowed[0])
        if value not in allowed:
            hint = f"it can be {' or '.join(map(str, allowed))}"
            raise InputError(f"{name} = {value!r} is not supported", where=where, hint=hint)


def setting(family: Family, config: dict[str, Any], name: str, where: str) -> Any:
    """Return one of their settings or its default; raise an error for a wrong type."""
    default = family.settings[name][1]
    value = config.get(name, default)
    kinds = (int, float) if isinstance(default, float) else (type(default),)
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise InputError(f"{name} = {value!r} should be a {kinds[-1].__name__}", where=where)
    return value


def backbone_settings(family: Family, config: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the backbone's settings under our names."""
    settings = {ours: setting(family, config, theirs, where) for theirs, (ours, _) in family.settings.items()}
    if "activation" in settings:
        settings["activation"] = ACTIVATIONS[settings["activation"]]
    settings["context"] -= unused_rows(family, config)
    return settings | family.fixed


def unused_rows(family: Family, config: dict[str, Any]) -> int:
    """Return the number of unused position rows."""
    if all(how != "cut" for _, how in family.body.values()):
        return 0
    pad = config.get("pad_token_id", ROBERTA_UNUSED_ROWS - 1)
    return pad + 1 if isinstance(pad, int) else ROBERTA_UNUSED_ROWS


def head_dropout(family: Family, config: dict[str, Any], kind: str, where: str) -> float:
    """Return the dropout of a head that labels ``kind``; by default the backbone's."""
    name = family.head_dropouts.get(kind)
    if name is None:
        return 0.0
    share = config.get(name)
    if share is None:
        return float(setting(family, config, family.their("dropout"), where))
    if not isinstance(share, int | float):
        raise InputError(f"{name} = {share!r} should be a float", where=where)
    return float(share)


def export_settings(family: Family, config: EncoderConfig | GPTConfig, pad: int | None) -> dict[str, Any]:
    """Return a backbone's settings under their names."""
    ours: dict[str, Any] = {name: getattr(config, name, None) for name, _ in family.settings.values()}
    if isinstance(config, EncoderConfig):
        ours["inner"] = config.inner or 4 * config.hidden
        ours["segments"] = max(1, config.segments)  # theirs always has one
        ours["activation"] = next(theirs for theirs, name in ACTIVATIONS.items() if name == config.activation)
    ours["context"] += unused_rows(family, {"pad_token_id": pad})
    settings = {theirs: ours[name] for theirs, (name, _) in family.settings.items()}
    settings |= {name: values[0] for name, values in family.needs.items() if values[0] not in ({}, None)}
    return settings | dict.fromkeys(family.dropouts, config.dropout)
