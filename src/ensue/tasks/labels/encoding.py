"""Choose how examples become rows for a labelling model: the tokenizer, and the length of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ensue.core.errors import InputError
from ensue.core.events import Report, report_all
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
"""The most tokens of a row of a pre-trained model where no setting says; its context may be shorter."""
SPELLED = 3.0
"""A tokenizer with more tokens a word spells words out, which is hard for a model that labels each word."""
UNKNOWN = 0.2
"""A tokenizer to which a larger share of the tokens is unknown was made for other text."""
SAMPLE = 500
"""Examples that are looked at for notes on the tokenizer."""
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
    lender = settings.run.begin_with or getattr(settings.features, "run", "")
    if lender:
        texts = [text for one in examples[:SAMPLE] for text in kind.texts(one)]
        report_all(tokenizer_notes(tokenizer, texts, lender, kind.head == "token"), report)
    return ExampleEncoding(tokenizer=tokenizer, labels=labels, length=row_length(settings), stride=settings.data.stride)


def tokenizer_notes(tokenizer: Tokenizer, texts: Sequence[str], lender: str, each_word: bool) -> list[str]:
    """Return notes if a tokenizer, which comes with the weights of ``lender``, does not suit the texts or the task."""
    words = sum(len(text.split()) for text in texts)
    tokens = [tokenizer.encode(text) for text in texts]
    count = sum(map(len, tokens))
    unknown = sum(int((ids == tokenizer.unknown).sum()) for ids in tokens) if tokenizer.unknown is not None else 0
    notes = []
    if unknown > UNKNOWN * count:
        what = f"{unknown / count:.0%} of the tokens here are unknown to the tokenizer of {lender}"
        notes.append(f"{what}: what it learnt is of little use; choose a run that was trained on such text")
    if each_word and count > SPELLED * words:
        what = (
            f"{lender} reads {tokenizer.kind} tokens, {count / words:.1f} for each word, and a tag is for a whole word"
        )
        notes.append(f"{what}: expect slow learning and a low F1; a run with word or subword tokens suits tagging")
    return notes


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
    """Return the most tokens of a row: as the settings say, or what the model can read.

    The context of a pre-trained model was chosen for other texts, so its rows are no longer than LONGEST_ROW.
    """
    own = settings.model.get("context")
    context = own or feature_context(settings.features)
    most = own if own and not settings.run.begin_with else min(context or LONGEST_ROW, LONGEST_ROW)
    length: int = settings.data.length or most
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
