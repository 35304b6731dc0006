"""Span corruption: from text to an encoder–decoder that fills in what is left out of it.

Held-out text is always corrupted in the same way, and scored beside a unigram baseline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ensue.core.errors import InputError
from ensue.core.events import Report, abandon_when, report_notes, silent
from ensue.core.run_folder import RunFolder
from ensue.core.seeds import derive
from ensue.data.reading import measure_text, read_pieces
from ensue.data.sources import Source
from ensue.data.spans import SpanBatches, SpanOptions
from ensue.data.text_pieces import as_parts
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.data.tokenizers.registry import MAX_FIT_BYTES, resolve_tokenizer, sample_parts
from ensue.data.tokenizers.sentinels import check_has_sentinels, fit_sentinel_tokenizer, padding_of, sentinels_of
from ensue.data.tokens import TokenizedText, tokenize
from ensue.measure import example_losses
from ensue.measure.spans import SpanScore, span_score
from ensue.models.conditional import ConditionalModel
from ensue.tasks.language_modelling import TextCorpus, read_text_corpus, text_sources
from ensue.tasks.settings import DataSettings, Settings, TokenizerSettings
from ensue.tasks.spec import Task, saved_tokenizer
from ensue.train.objectives import Objective, TranslationLoss
from ensue.train.ranks import SINGLE, Evaluate, Ranks
from ensue.train.settings import SpanTrainSettings

LARGE_TEXT = 50_000_000
"""Bytes from which a text is large."""
VOCABULARY, LARGE_VOCABULARY = 8192, 32_128
"""The most tokens where no setting says, for a small text and for a large one."""
EVAL_ROWS, SCORE_ROWS = 200, 2000
"""Rows of an evaluation during training, and of the final figures, at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SpanTextSettings(DataSettings):
    """Where the text comes from, under ``data.`` in run.toml."""

    field: str = ""
    """The field of a JSONL file that has the text; empty means text."""
    columns: str = ""
    """The column of a table that has the text, e.g. text=2; each line is then a document. Empty means no table."""
    bad_lines: str = "error"
    """What to do with a table's line that has too few columns: error, or skip (with a note)."""
    holdout: float = 0.05
    """The share of the text, at its end, to hold out if there is no validation text; 0 means none."""
    eval_rows: int = 0
    """Validation rows of an evaluation during training; 0 means 200."""


def choose_sentinel_tokenizer(
    settings: TokenizerSettings, sources: Sequence[Source], field: str | None, notes: list[str] | None = None
) -> Tokenizer:
    """Return the tokenizer that the settings name, fitted to the text unless it is fitted already."""
    kind = resolve_tokenizer("bpe" if settings.kind == "auto" else settings.kind)
    if not isinstance(kind, str):
        check_has_sentinels(kind, settings.kind)
        return kind
    size = measure_text(sources, field)[1]
    parts = as_parts(read_pieces(sources, field))
    if size > MAX_FIT_BYTES:
        parts = sample_parts(parts, MAX_FIT_BYTES / size)
        if notes is not None:
            notes.append(
                f"the {kind} tokenizer is fitted to {MAX_FIT_BYTES / size:.0%} of the text, evenly from all of it"
            )
    most = settings.vocabulary or (LARGE_VOCABULARY if size >= LARGE_TEXT else VOCABULARY)
    return fit_sentinel_tokenizer(kind, (text for text, _, _ in parts), most, settings.min_count or 2)


def span_batches(train: Any, model: Any, text: TokenizedText, tokenizer: Tokenizer, seed: int) -> SpanBatches:
    """Return batches of rows with spans left out; ``train`` are the settings of training."""
    return SpanBatches(
        text.tokens[1:],
        sentinels_of(tokenizer),
        rows=train.batch,
        length=train.length or model.config.context,
        options=SpanOptions(share=train.lost, mean=train.mean_span),
        end=tokenizer.end,
        first=model.first(tokenizer.end),
        seed=seed,
    )


