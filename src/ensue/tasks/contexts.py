"""Learning words in context: sentences in, a model whose vectors of a word depend on where it stands out.

It joins the reader and tokenizer, a model, the objective and the measure. A row is a sentence with a mark at both ends.
Both directions need to see where it ends, and taggers and classifiers read sentences from an empty state: so rows are
sentences of similar lengths, and no state is carried on from one to the next as in a running text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ensue.core.errors import InputError
from ensue.core.events import Abandoned, Report, report_notes, silent
from ensue.core.run_folder import RunFolder
from ensue.core.seeds import derive
from ensue.core.settings import check, check_below_one
from ensue.data.documents import read_sentences
from ensue.data.labelled_rows import LabelledRows, RowBatch, RowBatches, evaluation_batches, make_batch, make_rows
from ensue.data.sources import Source
from ensue.data.splitting import evenly_spaced
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.data.tokenizers.registry import KINDS, load_tokenizer
from ensue.data.tokenizers.special_tokens import add_special_tokens, special_tokens_of
from ensue.data.tokenizers.spelled_words import SpelledWordTokenizer, fit_spelled_words
from ensue.measure import example_losses
from ensue.measure.contexts import ContextScore, context_score
from ensue.models.context import ContextModel, replace_unknown
from ensue.tasks.machine import fill_common
from ensue.tasks.settings import Settings, TokenizerSettings
from ensue.tasks.spec import TaskSpec
from ensue.train.objectives import Objective, context_loss
from ensue.train.ranks import SINGLE, Evaluate, Ranks
from ensue.train.settings import ContextTrainSettings

VOCABULARY = 30_000
"""How many words are predicted at the most, if nothing is said."""
BLOCK = 30
"""Neighbouring sentences that are held out together: alone, a sentence is too easy beside those around it."""
EVAL_ROWS = 500
AT_ONCE = 4096
"""Words that are scored at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SentenceSettings:
    """Where sentences come from, under ``data.`` in run.toml."""

    files: tuple[str, ...] = ()
    """The text to learn from: files, folders, - for standard input, or a built-in corpus."""
    valid: tuple[str, ...] = ()
    """The text to validate with; where there is none, some sentences are held out."""
    field: str = ""
    """Which field of a JSONL file holds the text; empty means text."""
    holdout: float = 0.05
    """The share of the sentences that is held out where there is no validation text; 0 holds out nothing."""
    length: int = 100
    """The most words of a row; a longer sentence is cut into several."""
    eval_rows: int = 0
    """How many sentences of the validation text are looked at during training; 0 means 500."""
    hash: str = ""
    """Of the words trained on; a resumed run must find the same."""

    def __post_init__(self) -> None:
        check_below_one(self, "holdout")
        check(self, "length", self.length >= 2, "at least 2")
        check(self, "eval_rows", self.eval_rows >= 0, "0 or more")


@dataclass(frozen=True)
class Corpus:
    """Sentences to learn from and some to validate with, as rows of words."""

    tokenizer: SpelledWordTokenizer
    train: LabelledRows
    valid: LabelledRows | None
    bytes: int
    """Of the training text."""

    @property
    def hash(self) -> str:
        """Of both as rows."""
        return self.train.hash[:32] + (self.valid.hash[:32] if self.valid is not None else "")


def spelt(tokenizer: Tokenizer, where: str) -> SpelledWordTokenizer:
    """Refuse a tokenizer whose tokens are no words with letters."""
    if isinstance(tokenizer, SpelledWordTokenizer):
        return tokenizer
    raise InputError("this tokenizer does not spell words", where=where, hint="leave out --tokenizer")


def choose_tokenizer(settings: TokenizerSettings, sentences: Sequence[str]) -> SpelledWordTokenizer:
    """Words by frequency, or the tokenizer that the settings name."""
    if settings.kind in KINDS and settings.kind != "word":
        what = f"a {settings.kind} tokenizer has no words to spell"
        raise InputError(what, hint="leave out --tokenizer, or give the tokenizer.json of such a run")
    if settings.kind not in ("auto", "spelt", "word"):
        return spelt(load_tokenizer(settings.kind), settings.kind)
    parts = ((sentence, True, True) for sentence in sentences)
    return fit_spelled_words(parts, settings.vocabulary or VOCABULARY, settings.min_count or None)


def rows_in(sentences: Sequence[str], tokenizer: SpelledWordTokenizer, longest: int) -> LabelledRows:
    """Sentences as rows, a mark at both ends; longer ones are cut into several, and those without a word left out."""
    marks, rows = special_tokens_of(tokenizer), []
    for sentence in sentences:
        ids = tokenizer.encode(" ".join(sentence.split()))
        rows += [add_special_tokens(marks, ids[at : at + longest]) for at in range(0, len(ids), longest)]
    return make_rows(rows, np.zeros(len(rows), dtype=np.int64))


def read_corpus(settings: Settings, folder: RunFolder | None, report: Report) -> Corpus:
    """The run's sentences as rows, by the tokenizer in its folder where there is one already."""
    data = settings.data
    notes: list[str] = []
    report("phase", {"name": "reading the text"})
    train = read_sentences(list(data.files), data.field or None, notes)
    valid = read_sentences(list(data.valid), data.field or None, notes) if data.valid else []
    report_notes(notes, "and {} more notes", report)
    where = ", ".join(map(str, data.files))
    if not train:
        raise InputError("there is no sentence to learn from", where=where, hint="give some text")
    if not valid and data.holdout:
        if len(train) < 2:
            hint = "give more text, or a validation text with --valid"
            raise InputError("one sentence is too little to hold a part out", where=where, hint=hint)
        train, valid = _parted(train, data.holdout)
    if folder is not None and folder.tokenizer.exists():
        tokenizer = spelt(load_tokenizer(folder.tokenizer), str(folder.tokenizer))
    else:
        report("phase", {"name": "counting words"})
        tokenizer = choose_tokenizer(settings.tokenizer, train)
    report("phase", {"name": "tokenising the text"})
    rows = rows_in(train, tokenizer, data.length)
    held = rows_in(valid, tokenizer, data.length) if valid else None
    return Corpus(tokenizer, rows, held, sum(len(sentence.encode()) for sentence in train))


