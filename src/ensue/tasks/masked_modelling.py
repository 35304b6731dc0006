"""Pre-training an encoder: documents in, a model that fills in what is hidden out.

It joins the reader and tokenizer, a model, the objective and the measure. Held-out documents are scored with masks that
are always the same, beside what guessing each token by how often it occurs would cost (the unigram's loss).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ensue.core.errors import InputError
from ensue.core.events import Abandoned, Report, report_notes, silent
from ensue.core.run_folder import RunFolder
from ensue.core.seeds import derive
from ensue.core.settings import check, check_below_one
from ensue.data.documents import read_documents
from ensue.data.masking import DocumentTokens, MaskedBatches, MaskingOptions
from ensue.data.sources import Source
from ensue.data.splitting import evenly_spaced
from ensue.data.tokenizers.encoder_fitting import fit_encoder_tokenizer
from ensue.data.tokenizers.encoder_tokenizer import EncoderTokenizer
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.data.tokenizers.registry import load_tokenizer, resolve_tokenizer
from ensue.data.tokenizers.special_tokens import add_special_tokens, special_tokens_of
from ensue.measure import example_losses
from ensue.measure.masked import MaskedScore, masked_score
from ensue.models.bert import BERT
from ensue.tasks.machine import fill_common
from ensue.tasks.settings import Settings, TokenizerSettings
from ensue.tasks.spec import TaskSpec
from ensue.train.label_objectives import masked_language_loss as masked_loss
from ensue.train.objectives import Objective
from ensue.train.ranks import SINGLE, Evaluate, Ranks
from ensue.train.settings import MaskedTrainSettings

VOCABULARY = {"small": 8192, "large": 30_522}
"""How many tokens a vocabulary has at most, for a small text and for a large one, if nothing is said."""
LARGE_TEXT = 50_000_000
"""Bytes from which a text is large."""
EVAL_ROWS = 200
SCORE_ROWS = 2000
"""How many rows the final figures are of, at the most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentSettings:
    """Where documents come from, under ``data.`` in run.toml."""

    files: tuple[str, ...] = ()
    """The text to learn from: files, folders, - for standard input, or a built-in corpus."""
    valid: tuple[str, ...] = ()
    """The text to validate with; where there is none, some documents are held out."""
    field: str = ""
    """Which field of a JSONL file holds the text; empty means text."""
    holdout: float = 0.05
    """The share of the documents that is held out where there is no validation text; 0 holds out nothing."""
    eval_rows: int = 0
    """How many rows of the validation text are looked at during training; 0 means 200."""
    hash: str = ""
    """Of the tokens trained on; a resumed run must find the same."""

    def __post_init__(self) -> None:
        check_below_one(self, "holdout")
        check(self, "eval_rows", self.eval_rows >= 0, "0 or more")


@dataclass(frozen=True, kw_only=True, slots=True)
class MarkedTokenizerSettings(TokenizerSettings):
    """How text becomes tokens for an encoder, under ``tokenizer.`` in run.toml."""

    lowercase: bool = True
    """Whether capitals are read as small letters, accents left out (wordpiece)."""


@dataclass(frozen=True)
class Corpus:
    """DocumentTokens to learn from and some to validate with, as tokens."""

    tokenizer: EncoderTokenizer
    train: DocumentTokens
    valid: DocumentTokens | None

    @property
    def hash(self) -> str:
        """Of both as tokens."""
        whole = hashlib.sha256()
        for part in (self.train, self.valid):
            if part is not None:
                for array in (part.tokens, part.sentences, part.documents):
                    whole.update(np.ascontiguousarray(array).tobytes())
        return whole.hexdigest()


def marked(tokenizer: Tokenizer, where: str = "") -> EncoderTokenizer:
    """Refuse a tokenizer without marks."""
    if isinstance(tokenizer, EncoderTokenizer) and tokenizer.special_tokens.mask is not None:
        return tokenizer
    raise InputError("this tokenizer has no mask", where=where, hint="use --tokenizer wordpiece, bpe or unigram")


def encoder_tokenizer(settings: MarkedTokenizerSettings, texts: Iterable[str], vocabulary: int) -> Tokenizer:
    """The tokenizer that an encoder's settings name, fitted to texts where it is not given ready, with ``vocabulary``
    tokens at most where they say no number."""
    found = resolve_tokenizer("wordpiece" if settings.kind == "auto" else settings.kind)
    if not isinstance(found, str):
        return found
    if found not in ("wordpiece", "bpe", "unigram"):
        raise InputError(f"a {found} tokenizer has no marks for an encoder", hint="use wordpiece, bpe or unigram")
    return fit_encoder_tokenizer(
        found, texts, settings.vocabulary or vocabulary, settings.min_count or 2, settings.lowercase
    )


