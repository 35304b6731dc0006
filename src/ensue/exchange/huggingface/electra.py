"""The two folders of an ELECTRA: that of the discriminator, and inside it that of its generator, if there is one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from ensue.core.errors import InputError
from ensue.models.bert import BERT, BERTConfig
from ensue.models.electra import ELECTRA, ELECTRAConfig
from ensue.models.encoder import EncoderConfig

GENERATOR = "generator"
"""The name of the generator's folder."""
HINT = "convert each folder by itself"


def check_generator(family: str, heads: tuple[str, ...], where: str) -> None:
    """Raise an error for a folder that cannot be a generator's."""
    if family != "electra" or "masked" not in heads:
        raise InputError("is not the folder of an ElectraForMaskedLM", where=where, hint="move it elsewhere")


def pair_settings(settings: dict[str, Any], generator: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the settings of both, from those of a discriminator and of its generator."""
    pair = settings | {"generator": generator["hidden"] / settings["hidden"], "generator_layers": generator["layers"]}
    if not 0 < pair["generator"] <= 1:
        what = f"hidden_size = {generator['hidden']} is more than the discriminator's {settings['hidden']}"
        raise InputError(what, where=where, hint=HINT)
    config = ELECTRAConfig(**pair).generator_config()
    names = {field.name for field in fields(EncoderConfig)} & generator.keys()
    wrong = next((name for name in sorted(names) if generator[name] != getattr(config, name)), None)
    if wrong is not None:
        what = f"{wrong} = {generator[wrong]}, and {getattr(config, wrong)} beside this discriminator"
        raise InputError(what, where=where, hint=HINT)
    return pair


def check_shared(discriminator: Mapping[str, Tensor], generator: Mapping[str, Tensor], where: str) -> None:
    """Raise an error unless both have the same embeddings."""
    for name, tensor in generator.items():
        own = discriminator.get(name.replace("generator.", "body.", 1))
        embedding = not name.startswith(("generator.blocks.", "generator.project.", "head."))
        if embedding and own is not None and not torch.equal(own, tensor):
            what = f"its embeddings ({name}) are not those of the discriminator, and here both have the same"
            raise InputError(what, where=where, hint=HINT)


def generator_of(model: ELECTRA) -> BERT:
    """Return the generator as a masked language model by itself, with the same weights."""
    config = model.config.generator_config()
    own = {field.name: getattr(config, field.name) for field in fields(EncoderConfig)}
    with torch.device("meta"):
        generator = BERT(BERTConfig(**own, next_sentence=False, tied=model.config.tied))
    state = {
        name.replace("generator.", "body.", 1): tensor
        for name, tensor in model.state_dict().items()
        if name.startswith(("generator.", "head."))
    }
    generator.load_state_dict(state, assign=True)
    return generator
