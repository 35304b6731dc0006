"""Word vectors: from a text to two vectors for each of its words.

word2vec has a training loop of its own, which changes weights in place. Nothing is held out: ``ensue words similarity``
and ``ensue words analogies`` measure vectors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from ensue.core.device import check_device
from ensue.core.errors import InputError
from ensue.core.events import Report, report_notes
from ensue.core.run_folder import RunFolder
from ensue.core.seeds import derive
from ensue.core.settings import check
from ensue.data.tokenizers.registry import load_tokenizer
from ensue.data.tokenizers.vocabulary import Vocabulary
from ensue.data.word_text import WordText, read_word_text
from ensue.models.word2vec import Word2Vec
from ensue.models.word2vec_training import Word2VecTrainer
from ensue.nn.state import State
from ensue.tasks.language_modelling import check_text
from ensue.tasks.settings import Settings
from ensue.tasks.spec import Task
from ensue.train.checkpoints import Checkpoints
from ensue.train.loss_reduction import LOCAL, LossReduction
from ensue.train.metrics import Metrics
from ensue.train.objectives import Objective
from ensue.train.plan import Plan
from ensue.train.settings import WordTrainSettings
from ensue.train.training import Outcome
from ensue.train.word2vec_loop import plan_word2vec, train_word2vec

RATES = {"skipgram": 0.025, "cbow": 0.075}
"""The learning rate of each mode; CBOW's steps are shared among the words of a window (İrsoy et al., 2021)."""
SHORT = 10_000_000
"""Words times epochs; fewer are trained by one thread in seconds, more by all threads."""
LARGE = 20_000
"""A vocabulary from which the exact softmax is slow."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WordSettings:
    """Where the text comes from, under ``data.`` in run.toml."""

    files: tuple[str, ...] = ()
    """The text to learn from: files, folders, - for standard input, or a built-in corpus."""
    field: str = ""
    """The field of a JSONL file that has the text; empty means text."""
    unit: str = "line"
    """Windows stay within a line, or within a paragraph (between blank lines)."""
    hash: str = ""
    """Hash of the data; a resumed run must read the same."""

    def __post_init__(self) -> None:
        check(self, "unit", self.unit in ("line", "paragraph"), "line or paragraph")


@dataclass(frozen=True, kw_only=True, slots=True)
class VocabularySettings:
    """Which words of a text get a vector, under ``tokenizer.`` in run.toml."""

    kind: str = "word"
    """word: vectors are for whole words."""
    split: str = "letters"
    """How text is split: letters (letters and digits with apostrophes between) or space (at white space)."""
    lowercase: bool = True
    """Convert text to lower case."""
    min_count: int = 5
    """Rarer words get no vector and are left out."""
    vocabulary: int = 0
    """The most words, by frequency; 0 means all. Their number is written back here."""

    def __post_init__(self) -> None:
        check(self, "kind", self.kind == "word" or "/" in self.kind, "word")
        check(self, "split", self.split in ("letters", "space"), "letters or space")
        check(self, "min_count", self.min_count >= 1, "at least 1")
        check(self, "vocabulary", self.vocabulary >= 0, "0 or more")


def load_vocabulary(settings: Settings, folder: RunFolder | None) -> Vocabulary | None:
    """Return the vocabulary of the run's folder, or of the file that the settings name; None if it is new."""
    path = folder.tokenizer if folder is not None and folder.tokenizer.exists() else None
    if path is None and settings.tokenizer.kind == "word":
        return None
    vocabulary = load_tokenizer(path or settings.tokenizer.kind)
    if not isinstance(vocabulary, Vocabulary):
        hint = "use --tokenizer word, or the tokenizer of a word2vec run"
        raise InputError("is no list of words", where=str(path or settings.tokenizer.kind), hint=hint)
    return vocabulary


def word2vec_loss(
    model: Any, batch: Any, state: State | None, reduction: LossReduction = LOCAL
) -> tuple[torch.Tensor, None]:
    """The loss of the compiled loops, for autograd: of a batch with vectors ``given`` and words ``wanted``."""
    exact = model.config.objective == "softmax"
    mean = (model.softmax_loss if exact else model.sampling_loss)(batch.given, batch.wanted)
    return reduction.scale_mean(mean, len(batch.wanted)), None


def training_notes(settings: Settings, model: Word2Vec, resumed: bool) -> list[str]:
    """Return what users should know before training starts."""
    notes, threads, size = [], settings.train.threads, model.config.vocabulary
    if threads > 1 and resumed:
        notes.append(f"{threads} threads resume, but the result differs slightly from an uninterrupted run")
    elif threads > 1:
        notes.append(f"{threads} threads are fast, but never give the same twice; --set train.threads=1 does")
    if model.config.objective == "softmax" and size > LARGE:
        notes.append(f"the exact softmax over {size:,} words is slow; --set objective=negative is not")
    return notes


