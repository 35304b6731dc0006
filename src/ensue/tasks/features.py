"""Features of a trained run in a task that labels: how they are built, which tokenizer they need, what is said of them.

A system lends features if its class has ``reader``, which gives what of a model reads (see ensue.models.features). Its
weights become part of the new run, so that the first one is needed only until that is trained.
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

BODY = "lstm"
"""The system that reads features, where nothing says another."""
COVE = "cove"
"""The same for features of a run that translates."""
FEATURE_SETTINGS = ("run", "tuned", "layer", "dropout")
"""The settings of features that config.json keeps."""
AT_ONCE = 2048
"""Tokens that are read at once."""
VOCABULARY = 20_000
"""How many words a tokenizer that is fitted to the examples has at most, if nothing is said."""


def lends(system: str) -> bool:
    """Whether a system's layers can be features of another."""
    return hasattr(SYSTEMS.load(system), "reader")


def built_features(system: str, values: Mapping[str, Any], config: FeatureConfig) -> Features:
    """Features of a system with these settings, with whatever weights."""
    cls = SYSTEMS.load(system)
    return Features(cls(build(cls.Config, values)).reader(), config)


def features_for(config: FeatureConfig | None) -> Features | None:
    """The features that settings name, built as the run they are of; its weights are not read here."""
    if config is None or not config.run:
        return None
    lender = _lender(config)
    return built_features(lender["system"], lender["model"], config)


def check_reads(system: str, config: FeatureConfig | None) -> None:
    """Refuse cove without a run that translates: it is what its features are of."""
    if system != COVE:
        return
    if config is None or not config.run:
        raise InputError("cove reads the encoder of a model that translates", hint="name one: --from runs/en-de")
    lender = _lender(config)["system"]
    if not issubclass(SYSTEMS.load(lender), ConditionalModel):
        hint = "name one, or leave out --model cove"
        raise InputError(f"is a run of {lender}, which does not translate", where=config.run, hint=hint)


def _lender(config: FeatureConfig) -> dict[str, Any]:
    """config.json of the run that lends features."""
    found = RunFolder(Path(config.run)).read_config()
    if not lends(found["system"]) or "head" in found:
        can = ", ".join(name for name in SYSTEMS if lends(name))
        raise InputError(f"is a run of {found['system']}, which lends no features", where=config.run, hint=f"use {can}")
    return found


def feature_tokenizer(config: FeatureConfig, tokens: Any, texts: Sequence[str]) -> Tokenizer:
    """The tokenizer that features need: words of the examples where they are spelt, else that of the run they are of.

    What spells reads any word, so that the words a task looks up can be its own.
    """
    spells = getattr(SYSTEMS.load(_lender(config)["system"]), "spells", False)
    if tokens.kind in ("auto", "spelt") and spells:
        parts = ((text, True, True) for text in texts)
        return fit_spelled_words(parts, tokens.vocabulary or VOCABULARY, tokens.min_count or None)
    if tokens.kind == "auto":  # of a run that translates the source's
        return load_tokenizers(RunFolder(Path(config.run)))[0]
    found = load_tokenizer(tokens.kind) if Path(tokens.kind).exists() else None
    if found is None or (spells and not isinstance(found, SpelledWordTokenizer)):
        raise InputError(
            "features need the tokenizer that their run has", where=config.run, hint="leave out --tokenizer"
        )
    return found


def most_tokens(config: FeatureConfig | None) -> int | None:
    """How many tokens features can be of, where the run they are of numbers places; None where there is no end."""
    if config is None or not config.run:
        return None
    lender = _lender(config)
    return lender["model"]["context"] if getattr(SYSTEMS.load(lender["system"]), "limits_source", False) else None


def acquaint(model: nn.Module, tokenizer: Any) -> None:
    """Tell whatever in a model reads words by their letters how this tokenizer's words are spelt."""
    for part in model.modules():
        if isinstance(part, CharacterWords) and isinstance(tokenizer, SpelledWordTokenizer):
            part.acquaint(tokenizer.spelling)


@dataclass(frozen=True)
class Remembered:
    """Rows whose frozen layers are read once and kept, always in the same order, so that a resumed run finds the same.

    What does not fit into memory (see ensue.models.features.CACHE_BYTES) is read each time it comes.
    """

    sets: tuple[LabelledRows, ...]

    def fill(self, model: Any) -> None:
        """Read the rows now, unless it was done."""
        features = features_of(model.body)
        if features is None or features.config.tuned or features.memory.done:
            return
        features.memory.done = True
        device = next(features.parameters()).device
        for rows in self.sets:
            for examples in evaluation_batches(rows, AT_ONCE) if len(rows) else ():
                batch = make_batch(rows, examples)
                if not features.remember(batch.tokens.to(device), batch.lengths.to(device)):
                    return

    def before(self, objective: Objective) -> Objective:
        """The objective, once the rows are read."""

        def ask(
            model: Any, batch: Any, state: State | None, reduction: LossReduction = LOCAL
        ) -> tuple[Tensor, State | None]:
            self.fill(model)
            return objective(model, batch, state, reduction)

        return ask


def described(model: Any) -> dict[str, Any] | None:
    """What config.json says of a model's features; None where it has none."""
    features = features_of(getattr(model, "body", None))
    if features is None:
        return None
    reader: Any = features.reader
    lender = RunFolder(Path(features.config.run)).read_config()
    return {
        **asdict(features.config),
        "system": lender["system"],
        "model": lender["model"],
        "width": features.width,
        "shares": [round(float(share), 6) for share in features.shares.detach()],
        "scale": round(float(features.scale.detach()), 6),
        "parameters": sum(p.numel() for p in reader.parameters()),
    }


def features_in(config: Mapping[str, Any]) -> Features | None:
    """The features of a run's config.json, with whatever weights."""
    held = config.get("features")
    if not held:
        return None
    chosen = FeatureConfig(**{name: held[name] for name in FEATURE_SETTINGS})
    return built_features(held["system"], held["model"], chosen)
