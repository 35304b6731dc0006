"""The counterpart of a model in Hugging Face's library: its family, class and heads.

What a model is written as follows from its parts:

    gpt with learned positions and norm=pre                gpt2
    encoder of roberta                                     roberta
    electra: the discriminator, and its generator in the folder generator       electra
    encoder with embeddings of their own width             albert, or without groups and pairs electra, a generator
    encoder with disentangled attention                    deberta, deberta-v2
    encoder without segments, epsilon 1e-12, relu head     distilbert
    any other encoder                                      bert, one without segments with a segment of zeros
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import nn

from ensue.core.errors import InputError
from ensue.core.notes import note_once
from ensue.exchange.huggingface.deberta import DECODER_TIMES, relative_settings
from ensue.exchange.huggingface.families import ALBERT, DISTILBERT, ELECTRA, GPT2, ROBERTA, electra_family
from ensue.exchange.huggingface.families import BERT as BERT_FAMILY
from ensue.exchange.huggingface.family import Family
from ensue.models.albert import ALBERTConfig
from ensue.models.bert import BERT, RoBERTaConfig
from ensue.models.deberta import DeBERTa, DeBERTaConfig
from ensue.models.electra import ELECTRA as ELECTRAModel
from ensue.models.electra import ELECTRAConfig
from ensue.models.encoder import Encoder
from ensue.models.gpt import GPTLanguageModel
from ensue.models.labelled import Labelled
from ensue.nn.trunk_config import TrunkConfig

DISTILBERT_EPSILON = 1e-12
"""Epsilon of DistilBERT's layer norms, which its config.json cannot change."""


@dataclass(frozen=True, slots=True)
class ExportForm:
    """The model's counterpart in their library."""

    family: Family
    heads: tuple[str, ...]
    body: Any
    ours: str
    """Our prefix of the backbone's names."""
    pool: str
    """Our name of the layer that pools the first token."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Their settings that follow from several of ours."""

    @property
    def architecture(self) -> str:
        """Their class with these heads."""
        heads = tuple(head for head in self.heads if head not in ("pooler", "decoder"))
        return next(name for name, held in self.family.classes.items() if held == heads)


def export_form(model: nn.Module) -> ExportForm:
    """Return the counterpart of a model."""
    if isinstance(model, GPTLanguageModel):
        _check_gpt(model)
        return ExportForm(GPT2, (), model, "", "")
    if isinstance(model, ELECTRAModel):
        _check_encoder(model.body, groups=0, tied=True)
        _check_values("an electra", model.config, activation="gelu-erf")  # the masked head's, whatever the blocks' is
        return ExportForm(electra_of(model.config), ("replaced",), model.body, "body.", "")
    if isinstance(model, DeBERTa):
        return _relative_form(model, model.body)
    if isinstance(model, BERT):
        return _masked_form(model)
    if isinstance(model, Labelled) and isinstance(model.body, Encoder):
        relative = isinstance(model.body.config, DeBERTaConfig)
        return (_relative_form if relative else _encoder_form)(model, model.body)
    if isinstance(model, Labelled) and isinstance(model.body, GPTLanguageModel):
        _check_gpt(model.body)
        _check_gpt_head(model)
        return ExportForm(GPT2, (model.config.kind,), model.body, "body.", "")
    name = type(model.body if isinstance(model, Labelled) else model).__name__
    raise unsupported(f"a {name}", "bert, roberta, albert, electra, deberta and gpt are")


def unsupported(what: str, supported: str) -> InputError:
    """Return the error for a model that their library does not have."""
    return InputError(f"{what} is not supported by Hugging Face's library", hint=supported)


def _check_values(what: str, config: Any, **needed: object) -> None:
    """Raise an error unless these settings have the values that their library supports."""
    wrong = {name: getattr(config, name) for name, value in needed.items() if getattr(config, name) != value}
    if wrong:
        has, wants = (
            ", ".join(f"{name.removesuffix('_kind')}={values[name]}" for name in wrong) for values in (wrong, needed)
        )
        raise unsupported(f"{what} with {has}", f"one with {wants} is")


def _check_encoder(body: Encoder, **needed: object) -> None:
    config = body.config
    _check_trunk("an encoder", config, positions="learned", norm="post", feed_kind=config.activation, **needed)
    if not config.embedding and config.groups not in (0, config.layers):
        raise unsupported("an encoder whose layers share blocks", "one with an embedding width too (albert) is")
    if config.embedding and config.groups and config.layers % config.groups:
        what = f"an encoder of {config.layers} layers that share {config.groups} blocks"
        raise unsupported(what, "one whose layers are a multiple of groups is")