class WordTask(Task):
    """Train a vector for each word."""

    name = "words"
    data = "the words of a text"
    settings = {"train": WordTrainSettings, "data": WordSettings, "tokenizer": VocabularySettings}
    run = "ensue.runs.words:WordRun"
    short_evaluation = "train.threads=1"  # several threads never give the same weights twice

    def read_corpus(self, settings: Settings, folder: RunFolder | None, report: Report) -> WordText:
        """Read the text as words."""
        check_text(settings.data.files)
        report("phase", {"name": "reading words"})
        tokens = settings.tokenizer
        notes: list[str] = []
        corpus = read_word_text(
            list(settings.data.files),
            known=load_vocabulary(settings, folder),
            split=tokens.split,
            lowercase=tokens.lowercase,
            unit=settings.data.unit,
            min_count=tokens.min_count,
            most=tokens.vocabulary,
            field=settings.data.field or None,
            notes=notes,
        )
        report_notes(notes, "and {} more files were skipped", report)
        return corpus

    def describe_corpus(self, corpus: WordText) -> dict[str, Any]:
        """Return the number of words and bytes."""
        return {
            "tokenizer": "word",
            "vocabulary": corpus.vocabulary.size,
            "train_tokens": corpus.total,
            "passed_over": corpus.total - int(corpus.counts.sum()),
            "train_bytes": corpus.bytes,
        }

    def model_settings(self, settings: Settings, corpus: WordText) -> dict[str, Any]:
        """Return the size of the vocabulary, which has no end token."""
        return {"vocabulary": corpus.vocabulary.size}

    def complete_settings(self, settings: Settings, model: Word2Vec, corpus: WordText) -> Settings:
        """Fill in the learning rate, the number of threads and the size of the vocabulary."""
        if check_device(settings.run.device) != "cpu" and settings.run.device != "auto":
            raise InputError("word2vec is trained on the CPU", hint="leave out --device")
        if settings.run.compile:
            raise InputError("the loops of word2vec are compiled already", hint="leave out --compile")
        train = settings.train
        threads = 1 if len(corpus.words) * train.epochs < SHORT else torch.get_num_threads()
        return replace(
            settings,
            run=replace(settings.run, device="cpu"),
            train=replace(train, lr=train.lr or RATES[model.config.mode], threads=train.threads or threads),
            tokenizer=replace(settings.tokenizer, vocabulary=corpus.vocabulary.size),
        )

    def batches(self, settings: Settings, model: Word2Vec, corpus: WordText) -> Word2VecTrainer:
        """Return the trainer: it reads the text in chunks."""
        train = settings.train
        return Word2VecTrainer(
            model,
            corpus.words,
            corpus.counts,
            lr=train.lr,
            floor=train.floor,
            subsample=train.subsample,
            dynamic=train.dynamic,
            threads=train.threads,
            seed=derive(settings.run.seed, "data"),
        )

    def objective(self, settings: Settings, model: Word2Vec, corpus: WordText) -> Objective:
        """Return the loss for autograd."""
        return word2vec_loss

    def train(
        self, folder: RunFolder, settings: Settings, corpus: WordText, trainer: Word2VecTrainer, report: Report
    ) -> tuple[Word2Vec, Settings, Outcome]:
        """Train with compiled loops; run.toml has the number of steps before the first one.

        A budget stays in run.toml until the speed is known and it has become a plan.
        """
        model, checkpoints = trainer.model, Checkpoints(folder.checkpoints)
        model.counts.copy_(torch.from_numpy(corpus.counts))
        latest = checkpoints.latest()
        checkpoints.notes.clear()  # the loop finds the same and reports it
        for text in training_notes(settings, model, latest is not None):
            report("note", {"text": text})
        report("phase", {"name": "training word2vec"})
        train, pace = settings.train, None
        if latest is None:
            train, pace = plan_word2vec(trainer, train)

        def planned(plan: Plan) -> Settings:
            return replace(settings, train=plan.settings(replace(train, budget=0.0)))

        def record_plan(plan: Plan) -> None:
            folder.write_settings(planned(plan).toml())

        folder.write_settings(replace(settings, train=replace(train, budget=train.budget if pace else 0.0)).toml())
        metrics = Metrics(folder.path, latest.step if latest else 0)
        try:
            outcome, plan = train_word2vec(trainer, train, checkpoints, metrics, report, pace, record_plan)
        finally:
            metrics.close()
        if pace is not None and outcome.stopped == "finished":
            record_plan(plan)  # also if the speed was never known
        return model, planned(plan), outcome


TASK = WordTask()
