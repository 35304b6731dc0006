"""Choose how examples become rows for a labelling model: the tokenizer, and the length of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ensue.core.errors import InputError
from ensue.core.events import Report
from ensue.core.run_folder import RunFolder
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.data.tokenizers.registry import fit_tokenizer_to_parts, resolve_tokenizer
from ensue.models.bert import BERT
from ensue.models.recurrent import RecurrentLanguageModel
from ensue.models.table import SYSTEMS
from ensue.tasks.labels.features import feature_context, feature_tokenizer
from ensue.tasks.labels.kind import ExampleEncoding, LabelKind
from ensue.tasks.masked_modelling import encoder_tokenizer
from ensue.tasks.settings import Settings
from ensue.tasks.spec import saved_tokenizer

LONGEST_ROW = 256
"""The most tokens of a row where no setting says; the model's context may be shorter."""
VOCABULARY = 8192
"""The most tokens of a tokenizer that is fitted to the examples, where no setting says."""


def fit_encoding(
    kind: LabelKind,
    settings: Settings,
    folder: RunFolder | None,
    labels: tuple[str, ...],
    examples: Sequence[Any],
    report: Report,
) -> ExampleEncoding:
    """Return the encoding of examples, with the tokenizer of a folder if it has one."""
    tokenizer = saved_tokenizer(folder)
    if tokenizer is None:
        report("phase", {"name": "fitting the tokenizer"})
        tokenizer = choose_tokenizer(kind, settings, [text for one in examples for text in kind.texts(one)])
    return ExampleEncoding(tokenizer=tokenizer, labels=labels, length=row_length(settings), stride=settings.data.stride)


def choose_tokenizer(kind: LabelKind, settings: Settings, texts: Sequence[str]) -> Tokenizer:
    """Return the tokenizer that the settings name, fitted to the texts unless it is fitted already."""
    tokens = settings.tokenizer
    if settings.features is not None:
        return feature_tokenizer(settings.features, tokens, texts)
    cls = SYSTEMS.load(settings.run.system)
    if issubclass(cls, BERT):
        return encoder_tokenizer(tokens, texts, VOCABULARY)
    default = "word" if kind.word_tokens and issubclass(cls, RecurrentLanguageModel) else "bpe"
    tokenizer = resolve_tokenizer(default if tokens.kind == "auto" else tokens.kind)
    if not isinstance(tokenizer, str):
        return tokenizer
    parts = ((text, True, True) for text in texts)
    limits = {"vocabulary": tokens.vocabulary or None, "min_count": tokens.min_count or None}
    return fit_tokenizer_to_parts(tokenizer, parts, **limits)


def row_length(settings: Settings) -> int:
    """Return the most tokens of a row: as the settings say, or what the model can read."""
    context = settings.model.get("context") or feature_context(settings.features)
    length: int = settings.data.length or min(context or LONGEST_ROW, LONGEST_ROW)
    if context and length > context:
        raise InputError(f"data.length = {length} is more than the model's context = {context}", hint="make it less")
    if length < 8:
        raise InputError(f"data.length = {length} leaves no room for a text", hint="use at least 8")
    return length


def encoding_from_config(config: Mapping[str, Any], tokenizer: Tokenizer) -> ExampleEncoding:
    """Return the encoding of a labelling run from its config.json."""
    facts = config["data"]
    sizes = {"length": facts["length"], "stride": facts["stride"], "bare": facts.get("bare", False)}
    return ExampleEncoding(tokenizer=tokenizer, labels=tuple(facts["labels"]), **sizes)