def choose_tokenizer(settings: MarkedTokenizerSettings, documents: Sequence[Sequence[str]]) -> EncoderTokenizer:
    """The tokenizer that the settings name, fitted to the documents where it is not given ready."""
    size = sum(len(sentence) for document in documents for sentence in document)
    texts = (sentence for document in documents for sentence in document)
    vocabulary = VOCABULARY["large" if size >= LARGE_TEXT else "small"]
    return marked(encoder_tokenizer(settings, texts, vocabulary), settings.kind)


def tokenised(documents: Sequence[Sequence[str]], tokenizer: EncoderTokenizer) -> DocumentTokens:
    """DocumentTokens as tokens; sentences that come to no token are left out, and so are documents of none."""
    texts = [sentence for document in documents for sentence in document]
    ids = tokenizer.encode_batch(texts)
    place, kept, counts = 0, [], []
    for document in documents:
        own = [one for one in ids[place : place + len(document)] if len(one)]
        place += len(document)
        kept += own
        counts += [len(own)] if own else []
    tokens = np.concatenate(kept) if kept else np.zeros(0, dtype=np.int32)
    return DocumentTokens(
        tokens.astype(np.int32),
        np.concatenate([[0], np.cumsum([len(one) for one in kept])]).astype(np.int64),
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        sum(len(text.encode()) for text in texts),
    )


def read_corpus(settings: Settings, folder: RunFolder | None, report: Report) -> Corpus:
    """The run's documents as tokens, by the tokenizer in its folder where there is one already."""
    data = settings.data
    notes: list[str] = []
    report("phase", {"name": "reading the text"})
    train = read_documents(list(data.files), data.field or None, notes)
    valid = read_documents(list(data.valid), data.field or None, notes) if data.valid else []
    report_notes(notes, "and {} more notes", report)
    least = 2 if settings.model.get("next_sentence") else 1  # of which one can be elsewhere
    if not valid and data.holdout and len(train) >= 2 * least:
        chosen = evenly_spaced(len(train), max(data.holdout, least / len(train)))
        valid = [train[place] for place in chosen]
        out = set(chosen)
        train = [document for place, document in enumerate(train) if place not in out]
    where = ", ".join(map(str, data.files))
    if not train:
        raise InputError("there is no sentence to learn from", where=where, hint="give some text")
    if folder is not None and folder.tokenizer.exists():
        tokenizer = marked(load_tokenizer(folder.tokenizer), str(folder.tokenizer))
    else:
        report("phase", {"name": "fitting the tokenizer"})
        tokenizer = choose_tokenizer(settings.tokenizer, train)
    report("phase", {"name": "tokenising the text"})
    return Corpus(tokenizer, tokenised(train, tokenizer), tokenised(valid, tokenizer) if valid else None)


def model_settings(settings: Settings, corpus: Corpus) -> dict[str, Any]:
    """What the text says of a model."""
    return {"vocabulary": corpus.tokenizer.size}


def objective(settings: Settings, model: BERT, corpus: Corpus) -> Objective:
    """What training asks of the model."""
    return masked_loss


def complete_settings(settings: Settings, model: BERT, corpus: Corpus) -> Settings:
    """The settings with everything that was left to us filled in, so that run.toml hides nothing."""
    length = settings.train.length or model.config.context
    if length > model.config.context:
        raise InputError(f"train.length = {length} is more than context = {model.config.context}", hint="make it less")
    return fill_common(replace(settings, train=replace(settings.train, length=length)), corpus.tokenizer)


def rows_of(
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
        pairs=model.config.next_sentence,
        masking=MaskingOptions(
            share=train.mask, mask=train.mask_as_mask, random=train.mask_as_random, dynamic=train.mask_anew
        ),
        unknown=tokenizer.unknown,
        seed=seed,
    )


def batches(settings: Settings, model: BERT, corpus: Corpus) -> MaskedBatches:
    """The training text as batches."""
    return rows_of(settings, model, corpus.train, corpus.tokenizer, derive(settings.run.seed, "data"))


