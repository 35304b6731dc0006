"""Masked language modelling: from documents to an encoder that predicts masked tokens, and whether a text follows.

Held-out documents are always masked in the same way, and scored beside a unigram baseline.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ensue.core.errors import InputError
from ensue.core.events import Report, abandon_when, report_notes, silent
from ensue.core.run_folder import RunFolder
from ensue.core.seeds import derive
from ensue.data.documents import read_documents, read_train_and_valid
from ensue.data.masking import DocumentTokens, MaskedBatches, MaskingOptions
from ensue.data.sources import Source
from ensue.data.splitting import evenly_spaced, split_at
from ensue.data.tokenizers.encoder_fitting import ENCODER_KINDS, byte_encoder_tokenizer, fit_encoder_tokenizer
from ensue.data.tokenizers.encoder_tokenizer import EncoderTokenizer
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.data.tokenizers.registry import resolve_tokenizer
from ensue.data.tokenizers.special_tokens import add_special_tokens, special_tokens_of
from ensue.measure import example_losses
from ensue.measure.masked import MaskedScore, masked_score
from ensue.models.bert import BERT
from ensue.tasks.settings import DataSettings, Settings, TokenizerSettings
from ensue.tasks.spec import Task, saved_tokenizer
from ensue.train.masked_objectives import MASKED_OBJECTIVES
from ensue.train.objectives import Objective
from ensue.train.ranks import SINGLE, Evaluate, Ranks
from ensue.train.settings import MaskedTrainSettings

LARGE_TEXT = 50_000_000
"""Characters from which a text is large."""
VOCABULARY, LARGE_VOCABULARY = 8192, 30_522
"""The most tokens where no setting says, for a small text and for a large one."""
EVAL_ROWS = 200
SCORE_ROWS = 2000
"""Rows of the final figures, at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentSettings(DataSettings):
    """Where documents come from, under ``data.`` in run.toml."""

    field: str = ""
    """The field of a JSONL file that has the text; empty means text."""
    holdout: float = 0.05
    """The share of the documents to hold out if there is no validation text; 0 means none."""
    eval_rows: int = 0
    """Validation rows of an evaluation during training; 0 means 200."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EncoderTokenizerSettings(TokenizerSettings):
    """How text becomes tokens for an encoder, under ``tokenizer.`` in run.toml."""

    lowercase: bool = True
    """Convert text to lower case without accents (wordpiece)."""


@dataclass(frozen=True)
class DocumentCorpus:
    """Documents to learn from and some to validate with, as tokens."""

    tokenizer: EncoderTokenizer
    train: DocumentTokens
    valid: DocumentTokens | None

    @property
    def hash(self) -> str:
        """Hash of both."""
        digest = hashlib.sha256()
        for part in (self.train, self.valid):
            if part is not None:
                for array in (part.tokens, part.sentences, part.documents):
                    digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


def check_has_mask(tokenizer: Tokenizer, where: str = "") -> EncoderTokenizer:
    """Return the tokenizer; raise InputError if it has no [MASK]."""
    if isinstance(tokenizer, EncoderTokenizer) and tokenizer.special_tokens.mask is not None:
        return tokenizer
    raise InputError("this tokenizer has no mask", where=where, hint="use --tokenizer wordpiece, bpe, unigram or byte")


def encoder_tokenizer(settings: EncoderTokenizerSettings, texts: Iterable[str], vocabulary: int) -> Tokenizer:
    """Return the tokenizer that the settings name, fitted to texts unless it is fitted already.

    It has at most ``vocabulary`` tokens where the settings have no number.
    """
    kind = resolve_tokenizer("wordpiece" if settings.kind == "auto" else settings.kind)
    if not isinstance(kind, str):
        return kind
    if kind == "byte":
        return byte_encoder_tokenizer(settings.lowercase)
    if kind not in ENCODER_KINDS:
        what = f"a {kind} tokenizer has no special tokens for an encoder"
        raise InputError(what, hint="use wordpiece, bpe, unigram or byte")
    size, least = settings.vocabulary or vocabulary, settings.min_count or 2
    return fit_encoder_tokenizer(kind, texts, size, least, settings.lowercase)


def encode_documents(documents: Sequence[Sequence[str]], tokenizer: EncoderTokenizer) -> DocumentTokens:
    """Encode documents; sentences without a token are left out, and so are documents without a sentence."""
    texts = [sentence for document in documents for sentence in document]
    ids = iter(tokenizer.encode_batch(texts))
    encoded = [[one for one in (next(ids) for _ in document) if len(one)] for document in documents]
    sentences = [one for document in encoded for one in document]
    return DocumentTokens(
        (np.concatenate(sentences) if sentences else np.zeros(0)).astype(np.int32),
        np.cumsum([0, *map(len, sentences)], dtype=np.int64),
        np.cumsum([0, *(len(document) for document in encoded if document)], dtype=np.int64),
        sum(len(text.encode()) for text in texts),
    )


def masked_batches(
    settings: Settings, model: BERT, documents: DocumentTokens, tokenizer: Tokenizer, seed: int
) -> MaskedBatches:
    """Return batches of rows with masked tokens."""
    train = settings.train
    return MaskedBatches(
        documents,
        special_tokens_of(tokenizer),
        tokenizer.size,
        rows=train.batch,
        length=train.length or model.config.context,
        pairs=model.config.pairs,
        masking=MaskingOptions(
            share=train.mask,
            mask=train.mask_as_mask,
            random=train.mask_as_random,
            dynamic=train.mask_anew,
            unit=train.mask_unit,
        ),
        continues=None if train.mask_unit == "tokens" else check_has_mask(tokenizer).continuations(),
        unknown=tokenizer.unknown,
        seed=seed,
    )


def score_documents(
    settings: Settings,
    model: BERT,
    documents: DocumentTokens,
    tokenizer: Tokenizer,
    most: int,
    train: DocumentTokens | None = None,
    report: Report = silent,
    ranks: Ranks = SINGLE,
) -> MaskedScore:
    """Score a model on ``most`` rows of documents, always masked in the same way; ``train`` is its training text."""
    batches = masked_batches(settings, model, documents, tokenizer, seed=0)
    steps = min(batches.steps_per_epoch, max(1, -(-most // batches.rows)))

    def read() -> Iterator[Any]:
        for step in range(steps):
            report("progress", {"done": step, "total": steps})
            yield batches.batch(step)

    counts = np.bincount((train or documents).tokens, minlength=tokenizer.size)
    return masked_score(model, read(), counts, "training text" if train else "this text", ranks)


def score_files(
    settings: Settings,
    model: BERT,
    tokenizer: Tokenizer,
    files: Sequence[Source],
    field: str | None,
    report: Report = silent,
) -> MaskedScore:
    """Return all figures of a model on files."""
    notes: list[str] = []
    documents = encode_documents(read_documents(list(files), field, notes), check_has_mask(tokenizer))
    report_notes(notes, "and {} more notes", report)
    if len(documents.tokens) < 2:
        raise InputError("there is no sentence to score", where=", ".join(str(Path(str(f))) for f in files))
    return score_documents(settings, model, documents, tokenizer, SCORE_ROWS)


@torch.inference_mode()
def next_sentence_probabilities(model: BERT, tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]) -> list[float]:
    """Return the probability that the second text of each pair follows the first."""
    if model.next is None:
        raise InputError("this encoder did not learn whether a text follows", hint="use one with next_sentence=true")
    special, probabilities = special_tokens_of(tokenizer), []
    for first, second in pairs:
        row = add_special_tokens(special, tokenizer.encode(first), tokenizer.encode(second), model.config.context)
        ids, segments = (torch.from_numpy(part.astype(np.int64))[None] for part in row)
        hidden = model.body(ids, segments, None, torch.zeros(1, 1, dtype=torch.long)).hidden[:, 0]
        probabilities.append(float(model.next_logits(hidden).softmax(-1)[0, 0]))
    return probabilities


@torch.inference_mode()
def replaced_probabilities(model: Any, tokenizer: Tokenizer, texts: Sequence[str]) -> list[dict[str, Any]]:
    """Return the tokens of each text, and for each the probability that it was replaced."""
    special, found = special_tokens_of(tokenizer), []
    for text in texts:
        ids, _ = add_special_tokens(special, tokenizer.encode(text), None, model.config.context)
        p = torch.sigmoid(model.replaced_logits(torch.from_numpy(ids.astype(np.int64))[None]))[0, 1:-1].tolist()
        names = [tokenizer.name(int(token)) for token in ids[1:-1]]
        found.append({"replaced": [name for name, one in zip(names, p) if one > 0.5], "tokens": names, "p": p})
    return found


class MaskedTask(Task):
    """Predict masked tokens, and whether a text follows another."""

    name = "masked"
    data = "documents"
    settings = {"train": MaskedTrainSettings, "data": DocumentSettings, "tokenizer": EncoderTokenizerSettings}
    run = "ensue.runs.masked:MaskedRun"
    short_evaluation = "data.eval_rows=50"
    example_loss = staticmethod(example_losses.masked_loss)

    def read_corpus(self, settings: Settings, folder: RunFolder | None, report: Report) -> DocumentCorpus:
        """Read and tokenise the documents; some are held out if there is no validation text."""
        data = settings.data
        train, valid = read_train_and_valid(read_documents, data, report)
        pairs = settings.model.get("next_sentence") and settings.model.get("not_next") == "random"
        least = 2 if pairs else 1  # a random second text is of another document
        if not valid and data.holdout and len(train) >= 2 * least:
            train, valid = split_at(train, evenly_spaced(len(train), max(data.holdout, least / len(train))))
        tokenizer, where = saved_tokenizer(folder), "" if folder is None else str(folder.tokenizer)
        if tokenizer is None:
            report("phase", {"name": "fitting the tokenizer"})
            sentences = [sentence for document in train for sentence in document]
            most = LARGE_VOCABULARY if sum(map(len, sentences)) >= LARGE_TEXT else VOCABULARY
            tokenizer, where = encoder_tokenizer(settings.tokenizer, sentences, most), settings.tokenizer.kind
        encoder = check_has_mask(tokenizer, where)
        report("phase", {"name": "tokenising the text"})
        return DocumentCorpus(
            encoder, encode_documents(train, encoder), encode_documents(valid, encoder) if valid else None
        )

    def describe_corpus(self, corpus: DocumentCorpus) -> dict[str, Any]:
        """Return the number of documents, tokens and bytes."""
        valid = corpus.valid
        return super().describe_corpus(corpus) | {
            "train_documents": len(corpus.train),
            "train_tokens": len(corpus.train.tokens),
            "train_bytes": corpus.train.bytes,
            "valid_documents": len(valid) if valid else 0,
            "valid_tokens": len(valid.tokens) if valid else 0,
        }

    def complete_settings(self, settings: Settings, model: BERT, corpus: DocumentCorpus) -> Settings:
        """Fill in the length of rows."""
        length, context = settings.train.length or model.config.context, model.config.context
        if length > context:
            raise InputError(f"train.length = {length} is more than context = {context}", hint="make it less")
        return super().complete_settings(replace(settings, train=replace(settings.train, length=length)), model, corpus)

    def batches(self, settings: Settings, model: BERT, corpus: DocumentCorpus) -> MaskedBatches:
        """Return batches of rows with masked tokens."""
        return masked_batches(settings, model, corpus.train, corpus.tokenizer, derive(settings.run.seed, "data"))

    def objective(self, settings: Settings, model: BERT, corpus: DocumentCorpus) -> Objective:
        """Return the loss of masked tokens and of pairs, or of replaced tokens."""
        return MASKED_OBJECTIVES[model.objective]

    def evaluator(self, settings: Settings, model: BERT, corpus: DocumentCorpus) -> Evaluate | None:
        """Return a function that computes the loss and the accuracies on held-out text."""
        valid, tokenizer = corpus.valid, corpus.tokenizer
        if valid is None:
            return None
        try:
            masked_batches(settings, model, valid, tokenizer, seed=0)
        except InputError:
            if settings.data.valid:
                raise
            return None  # the held-out text is too short for a row
        most = settings.data.eval_rows or EVAL_ROWS

        def evaluate(stop: Callable[[], bool], ranks: Ranks = SINGLE) -> dict[str, float]:
            report = abandon_when(stop)
            score = score_documents(settings, model, valid, tokenizer, most, report=report, ranks=ranks)
            of_pairs = {"next_accuracy": score.next_accuracy, "order_accuracy": score.order_accuracy}
            of_tokens = {"replaced_accuracy": score.replaced_accuracy, "replaced_f1": score.replaced_f1}
            measured = {name: share for name, share in (of_pairs | of_tokens).items() if share is not None}
            return {"valid_loss": score.loss, "masked_accuracy": score.accuracy, **measured}

        return evaluate

    def final_figures(
        self, settings: Settings, model: BERT, corpus: DocumentCorpus, folder: RunFolder, report: Report
    ) -> dict[str, Any] | None:
        """Return the figures on held-out documents."""
        if corpus.valid is None or self.evaluator(settings, model, corpus) is None:
            return None
        report("phase", {"name": "scoring the validation text"})
        score = score_documents(settings, model, corpus.valid, corpus.tokenizer, SCORE_ROWS, corpus.train)
        report("result", {"masked_loss": score.masked_loss})
        return score.as_dict()


TASK = MaskedTask()
