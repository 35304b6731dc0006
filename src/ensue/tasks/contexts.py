"""Words in context: from sentences to a model whose vectors of a word depend on its context.

A row is a sentence between two end tokens. Both directions need to see where it ends, and taggers and classifiers read
sentences from an empty state. So rows are sentences of similar lengths, and no state is carried from one to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import torch

from ensue.core.errors import InputError
from ensue.core.events import Report, abandon_when, report_notes, silent
from ensue.core.run_folder import RunFolder
from ensue.core.seeds import derive
from ensue.core.settings import check
from ensue.data.documents import read_sentences, read_train_and_valid
from ensue.data.labelled_rows import LabelledRows, RowBatch, RowBatches, evaluation_batches, make_batch, make_rows
from ensue.data.sources import Source
from ensue.data.splitting import evenly_spaced, split_at
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.data.tokenizers.registry import KINDS, load_tokenizer
from ensue.data.tokenizers.special_tokens import add_special_tokens, special_tokens_of
from ensue.data.tokenizers.spelled_words import SpelledWordTokenizer, fit_spelled_words
from ensue.measure import example_losses
from ensue.measure.contexts import ContextScore, context_score
from ensue.models.context import ContextModel, replace_unknown
from ensue.tasks.settings import DataSettings, Settings, TokenizerSettings
from ensue.tasks.spec import Corpus, Task, saved_tokenizer
from ensue.train.objectives import Objective, context_loss
from ensue.train.ranks import SINGLE, Evaluate, Ranks
from ensue.train.settings import ContextTrainSettings

VOCABULARY = 30_000
"""The most words that are predicted, where no setting says."""
BLOCK = 30
"""Neighbouring sentences that are held out together: a single sentence is too easy to predict from those around it."""
EVAL_ROWS = 500
BATCH_TOKENS = 4096
"""Tokens of a batch in scoring."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SentenceSettings(DataSettings):
    """Where sentences come from, under ``data.`` in run.toml."""

    field: str = ""
    """The field of a JSONL file that has the text; empty means text."""
    holdout: float = 0.05
    """The share of the sentences to hold out if there is no validation text; 0 means none."""
    length: int = 100
    """The most words of a row; a longer sentence is cut into several."""
    eval_rows: int = 0
    """Validation sentences of an evaluation during training; 0 means 500."""

    def __post_init__(self) -> None:
        super(SentenceSettings, self).__post_init__()
        check(self, "length", self.length >= 2, "at least 2")


@dataclass(frozen=True)
class SentenceCorpus(Corpus[LabelledRows]):
    """Sentences as rows of words."""

    bytes: int
    """The size of the training text."""


def check_spells(tokenizer: Tokenizer, where: str) -> SpelledWordTokenizer:
    """Return the tokenizer; raise InputError if it does not spell words."""
    if isinstance(tokenizer, SpelledWordTokenizer):
        return tokenizer
    raise InputError("this tokenizer does not spell words", where=where, hint="leave out --tokenizer")


def choose_tokenizer(settings: TokenizerSettings, sentences: Sequence[str]) -> SpelledWordTokenizer:
    """Return the tokenizer that the settings name, or one of the most frequent words."""
    if settings.kind in KINDS and settings.kind != "word":
        what = f"a {settings.kind} tokenizer has no words to spell"
        raise InputError(what, hint="leave out --tokenizer, or give the tokenizer.json of such a run")
    if settings.kind not in ("auto", "spelt", "word"):
        return check_spells(load_tokenizer(settings.kind), settings.kind)
    parts = ((sentence, True, True) for sentence in sentences)
    return fit_spelled_words(parts, settings.vocabulary or VOCABULARY, settings.min_count or None)


def encode_sentences(sentences: Sequence[str], tokenizer: SpelledWordTokenizer, longest: int) -> LabelledRows:
    """Encode sentences as rows between two end tokens; longer ones are cut into several, empty ones left out."""
    special, rows = special_tokens_of(tokenizer), []
    for sentence in sentences:
        ids = tokenizer.encode(" ".join(sentence.split()))
        rows += [add_special_tokens(special, ids[start : start + longest]) for start in range(0, len(ids), longest)]
    return make_rows(rows, np.zeros(len(rows), dtype=np.int64))


