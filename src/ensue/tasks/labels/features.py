"""Features of another run's layers in a labelling model: how they are built, and which tokenizer they need.

A system provides features if its class has ``reader``, which returns the part of a model that reads (see
ensue.models.features). Its weights become part of the new run, so the other run is needed only for training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ensue.core.errors import InputError
from ensue.core.run_folder import RunFolder
from ensue.core.settings import build
from ensue.data.labelled_rows import LabelledRows, evaluation_batches, make_batch
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.data.tokenizers.registry import load_tokenizer
from ensue.data.tokenizers.spelled_words import SpelledWordTokenizer, fit_spelled_words
from ensue.models.bidirectional_encoder import features_of
from ensue.models.conditional import ConditionalModel
from ensue.models.features import FeatureConfig, Features
from ensue.models.table import SYSTEMS
from ensue.nn.characters import CharacterWords
from ensue.nn.state import State
from ensue.tasks.translation import load_tokenizers
from ensue.train.loss_reduction import LOCAL, LossReduction
from ensue.train.objectives import Objective

READER = "lstm"
"""The system that reads features, where no other is named."""
COVE = "cove"
"""The system that reads features of a run that translates."""
FEATURE_SETTINGS = ("run", "tuned", "layer", "dropout")
"""The settings of features that config.json keeps."""
BATCH_TOKENS = 2048
"""Tokens of a batch whose features are cached."""
VOCABULARY = 20_000
"""The most words of a tokenizer that is fitted to the examples, where no setting says."""


def provides_features(system: str) -> bool:
    """Return whether a system's layers can be features of another."""
    return hasattr(SYSTEMS.load(system), "reader")


def build_features(config: FeatureConfig | None) -> Features | None:
    """Build the features that settings name, with initial weights."""
    if config is None or not config.run:
        return None
    provider = _provider(config)
    return _build(provider["system"], provider["model"], config)


def features_from_config(config: Mapping[str, Any]) -> Features | None:
    """Build the features of a run's config.json, with initial weights."""
    held = config.get("features")
    if not held:
        return None
    return _build(held["system"], held["model"], FeatureConfig(**{name: held[name] for name in FEATURE_SETTINGS}))


def _build(system: str, values: Mapping[str, Any], config: FeatureConfig) -> Features:
    cls = SYSTEMS.load(system)
    return Features(cls(build(cls.Config, values)).reader(), config)


def check_cove(system: str, config: FeatureConfig | None) -> None:
    """Raise InputError if the system is cove, and its features are not of a run that translates."""
    if system != COVE:
        return
    if config is None or not config.run:
        raise InputError("cove reads the encoder of a model that translates", hint="name one: --from runs/en-de")
    provider = _provider(config)["system"]
    if not issubclass(SYSTEMS.load(provider), ConditionalModel):
        hint = "name one, or leave out --model cove"
        raise InputError(f"is a run of {provider}, which does not translate", where=config.run, hint=hint)


def _provider(config: FeatureConfig) -> dict[str, Any]:
    """Return config.json of the run that provides features."""
    provider = RunFolder(Path(config.run)).read_config()
    if not provides_features(provider["system"]) or "head" in provider:
        what = f"is a run of {provider['system']}, which has no features for others"
        hint = f"use {', '.join(name for name in SYSTEMS if provides_features(name))}"
        raise InputError(what, where=config.run, hint=hint)
    return provider


def feature_tokenizer(config: FeatureConfig, tokens: Any, texts: Sequence[str]) -> Tokenizer:
    """Return the tokenizer that features need.

    A run that spells words reads any word, so the words are those of the examples; otherwise it is the run's tokenizer.
    """
    spells = getattr(SYSTEMS.load(_provider(config)["system"]), "spells", False)
    if tokens.kind in ("auto", "spelt") and spells:
        parts = ((text, True, True) for text in texts)
        return fit_spelled_words(parts, tokens.vocabulary or VOCABULARY, tokens.min_count or None)
    if tokens.kind == "auto":  # the source tokenizer of a run that translates
        return load_tokenizers(RunFolder(Path(config.run)))[0]
    tokenizer = load_tokenizer(tokens.kind) if Path(tokens.kind).exists() else None
    if tokenizer is None or (spells and not isinstance(tokenizer, SpelledWordTokenizer)):
        what = "features need the tokenizer that their run has"
        raise InputError(what, where=config.run, hint="leave out --tokenizer")
    return tokenizer


def feature_context(config: FeatureConfig | None) -> int | None:
    """Return the longest text that features can be of; None if there is no limit."""
    if config is None or not config.run:
        return None
    provider = _provider(config)
    return provider["model"]["context"] if getattr(SYSTEMS.load(provider["system"]), "limits_source", False) else None


def set_spelling(model: nn.Module, tokenizer: Any) -> None:
    """Give the character layers of a model the spelling of the tokenizer's words."""
    for part in model.modules():
        if isinstance(part, CharacterWords) and isinstance(tokenizer, SpelledWordTokenizer):
            part.acquaint(tokenizer.spelling)


@dataclass(frozen=True)
class FeatureCache:
    """Fills the cache of frozen features, always in the same order, so that a resumed run computes the same.

    What does not fit (see ensue.models.features.CACHE_BYTES) is computed each time.
    """

    parts: tuple[LabelledRows, ...]

    def fill(self, model: Any) -> None:
        """Compute the features of all rows, unless they are cached already."""
        features = features_of(model.body)
        if features is None or features.config.tuned or features.memory.done:
            return
        features.memory.done = True
        device = next(features.parameters()).device
        for rows in self.parts:
            for examples in evaluation_batches(rows, BATCH_TOKENS) if len(rows) else ():
                batch = make_batch(rows, examples)
                if not features.remember(batch.tokens.to(device), batch.lengths.to(device)):
                    return

    def before(self, objective: Objective) -> Objective:
        """Return the objective; its first call fills the cache."""

        def with_cache(
            model: Any, batch: Any, state: State | None, reduction: LossReduction = LOCAL
        ) -> tuple[Tensor, State | None]:
            self.fill(model)
            return objective(model, batch, state, reduction)

        return with_cache


def describe_features(model: Any) -> dict[str, Any] | None:
    """Return what config.json says of a model's features; None if it has none."""
    features = features_of(getattr(model, "body", None))
    if features is None:
        return None
    reader: Any = features.reader
    provider = RunFolder(Path(features.config.run)).read_config()
    return {
        **asdict(features.config),
        "system": provider["system"],
        "model": provider["model"],
        "width": features.width,
        "shares": [round(float(share), 6) for share in features.shares.detach()],
        "scale": round(float(features.scale.detach()), 6),
        "parameters": sum(p.numel() for p in reader.parameters()),
    }
