"""How examples become rows for a model that labels: by which tokenizer, and how long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ensue.core.errors import InputError
from ensue.core.events import Report
from ensue.core.run_folder import RunFolder
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.data.tokenizers.registry import fit_tokenizer_to_parts, load_tokenizer, resolve_tokenizer
from ensue.models.bert import BERT
from ensue.models.recurrent import RecurrentLanguageModel
from ensue.models.table import SYSTEMS
from ensue.tasks.features import feature_tokenizer, most_tokens
from ensue.tasks.label_kind import Form
from ensue.tasks.masked_modelling import encoder_tokenizer
from ensue.tasks.settings import Settings

LONGEST = 256
"""Tokens of a row, where nothing else is said and the model can read so many."""
VOCABULARY = 8192
"""How many tokens a tokenizer that is fitted to the examples has at most, if nothing is said."""


def texts_of(examples: Sequence[Any]) -> list[str]:
    """Everything that is text in examples, to fit a tokenizer to."""
    found: list[str] = []
    for one in examples:
        if hasattr(one, "words"):
            found.append(" ".join(one.words))
        elif hasattr(one, "passage"):
            found += [one.question, one.passage]
        elif hasattr(one, "choices"):
            found += [one.context, *one.choices]
        else:
            found += one.texts
    return found


def form_of(
    settings: Settings, folder: RunFolder | None, labels: tuple[str, ...], examples: Sequence[Any], report: Report
) -> Form:
    """How examples become rows: by the tokenizer in a folder where there is one already."""
    if folder is not None and folder.tokenizer.exists():
        tokenizer = load_tokenizer(folder.tokenizer)
    else:
        report("phase", {"name": "fitting the tokenizer"})
        tokenizer = choose_tokenizer(settings, texts_of(examples))
    return Form(tokenizer=tokenizer, labels=labels, length=row_length(settings), stride=settings.data.stride)


def choose_tokenizer(settings: Settings, texts: Sequence[str]) -> Tokenizer:
    """The tokenizer that the settings name, fitted to the texts where it is not given ready."""
    tokens = settings.tokenizer
    if settings.features is not None:
        return feature_tokenizer(settings.features, tokens, texts)
    cls = SYSTEMS.load(settings.run.system)
    if issubclass(cls, BERT):
        return encoder_tokenizer(tokens, texts, VOCABULARY)
    # a recurrent tagger has a vector a word, so that it differs from one with features by those alone
    words = settings.run.task == "tag" and issubclass(cls, RecurrentLanguageModel)
    found = resolve_tokenizer(("word" if words else "bpe") if tokens.kind == "auto" else tokens.kind)
    if not isinstance(found, str):
        return found
    parts = ((text, True, True) for text in texts)
    return fit_tokenizer_to_parts(
        found, parts, vocabulary=tokens.vocabulary or None, min_count=tokens.min_count or None
    )


def row_length(settings: Settings) -> int:
    """The most tokens of a row: as the settings say, or what the model can read."""
    context = settings.model.get("context") or most_tokens(settings.features)
    length: int = settings.data.length or min(context or LONGEST, LONGEST)
    if context and length > context:
        raise InputError(f"data.length = {length} is more than the model's context = {context}", hint="make it less")
    if length < 8:
        raise InputError(f"data.length = {length} leaves no room for a text", hint="use at least 8")
    return length