def score_spans(
    train: Any,
    model: Any,
    text: TokenizedText,
    tokenizer: Tokenizer,
    most: int,
    of: TokenizedText | None = None,
    report: Report = silent,
    ranks: Ranks = SINGLE,
) -> SpanScore:
    """Score a model on ``most`` rows of a text, always corrupted in the same way; ``of`` is its training text."""
    batches = span_batches(train, model, text, tokenizer, seed=0)
    steps = min(batches.steps_per_epoch, max(1, -(-most // batches.rows)))

    def read() -> Iterator[Any]:
        for step in range(steps):
            report("progress", {"done": step, "total": steps})
            yield batches.batch(step)

    counts = np.bincount((of or text).tokens, minlength=model.config.vocabulary)
    special = [tokenizer.end, *sentinels_of(tokenizer)]
    return span_score(model, read(), counts, special, "training text" if of else "this text", ranks)


def score_files(
    train: Any, model: Any, tokenizer: Tokenizer, files: Sequence[Source], field: str | None, report: Report = silent
) -> SpanScore:
    """Return all figures of a model on files."""
    notes: list[str] = []
    text = tokenize(text_sources(files, ""), tokenizer, field=field, report=report, notes=notes)
    report_notes(notes, "and {} more notes", report)
    return score_spans(train, model, text, tokenizer, SCORE_ROWS, report=report)


class SpanTask(Task):
    """Fill in spans that are left out of a text."""

    name = "spans"
    data = "text with gaps"
    settings = {"train": SpanTrainSettings, "data": SpanTextSettings, "tokenizer": TokenizerSettings}
    run = "ensue.runs.spans:SpanRun"
    short_evaluation = "data.eval_rows=50"
    example_loss = staticmethod(example_losses.span_loss)

    def read_corpus(self, settings: Settings, folder: RunFolder | None, report: Report) -> TextCorpus:
        """Read and tokenise the text; its end is held out if there is no validation text."""
        saved = saved_tokenizer(folder)
        if saved is not None:
            check_has_sentinels(saved, str(folder.tokenizer) if folder else "")
        return read_text_corpus(settings.data, settings.tokenizer, saved, report, choose_sentinel_tokenizer)

    def describe_corpus(self, corpus: TextCorpus) -> dict[str, Any]:
        """Return the number of tokens and bytes."""
        return super().describe_corpus(corpus) | {
            "train_tokens": len(corpus.train) - 1,
            "train_bytes": corpus.train.bytes,
            "valid_tokens": len(corpus.valid) - 1 if corpus.valid else 0,
        }

    def model_settings(self, settings: Settings, corpus: TextCorpus) -> dict[str, Any]:
        """Return the size of the vocabulary, and the token before a target's first."""
        size, start = corpus.tokenizer.size, settings.model.get("start", -1)
        first = padding_of(corpus.tokenizer) if start == -1 else start
        return {"vocabulary": size, "source_vocabulary": size, "start": first}

    def complete_settings(self, settings: Settings, model: Any, corpus: TextCorpus) -> Settings:
        """Fill in the length of rows."""
        length, context = settings.train.length or model.config.context, model.config.context
        if length > context:
            raise InputError(f"train.length = {length} is more than context = {context}", hint="make it less")
        return super().complete_settings(replace(settings, train=replace(settings.train, length=length)), model, corpus)

    def batches(self, settings: Settings, model: Any, corpus: TextCorpus) -> SpanBatches:
        """Return batches of rows with spans left out."""
        seed = derive(settings.run.seed, "data")
        return span_batches(settings.train, model, corpus.train, corpus.tokenizer, seed)

    def objective(self, settings: Settings, model: Any, corpus: TextCorpus) -> Objective:
        """Return the loss of the next target token."""
        return TranslationLoss()

    def evaluator(self, settings: Settings, model: ConditionalModel, corpus: TextCorpus) -> Evaluate | None:
        """Return a function that computes the loss and the accuracy on held-out text."""
        valid = corpus.valid
        if valid is None or len(valid) <= 8:
            return None
        most = settings.data.eval_rows or EVAL_ROWS

        def evaluate(stop: Callable[[], bool], ranks: Ranks = SINGLE) -> dict[str, float]:
            how = {"report": abandon_when(stop), "ranks": ranks}
            score = score_spans(settings.train, model, valid, corpus.tokenizer, most, **how)  # type: ignore[arg-type]
            return {"valid_loss": score.loss, "span_accuracy": score.accuracy}

        return evaluate

    def final_figures(
        self, settings: Settings, model: Any, corpus: TextCorpus, folder: RunFolder, report: Report
    ) -> dict[str, Any] | None:
        """Return the figures on held-out text."""
        if self.evaluator(settings, model, corpus) is None or corpus.valid is None:
            return None
        report("phase", {"name": "scoring the validation text"})
        score = score_spans(settings.train, model, corpus.valid, corpus.tokenizer, SCORE_ROWS, corpus.train)
        report("result", {"span_loss": score.span_loss})
        return score.as_dict()


TASK = SpanTask()