def _parted(sentences: list[str], share: float) -> tuple[list[str], list[str]]:
    """Sentences to learn from and to validate with: blocks of neighbours, evenly spread."""
    size = min(BLOCK, max(1, len(sentences) // 10))
    blocks = [sentences[at : at + size] for at in range(0, len(sentences), size)]
    out = set(evenly_spaced(len(blocks), max(share, 1 / len(blocks))))
    parts = [[s for place, block in enumerate(blocks) if (place in out) == held for s in block] for held in (0, 1)]
    return parts[0], parts[1]


def model_settings(settings: Settings, corpus: Corpus) -> dict[str, Any]:
    """What the text says of a model."""
    return {"vocabulary": corpus.tokenizer.size}


def add_head(settings: Settings, model: ContextModel, corpus: Corpus) -> ContextModel:
    """The model, told how often words occur."""
    words = replace_unknown(torch.from_numpy(corpus.train.tokens.astype(np.int64)), corpus.tokenizer.size)
    model.set_word_counts(torch.bincount(words, minlength=model.config.vocabulary).float())
    return model


def complete_settings(settings: Settings, model: Any, corpus: Corpus) -> Settings:
    """The settings with everything that was left to us filled in, so that run.toml hides nothing."""
    tokens = settings.tokenizer
    if tokens.kind == "word":  # they are spelt here
        tokens = replace(tokens, kind=corpus.tokenizer.kind)
    return fill_common(replace(settings, tokenizer=tokens), corpus.tokenizer)


def batches(settings: Settings, model: Any, corpus: Corpus) -> RowBatches:
    """Sentences as batches of similar lengths."""
    return RowBatches(corpus.train, settings.train.batch_tokens, derive(settings.run.seed, "data"))


def objective(settings: Settings, model: Any, corpus: Corpus) -> Objective:
    """What training asks of the model."""
    return context_loss


def scored(
    model: Any,
    rows: LabelledRows,
    heed: Callable[[], bool] = lambda: False,
    report: Report = silent,
    ranks: Ranks = SINGLE,
) -> ContextScore:
    """A model on rows, the longest first."""

    def read() -> Iterator[RowBatch]:
        done = 0
        for places in evaluation_batches(rows, AT_ONCE) if len(rows) else ():
            if heed():
                raise Abandoned
            yield make_batch(rows, places)
            done += len(places)
            report("progress", {"done": done, "total": len(rows)})

    return context_score(model, read(), ranks)


def evaluator(settings: Settings, model: Any, corpus: Corpus) -> Evaluate | None:
    """What the loop calls to see how the model does on held-out sentences."""
    if corpus.valid is None or not len(corpus.valid):
        return None
    rows, most = corpus.valid, settings.data.eval_rows or EVAL_ROWS
    if len(rows) > most:
        rows = rows.select(evenly_spaced(len(rows), most / len(rows)))

    def evaluate(stop: Callable[[], bool], ranks: Ranks = SINGLE) -> dict[str, float]:
        score = scored(model, rows, stop, ranks=ranks)
        return {"valid_loss": score.loss, **{f"{name}_perplexity": p for name, p in score.perplexity.items()}}

    return evaluate


def final_figures(
    settings: Settings, model: Any, corpus: Corpus, folder: RunFolder, report: Report
) -> dict[str, Any] | None:
    """How the finished model does on all of the held-out sentences."""
    if corpus.valid is None or not len(corpus.valid):
        return None
    report("phase", {"name": "scoring the validation text"})
    score = scored(model, corpus.valid, report=report)
    report("result", {f"{name} perplexity": p for name, p in score.perplexity.items()})
    return score.as_dict()


def score_files(
    model: Any, tokenizer: Tokenizer, files: Sequence[Source], field: str | None, length: int, report: Report = silent
) -> ContextScore:
    """All figures of a model on files."""
    notes: list[str] = []
    sentences = read_sentences(list(files), field, notes)
    report_notes(notes, "and {} more notes", report)
    return scored(model, rows_in(sentences, spelt(tokenizer, "tokenizer.json"), length), report=report)


def describe_corpus(corpus: Corpus) -> dict[str, Any]:
    """Facts of a corpus for the model card."""
    marks = 2
    return {
        "tokenizer": corpus.tokenizer.kind,
        "vocabulary": corpus.tokenizer.size,
        "train_sentences": len(corpus.train),
        "train_tokens": len(corpus.train.tokens) - marks * len(corpus.train),
        "train_bytes": corpus.bytes,
        "valid_sentences": len(corpus.valid) if corpus.valid is not None else 0,
    }


TASK = TaskSpec(
    name="contexts",
    data="sentences",
    settings={"train": ContextTrainSettings, "data": SentenceSettings, "tokenizer": TokenizerSettings},
    run="ensue.runs.masked:ContextRun",
    read_corpus=read_corpus,
    describe_corpus=describe_corpus,
    model_settings=model_settings,
    add_head=add_head,
    complete_settings=complete_settings,
    batches=batches,
    objective=objective,
    example_loss=example_losses.contexts_loss,
    evaluator=evaluator,
    final_figures=final_figures,
    short_evaluation="data.eval_rows=50",
)
