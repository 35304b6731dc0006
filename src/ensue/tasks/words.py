"""Vectors of words: a text in, two vectors for each of its words out.

It joins the reader of words, word2vec, its loops, and the training that changes weights in place. There is nothing to
hold out: how good vectors are, ``ensue words similarity`` and ``ensue words analogies`` say.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from ensue.core.errors import InputError
from ensue.core.events import Report, report_notes
from ensue.core.files import write_text
from ensue.core.run_folder import RunFolder
from ensue.core.seeds import derive
from ensue.core.settings import check
from ensue.data.tokenizers.registry import load_tokenizer, save_tokenizer
from ensue.data.tokenizers.vocabulary import Vocabulary
from ensue.data.word_text import WordText, read_word_text
from ensue.models.word2vec import Word2Vec
from ensue.models.word2vec_training import Learning, Word2VecTrainer
from ensue.nn.state import State
from ensue.tasks.language_modelling import check_text
from ensue.tasks.machine import check_device
from ensue.tasks.settings import Settings
from ensue.tasks.spec import TaskSpec
from ensue.train.checkpoints import Checkpoints
from ensue.train.loss_reduction import LOCAL, LossReduction
from ensue.train.metrics import Metrics
from ensue.train.objectives import Objective
from ensue.train.settings import WordTrainSettings
from ensue.train.training import Outcome
from ensue.train.word2vec_loop import plan_word2vec, train_word2vec

RATES = {"skipgram": 0.025, "cbow": 0.075}
"""The learning rate of each mode; CBOW's steps are shared among the words of a window (İrsoy et al., 2021)."""
SHORT = 10_000_000
"""Words, epochs counted, that one thread goes through in seconds; more than that are given all threads."""
LARGE = 20_000
"""A vocabulary that is large for the exact softmax."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WordSettings:
    """Where the text that words are learnt from comes from, under ``data.`` in run.toml."""

    files: tuple[str, ...] = ()
    """The text to learn from: files, folders, - for standard input, or a built-in corpus."""
    field: str = ""
    """Which field of a JSONL file holds the text; empty means text."""
    unit: str = "line"
    """What a window never reaches out of: a line, or a paragraph (between blank lines)."""
    hash: str = ""
    """Of the words trained on; a resumed run must find the same."""

    def __post_init__(self) -> None:
        check(self, "unit", self.unit in ("line", "paragraph"), "line or paragraph")


@dataclass(frozen=True, kw_only=True, slots=True)
class VocabularySettings:
    """Which words of a text get a vector, under ``tokenizer.`` in run.toml."""

    kind: str = "word"
    """word; vectors are for whole words."""
    split: str = "letters"
    """What a word is: letters and digits with apostrophes between (letters), or what stands between white space
    (space)."""
    lowercase: bool = True
    """Whether capitals are read as small letters."""
    min_count: int = 5
    """Words that occur less often get no vector and are passed over."""
    vocabulary: int = 0
    """At most so many words, the commonest; 0 means all. What there was is written back here."""

    def __post_init__(self) -> None:
        check(self, "kind", self.kind == "word" or "/" in self.kind, "word")
        check(self, "split", self.split in ("letters", "space"), "letters or space")
        check(self, "min_count", self.min_count >= 1, "at least 1")
        check(self, "vocabulary", self.vocabulary >= 0, "0 or more")


def read_corpus(settings: Settings, folder: RunFolder | None, report: Report) -> WordText:
    """The run's text as words; the vocabulary is the folder's where it has one already."""
    check_text(settings.data.files)
    report("phase", {"name": "reading words"})
    kind, notes = settings.tokenizer, []  # type: ignore[var-annotated]
    corpus = read_word_text(
        list(settings.data.files),
        known=known_words(settings, folder),
        split=kind.split,
        lowercase=kind.lowercase,
        unit=settings.data.unit,
        min_count=kind.min_count,
        most=kind.vocabulary,
        field=settings.data.field or None,
        notes=notes,
    )
    report_notes(notes, "and {} more files were skipped", report)
    return corpus


def known_words(settings: Settings, folder: RunFolder | None) -> Vocabulary | None:
    """The words of the run that goes on, or of the one it begins with; or of a file of them."""
    path = folder.tokenizer if folder is not None and folder.tokenizer.exists() else None
    if path is None and settings.tokenizer.kind == "word":
        return None
    found = load_tokenizer(path or settings.tokenizer.kind)
    if not isinstance(found, Vocabulary):
        hint = "use --tokenizer word, or the tokenizer of a word2vec run"
        raise InputError("is no list of words", where=str(path or settings.tokenizer.kind), hint=hint)
    return found


def save_tokenizers(corpus: WordText, folder: RunFolder) -> None:
    """Write the words into a run's folder."""
    save_tokenizer(corpus.vocabulary, folder.tokenizer)