def scored(
    settings: Settings,
    model: BERT,
    documents: DocumentTokens,
    tokenizer: Tokenizer,
    most: int,
    heed: Callable[[], bool] = lambda: False,
    known: DocumentTokens | None = None,
    ranks: Ranks = SINGLE,
) -> MaskedScore:
    """A model on rows of documents, hidden always the same way; ``known`` are those it learnt from."""
    rows = rows_of(settings, model, documents, tokenizer, seed=0)
    steps = min(rows.steps_per_epoch, max(1, -(-most // rows.rows)))

    def batch(number: int) -> Any:
        if heed():
            raise Abandoned
        return rows.batch(number)

    counts = np.bincount((known or documents).tokens, minlength=tokenizer.size)
    return masked_score(model, map(batch, range(steps)), counts, "training text" if known else "this text", ranks)


def evaluator(settings: Settings, model: BERT, corpus: Corpus) -> Evaluate | None:
    """What the loop calls to see how the model does on held-out text."""
    valid = corpus.valid
    if valid is None:
        return None
    try:
        rows_of(settings, model, valid, corpus.tokenizer, seed=0)
    except InputError:
        if settings.data.valid:
            raise
        return None  # too little is held out to make a row of
    most = settings.data.eval_rows or EVAL_ROWS

    def evaluate(stop: Callable[[], bool], ranks: Ranks = SINGLE) -> dict[str, float]:
        score = scored(settings, model, valid, corpus.tokenizer, most, stop, ranks=ranks)
        found = {"valid_loss": score.loss, "masked_accuracy": score.accuracy}
        return found | ({} if score.next_accuracy is None else {"next_accuracy": score.next_accuracy})

    return evaluate


def final_figures(
    settings: Settings, model: BERT, corpus: Corpus, folder: RunFolder, report: Report
) -> dict[str, Any] | None:
    """How the finished model does on the held-out documents."""
    if evaluator(settings, model, corpus) is None:
        return None
    assert corpus.valid is not None
    report("phase", {"name": "scoring the validation text"})
    score = scored(settings, model, corpus.valid, corpus.tokenizer, SCORE_ROWS, known=corpus.train)
    report("result", {"masked_loss": score.masked_loss})
    return score.as_dict()


def score_files(
    settings: Settings,
    model: BERT,
    tokenizer: Tokenizer,
    files: Sequence[Source],
    field: str | None,
    report: Report = silent,
) -> MaskedScore:
    """All figures of a model on files."""
    notes: list[str] = []
    documents = tokenised(read_documents(list(files), field, notes), marked(tokenizer))
    report_notes(notes, "and {} more notes", report)
    if len(documents.tokens) < 2:
        raise InputError("there is no sentence to score", where=", ".join(str(Path(str(f))) for f in files))
    return scored(settings, model, documents, tokenizer, SCORE_ROWS)


@torch.inference_mode()
def follows(model: BERT, tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]) -> list[float]:
    """The probability that the second text of each pair goes on where the first ends."""
    if model.next is None:
        raise InputError("this encoder did not learn which sentence follows", hint="use one with next_sentence=true")
    marks, found = special_tokens_of(tokenizer), []
    for first, second in pairs:
        ids, segments = add_special_tokens(
            marks, tokenizer.encode(first), tokenizer.encode(second), model.config.context
        )
        row, kinds = (torch.from_numpy(part.astype(np.int64))[None] for part in (ids, segments))
        hidden = model.body(row, kinds, None, torch.zeros(1, 1, dtype=torch.long)).hidden[:, 0]
        found.append(float(model.next_logits(hidden).softmax(-1)[0, 0]))
    return found


def describe_corpus(corpus: Corpus) -> dict[str, Any]:
    """Facts of a corpus for the model card."""
    valid = corpus.valid
    return {
        "tokenizer": corpus.tokenizer.kind,
        "vocabulary": corpus.tokenizer.size,
        "train_documents": len(corpus.train),
        "train_tokens": len(corpus.train.tokens),
        "train_bytes": corpus.train.bytes,
        "valid_documents": len(valid) if valid else 0,
        "valid_tokens": len(valid.tokens) if valid else 0,
    }


TASK = TaskSpec(
    name="masked",
    data="documents",
    settings={"train": MaskedTrainSettings, "data": DocumentSettings, "tokenizer": MarkedTokenizerSettings},
    run="ensue.runs.masked:MaskedRun",
    read_corpus=read_corpus,
    describe_corpus=describe_corpus,
    model_settings=model_settings,
    complete_settings=complete_settings,
    batches=batches,
    objective=objective,
    example_loss=example_losses.masked_loss,
    evaluator=evaluator,
    final_figures=final_figures,
    short_evaluation="data.eval_rows=50",
)