def _relative_form(model: DeBERTa | Labelled, body: Encoder) -> ExportForm:
    """A DeBERTa, with its masked head or one that labels."""
    config = body.config
    family, settings = relative_settings(config.attention, config.positions)
    needed: dict[str, Any] = {"embedding": 0, "groups": config.groups if config.groups == config.layers else 0}
    _check_trunk("a deberta", config, attention=config.attention, norm="post", feed_kind=config.activation, **needed)
    heads: tuple[str, ...] = ("masked",)
    if isinstance(model, Labelled):
        heads = (model.config.kind,)
        if model.config.kind in ("whole", "choice"):
            _check_values("a head", model.config, hidden=0, norm="none", pooling="first", dense=family.dense)
        if model.config.kind not in family.heads:
            raise unsupported(f"a {family.name} that chooses", "attention=disentangled-shared is")
    else:
        _check_values("a deberta", config, tied=True)
    if not isinstance(model, Labelled) and model.decoder is not None:
        note_once("transformers fills in masks without the mask decoder, so with other words; decoder=0 trains none")
        if model.decoder.times != DECODER_TIMES or settings["position_biased_input"]:
            raise unsupported("this mask decoder", f"one with decoder={DECODER_TIMES} and positions=none is")
        heads += ("decoder",)
    return ExportForm(
        family.of({**settings, "type_vocab_size": config.segments}), heads, body, "body.", "dense", settings
    )


def _masked_form(model: BERT) -> ExportForm:
    body = model.body
    _check_encoder(body, tied=True)
    heads: tuple[str, ...] = ("masked",)
    if model.next is not None:
        heads += ("next",)
    elif body.pooler is not None:
        heads += ("pooler",)
    family = BERT_FAMILY
    if body.config.embedding:
        plain = not (isinstance(body.config, ALBERTConfig | RoBERTaConfig) or body.config.groups or heads[1:])
        family = ELECTRA if plain and body.config.activation == "gelu-erf" else ALBERT
    elif isinstance(body.config, RoBERTaConfig) and model.next is None:
        _check_values("RoBERTa's masked head", body.config, activation="gelu-erf")
        family = ROBERTA
    elif heads == ("masked",) and _is_distilled(body):
        family = DISTILBERT
    return ExportForm(family, heads, body, "body.", "body.pooler")


def _encoder_form(model: Labelled, body: Encoder) -> ExportForm:
    head = model.config
    _check_encoder(body)
    whole = head.kind in ("whole", "choice")
    if whole:
        _check_values("a head", head, hidden=0, norm="none", pooling="first")
    family = ALBERT if body.config.embedding else BERT_FAMILY
    if isinstance(body.config, ELECTRAConfig):
        _check_encoder(body, groups=0)
        family = electra_of(body.config)
    if family is BERT_FAMILY and isinstance(body.config, RoBERTaConfig):
        family = ROBERTA
    if family is BERT_FAMILY and _is_distilled(body) and (not whole or head.dense == "relu"):
        family = DISTILBERT
    if whole:
        _check_values("a head of this encoder", head, dense=family.dense)
    return ExportForm(family, (head.kind,), body, "body.", "body.pooler" if model.dense is None else "dense")


def electra_of(config: Any) -> Family:
    """Return the family of an ELECTRA, or of its generator."""
    return electra_family(config.embedding, config.hidden)


def _is_distilled(body: Encoder) -> bool:
    return not body.config.segments and body.config.epsilon == DISTILBERT_EPSILON


def _check_trunk(name: str, config: TrunkConfig, **needed: object) -> None:
    """Raise an error for blocks that their library does not have."""
    needed = {"attention": "full", "bias": True, "qk_norm": False} | needed
    if config.kv_heads not in (0, config.heads):
        needed["kv_heads"] = 0
    _check_values(name, config, **needed)


def _check_gpt(model: GPTLanguageModel) -> None:
    config = model.config
    if config.experts > 1:
        raise unsupported("a gpt with experts", "one with experts=1 is")
    wide = 4 * config.hidden
    needed = {"positions": "learned", "norm": "pre", "feed_kind": "gelu", "feed_width": wide, "embed_scale": 1.0}
    _check_trunk("a gpt", config, **needed, tied=True, attention_cap=0.0, logit_cap=0.0, adaptive=())


def _check_gpt_head(model: Labelled) -> None:
    head = model.config
    if head.kind == "choice":
        raise unsupported("a gpt that chooses", "bert and roberta are")
    if head.kind == "whole":
        _check_values("a gpt's head", head, pooling="last", dense=GPT2.dense)