def model_settings(settings: Settings, corpus: WordText) -> dict[str, Any]:
    """What the text says of a model."""
    return {"vocabulary": corpus.vocabulary.size}


def complete_settings(settings: Settings, model: Word2Vec, corpus: WordText) -> Settings:
    """The settings with everything that was left to us filled in, so that run.toml hides nothing."""
    if check_device(settings.run.device) != "cpu" and settings.run.device != "auto":
        raise InputError("word2vec is trained on the CPU", hint="leave out --device")
    if settings.run.compile:
        raise InputError("the loops of word2vec are compiled already", hint="leave out --compile")
    train = settings.train
    length = len(corpus.words) * train.epochs
    return replace(
        settings,
        run=replace(settings.run, device="cpu"),
        train=replace(
            train,
            lr=train.lr or RATES[model.config.mode],
            threads=train.threads or (1 if length < SHORT else torch.get_num_threads()),
        ),
        tokenizer=replace(settings.tokenizer, vocabulary=corpus.vocabulary.size),
    )


def batches(settings: Settings, model: Word2Vec, corpus: WordText) -> Word2VecTrainer:
    """The text as stretches, each a function of its number."""
    train = settings.train
    how = Learning(
        lr=train.lr,
        floor=train.floor,
        subsample=train.subsample,
        dynamic=train.dynamic,
        threads=train.threads,
        seed=derive(settings.run.seed, "data"),
    )
    return Word2VecTrainer(model, corpus.words, corpus.counts, how)


def objective(settings: Settings, model: Word2Vec, corpus: WordText) -> Objective:
    """What the loops go down, for autograd: of a batch with vectors ``given`` and words ``wanted``."""

    def loss(
        model: Any, batch: Any, state: State | None, reduction: LossReduction = LOCAL
    ) -> tuple[torch.Tensor, None]:
        exact = model.config.objective == "softmax"
        mean = (model.softmax_loss if exact else model.sampling_loss)(batch.given, batch.wanted)
        return reduction.scale_mean(mean, len(batch.wanted)), None

    return loss


def train(
    folder: RunFolder, settings: Settings, corpus: WordText, learner: Word2VecTrainer, report: Report
) -> tuple[Word2Vec, Settings, Outcome]:
    """Train with the loops; the plan is written to run.toml before the first step."""
    model, checkpoints = learner.model, Checkpoints(folder.checkpoints)
    model.counts.copy_(torch.from_numpy(corpus.counts))
    latest = checkpoints.latest()
    checkpoints.notes.clear()  # the loop finds the same and says so
    for text in remarks(settings, model, latest is not None):
        report("note", {"text": text})
    report("phase", {"name": "training word2vec"})
    budget = settings.train.budget
    if latest is None:
        settings = replace(settings, train=plan_word2vec(learner, settings.train, report))
    settings = replace(settings, train=replace(settings.train, budget=0.0))  # it has become a number of steps
    write_text(folder.settings, settings.toml())
    metrics = Metrics(folder.path, latest.step if latest else 0)
    try:
        outcome = train_word2vec(learner, replace(settings.train, budget=budget), checkpoints, metrics, report)
    finally:
        metrics.close()
    return model, settings, outcome


def remarks(settings: Settings, model: Word2Vec, resumed: bool) -> list[str]:
    """What people should know before it begins."""
    found, threads, size = [], settings.train.threads, model.config.vocabulary
    if threads > 1 and resumed:
        found.append(f"{threads} threads go on from here, but not to the bit as they would have without a break")
    elif threads > 1:
        found.append(f"{threads} threads are fast, but never give the same twice; --set train.threads=1 does")
    if model.config.objective == "softmax" and size > LARGE:
        found.append(f"the exact softmax over {size:,} words is slow; --set objective=negative is not")
    return found


def describe_corpus(corpus: WordText) -> dict[str, Any]:
    """Facts of the text for the model card."""
    return {
        "tokenizer": "word",
        "vocabulary": corpus.vocabulary.size,
        "train_tokens": corpus.total,
        "passed_over": corpus.total - int(corpus.counts.sum()),
        "train_bytes": corpus.bytes,
    }


TASK = TaskSpec(
    name="words",
    data="the words of a text",
    settings={"train": WordTrainSettings, "data": WordSettings, "tokenizer": VocabularySettings},
    run="ensue.runs.words:WordRun",
    read_corpus=read_corpus,
    save_tokenizers=save_tokenizers,
    describe_corpus=describe_corpus,
    model_settings=model_settings,
    complete_settings=complete_settings,
    batches=batches,
    objective=objective,
    train=train,
    short_evaluation="train.threads=1",  # several threads never give the same weights twice
)