def hold_out_blocks(sentences: list[str], share: float) -> tuple[list[str], list[str]]:
    """Split sentences into a training part and evenly spaced blocks of neighbours for validation."""
    size = min(BLOCK, max(1, len(sentences) // 10))
    blocks = [sentences[start : start + size] for start in range(0, len(sentences), size)]
    train, valid = split_at(blocks, evenly_spaced(len(blocks), max(share, 1 / len(blocks))))
    return list(chain(*train)), list(chain(*valid))


def score_rows(model: Any, rows: LabelledRows, report: Report = silent, ranks: Ranks = SINGLE) -> ContextScore:
    """Score a model on rows, the longest first."""

    def read() -> Iterator[RowBatch]:
        done = 0
        for examples in evaluation_batches(rows, BATCH_TOKENS) if len(rows) else ():
            yield make_batch(rows, examples)
            done += len(examples)
            report("progress", {"done": done, "total": len(rows)})

    return context_score(model, read(), ranks)


def score_files(
    model: Any, tokenizer: Tokenizer, files: Sequence[Source], field: str | None, length: int, report: Report = silent
) -> ContextScore:
    """Return all figures of a model on files."""
    notes: list[str] = []
    sentences = read_sentences(list(files), field, notes)
    report_notes(notes, "and {} more notes", report)
    rows = encode_sentences(sentences, check_spells(tokenizer, "tokenizer.json"), length)
    return score_rows(model, rows, report)


class ContextTask(Task):
    """Predict a word from the words on both its sides."""

    name = "contexts"
    data = "sentences"
    settings = {"train": ContextTrainSettings, "data": SentenceSettings, "tokenizer": TokenizerSettings}
    run = "ensue.runs.masked:ContextRun"
    short_evaluation = "data.eval_rows=50"
    example_loss = staticmethod(example_losses.contexts_loss)

    def read_corpus(self, settings: Settings, folder: RunFolder | None, report: Report) -> SentenceCorpus:
        """Read and tokenise the sentences; some are held out if there is no validation text."""
        data = settings.data
        train, valid = read_train_and_valid(read_sentences, data, report)
        if not valid and data.holdout:
            if len(train) < 2:
                what, where = "one sentence is too little to hold a part out", ", ".join(map(str, data.files))
                raise InputError(what, where=where, hint="give more text, or a validation text with --valid")
            train, valid = hold_out_blocks(train, data.holdout)
        saved = saved_tokenizer(folder)
        if folder is not None and saved is not None:
            tokenizer = check_spells(saved, str(folder.tokenizer))
        else:
            report("phase", {"name": "counting words"})
            tokenizer = choose_tokenizer(settings.tokenizer, train)
        report("phase", {"name": "tokenising the text"})
        rows = encode_sentences(train, tokenizer, data.length)
        held_out = encode_sentences(valid, tokenizer, data.length) if valid else None
        return SentenceCorpus(tokenizer, rows, held_out, sum(len(sentence.encode()) for sentence in train))

    def describe_corpus(self, corpus: SentenceCorpus) -> dict[str, Any]:
        """Return the number of sentences, of tokens without the end tokens, and of bytes."""
        return super().describe_corpus(corpus) | {
            "train_sentences": len(corpus.train),
            "train_tokens": len(corpus.train.tokens) - 2 * len(corpus.train),
            "train_bytes": corpus.bytes,
            "valid_sentences": len(corpus.valid) if corpus.valid is not None else 0,
        }

    def add_head(self, settings: Settings, model: ContextModel, corpus: SentenceCorpus) -> ContextModel:
        """Set the counts of words in the model."""
        words = replace_unknown(torch.from_numpy(corpus.train.tokens.astype(np.int64)), corpus.tokenizer.size)
        model.set_word_counts(torch.bincount(words, minlength=model.config.vocabulary).float())
        return model

    def complete_settings(self, settings: Settings, model: Any, corpus: SentenceCorpus) -> Settings:
        """Fill in the kind of tokenizer: words are spelled here."""
        tokens = settings.tokenizer
        if tokens.kind == "word":
            tokens = replace(tokens, kind=corpus.tokenizer.kind)
        return super().complete_settings(replace(settings, tokenizer=tokens), model, corpus)

    def batches(self, settings: Settings, model: Any, corpus: SentenceCorpus) -> RowBatches:
        """Return batches of sentences of similar lengths."""
        return RowBatches(corpus.train, settings.train.batch_tokens, derive(settings.run.seed, "data"))

    def objective(self, settings: Settings, model: Any, corpus: SentenceCorpus) -> Objective:
        """Return the loss that the model defines."""
        return context_loss

    def evaluator(self, settings: Settings, model: Any, corpus: SentenceCorpus) -> Evaluate | None:
        """Return a function that computes the loss and the perplexities on held-out sentences."""
        if corpus.valid is None or not len(corpus.valid):
            return None
        rows, most = corpus.valid, settings.data.eval_rows or EVAL_ROWS
        if len(rows) > most:
            rows = rows.select(evenly_spaced(len(rows), most / len(rows)))

        def evaluate(stop: Callable[[], bool], ranks: Ranks = SINGLE) -> dict[str, float]:
            score = score_rows(model, rows, abandon_when(stop), ranks)
            return {"valid_loss": score.loss, **{f"{name}_perplexity": p for name, p in score.perplexity.items()}}

        return evaluate

    def final_figures(
        self, settings: Settings, model: Any, corpus: SentenceCorpus, folder: RunFolder, report: Report
    ) -> dict[str, Any] | None:
        """Return the figures on all held-out sentences."""
        if corpus.valid is None or not len(corpus.valid):
            return None
        report("phase", {"name": "scoring the validation text"})
        score = score_rows(model, corpus.valid, report)
        report("result", {f"{name} perplexity": p for name, p in score.perplexity.items()})
        return score.as_dict()


TASK = ContextTask()
