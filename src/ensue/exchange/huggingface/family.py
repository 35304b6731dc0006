"""The record of a model family: what its folders have, and what each of its settings and tensors is here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ensue.exchange.huggingface.weight_maps import POOLER, WeightMap

CLASSES: dict[str, tuple[str, ...]] = {
    "ForPreTraining": ("masked", "next"),
    "ForMaskedLM": ("masked",),
    "ForSequenceClassification": ("whole",),
    "ForMultipleChoice": ("choice",),
    "ForTokenClassification": ("token",),
    "ForQuestionAnswering": ("span",),
}
"""Endings of their classes, and the heads of each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """One ``model_type``: weight maps, classes and settings."""

    name: str
    system: str
    """Our system."""
    stem: str
    """How the names of their classes begin."""
    more: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Endings of classes that other families do not have, and the heads of each."""
    bare: tuple[str, ...] = ("Model",)
    """Endings of their classes without a head."""
    prefix: str
    """Prefix of the backbone's names in models with a head."""
    body: WeightMap
    heads: dict[str, WeightMap]
    """Heads by purpose: masked, pooler, next, replaced, decoder (of masked tokens), and labelling heads (whole, choice,
    token, span)."""
    tied: dict[str, str]
    """Names of tied tensors."""
    settings: dict[str, tuple[str, object]]
    """Their setting → ours, and their default."""
    fixed: dict[str, object] = field(default_factory=dict)
    """Our settings that are the same for all its models."""
    needs: dict[str, tuple[object, ...]]
    """Allowed values of other settings; the first is written."""
    dropouts: tuple[str, ...]
    """Their other dropout settings; ours has one for the whole backbone."""
    head_dropouts: dict[str, str]
    """The dropout setting of each head; a head that is not listed has none."""
    head_dropout: float | None = None
    """The default of these settings; None means the backbone's dropout."""
    blocks: str = "layers"
    """Our setting that is the number of blocks: groups where layers share them."""
    dense: str = "tanh"
    """Activation of the dense layer of heads for whole texts, or none."""
    buffers: tuple[str, ...] = (".position_ids", ".token_type_ids")
    """Suffixes of buffers, which are not trained."""
    renamed: dict[str, str] = field(default_factory=dict)
    """Beginnings of names that a tensor may also have → those of the map."""
    ignored: tuple[str, ...] = ()
    """Beginnings of the names of tensors that their classes ignore too."""
    optional: dict[str, tuple[str, object]] = field(default_factory=dict)
    """Tensors of the backbone that are only there if a setting is true or above 0: name → setting, and its default."""
    derived: Callable[[Mapping[str, Any], str], dict[str, Any]] | None = None
    """(their settings, where) → those of ours that follow from several of theirs; raises InputError."""

    @property
    def classes(self) -> dict[str, tuple[str, ...]]:
        """Their classes, and the heads of each."""
        bare: dict[str, tuple[str, ...]] = {self.stem + ending: () for ending in self.bare}
        endings = CLASSES | self.more
        return bare | {self.stem + ending: heads for ending, heads in endings.items() if {*heads} <= {*self.heads}}

    def of(self, config: Mapping[str, Any]) -> Family:
        """The family with the tensors that a model with these settings has."""
        left_out = {name for name, (setting, default) in self.optional.items() if not config.get(setting, default)}
        body = {name: value for name, value in self.body.items() if name not in left_out}
        inside = {self.prefix + name for name in body}
        heads = {purpose: names for purpose, names in self.heads.items() if not names.keys() <= inside}
        return replace(self, body=body, heads=heads)

    def pools(self, head: str) -> bool:
        """Whether a head uses the backbone's pooled first token."""
        return any(ours == POOLER and theirs.startswith(self.prefix) for theirs, (ours, _) in self.heads[head].items())

    def their(self, setting: str) -> str:
        """Their name of one of our settings."""
        return next(theirs for theirs, (ours, _) in self.settings.items() if ours == setting)


REQUIRED_SETTINGS: dict[str, tuple[object, ...]] = {
    "position_embedding_type": ("absolute",),
    "is_decoder": (False,),
    "add_cross_attention": (False,),
    "is_encoder_decoder": (False,),
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
}
ACTIVATIONS = {"gelu": "gelu-erf", "gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "relu": "relu"}
"""Their activations → ours; the first name of each is written."""
