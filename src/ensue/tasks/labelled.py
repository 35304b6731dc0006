"""Training to label: examples in, a model that answers about texts out. What all tasks that label share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ensue.core.errors import InputError
from ensue.core.events import Report, report_notes
from ensue.core.run_folder import RunFolder
from ensue.core.seeds import derive
from ensue.core.settings import check, check_below_one, describe
from ensue.core.wording import counted
from ensue.data.labelled import ReadOptions
from ensue.data.labelled_rows import LabelledRows, RowBatches
from ensue.data.splitting import evenly_spaced, evenly_spaced_groups
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.models.features import FeatureConfig
from ensue.models.labelled import HeadConfig, Labelled
from ensue.models.laws import Finding, labelled_laws, laws_of
from ensue.models.table import SYSTEMS
from ensue.nn.adapters import adapt, adaptable, merge
from ensue.tasks.backbones import body_for
from ensue.tasks.example_encoding import form_of
from ensue.tasks.features import Remembered, check_reads, features_for
from ensue.tasks.label_kind import Form, LabelKind, Written
from ensue.tasks.labeller import Labeller, logits_of, tell_cut
from ensue.tasks.machine import fill_common
from ensue.tasks.masked_modelling import MarkedTokenizerSettings
from ensue.tasks.recipes import Recipe
from ensue.tasks.settings import Settings
from ensue.tasks.spec import Measure, RaceSpec, TaskSpec, TrainingOptions, model_shape
from ensue.train.label_objectives import LabelLoss
from ensue.train.layer_unfreezing import LayerUnfreezing
from ensue.train.objectives import Objective
from ensue.train.ranks import SINGLE, Evaluate, Ranks
from ensue.train.settings import LabelTrainSettings

MOST_HELD_OUT = 2000
MOST_EVAL_EXAMPLES = 2000
"""Examples that an evaluation during training reads, where no setting says."""
READERS = ("bert", "roberta", "gpt", "lstm", "gru", "gru-cho", "rnn", "ulmfit", "cove")
"""Systems that can be the backbone of a labelling model: each hidden state has read the token at its position."""
FINE_TUNING: dict[str, Any] = {
    "train.epochs": 3.0,
    "train.lr": 1e-4,
    "train.schedule": "one-cycle",
    "train.warmup": 0.1,
    "train.floor": 0.0,
    "train.beta2": 0.999,
}
"""How a pre-trained model is fine-tuned, unless its preset says otherwise."""
FROM_SCRATCH: dict[str, Any] = {**FINE_TUNING, "train.epochs": 5.0, "train.lr": 1e-3, "train.floor": 0.05}
"""How a model with random weights is trained."""
TUNED_WIDTH = 384
"""The hidden size that the learning rate of ``FINE_TUNING`` is for; see ``tuning_rate``."""
BATCH_TOKENS, MOST_BATCH_TOKENS = 1000, 8000
"""Tokens in a batch where the settings leave it to us: as few as a batch has, and as many."""
FEWEST_EXAMPLES = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelSettings:
    """Where labelled examples come from, under ``data.`` in run.toml."""

    files: tuple[str, ...] = ()
    """The examples to learn from: tables, JSONL, CoNLL columns or SQuAD JSON, as the task has them."""
    valid: tuple[str, ...] = ()
    """The examples to validate with; where there are none, some are held out."""
    columns: str = ""
    """Which columns or fields are meant, e.g. text=2,label=1; empty means as they are found."""
    holdout: float = 0.1
    """The share of the examples that is held out where there are none to validate with (at most 2,000); 0: none."""
    bad_lines: str = "error"
    """What a line with too few columns is, or where one is scored an unknown label: an error, or left out with a
    note (skip)."""
    limit: int = 0
    """Learn from at most so many examples, drawn evenly over the labels; 0 means all."""
    labels: tuple[str, ...] = ()
    """The labels in their order; empty means those of the examples, in the order of the alphabet or of numbers."""
    length: int = 0
    """The most tokens of a row, marks included; longer texts are cut. 0 means the model's context, at most 256."""
    stride: int = 0
    """How many tokens the windows of a long passage have in common (answer); 0 means a third of the length."""
    eval_examples: int = 0
    """How many validation examples are looked at during training; 0 means 2,000, or fewer where the budget is short."""
    hash: str = ""
    """Of the tokens trained on; a resumed run must find the same."""

    def __post_init__(self) -> None:
        check_below_one(self, "holdout")
        check(self, "bad_lines", self.bad_lines in ("error", "skip"), "error or skip")
        for name in ("limit", "length", "stride", "eval_examples"):
            check(self, name, getattr(self, name) >= 0, "0 or more")
        check(self, "labels", len(set(self.labels)) == len(self.labels), "different from each other")


@dataclass(frozen=True, kw_only=True, slots=True)
class DistilSettings:
    """How a student learns from its teacher, under ``distil.`` in run.toml."""

    files: tuple[str, ...] = ()
    """The texts that the teacher answers about: one a line, or tables whose labels are not looked at."""
    columns: str = ""
    """Which of their columns or fields are meant, e.g. text=2; empty means as they are found."""
    temperature: float = 2.0
    """What logits are divided by before they become probabilities: above 1, unlikely labels count for more."""
    labels: float = 0.5
    """The weight of the usual loss, beside that of the teacher's answers, for examples that have a label."""
    hidden: float = 0.0
    """The weight of the difference between hidden states, an encoder's from those of another; 0 means none."""

    def __post_init__(self) -> None:
        check(self, "temperature", 0 < self.temperature < float("inf"), "above 0")
        for name in ("labels", "hidden"):
            check(self, name, 0 <= getattr(self, name) < float("inf"), "0 or more")


@dataclass(frozen=True)
class Corpus:
    """Examples to learn from and some to validate with, as rows of tokens."""

    form: Form
    examples: list[Any]
    train: Written
    valid_examples: list[Any]
    valid: Written | None

    @property
    def tokenizer(self) -> Tokenizer:
        """What made the tokens."""
        return self.form.tokenizer

    @property
    def remembered(self) -> Remembered:
        """Both, for features that read them once."""
        return Remembered((self.train.rows, *((self.valid.rows,) if self.valid else ())))

    @property
    def hash(self) -> str:
        """Of both as rows."""
        return self.train.rows.hash[:32] + (self.valid.rows.hash[:32] if self.valid else "")


@dataclass(frozen=True)
class LabelTask:
    """A task that labels, as ``fit`` wants it."""

    kind: LabelKind

    def record(self, race: RaceSpec | None) -> TaskSpec:
        """The record of the task."""
        return TaskSpec(
            name=self.kind.name,
            data="labelled examples",
            settings={
                "train": LabelTrainSettings,
                "data": LabelSettings,
                "tokenizer": MarkedTokenizerSettings,
                "head": HeadConfig,
                "features": FeatureConfig,
                "distil": DistilSettings,
            },
            run="ensue.runs.labelled:LabelRun",
            accepts=READERS,
            default_system="bert",
            example_file="train.tsv",
            preset=self.preset,
            tuning_rate=tuning_rate,
            shorten=shorten,
            read_corpus=self.read_corpus,
            prepare_corpus=self.prepare_corpus,
            describe_corpus=self.describe_corpus,
            add_head=self.add_head,
            complete_settings=self.complete_settings,
            batches=self.batches,
            objective=self.objective,
            evaluator=self.evaluator,
            options=self.options,
            prepare_model=self.prepare_model,
            finish_model=self.finish_model,
            final_figures=self.final_figures,
            laws=laws,
            short_evaluation="data.eval_examples=50",
            race=race,
            student="ensue.tasks.distillation:student",
            kind=self.kind,
        )

    def preset(self, preset: Mapping[str, Any], recipe: Recipe | None, initialised: bool) -> dict[str, Any]:
        """The model's shape and, without weights to start from, its tokenizer; training is the task's own."""
        shape = model_shape(preset, recipe, initialised)
        if not initialised and "tokenizer.kind" in preset:
            shape["tokenizer.kind"] = preset["tokenizer.kind"]
        whole = self.kind.head in ("whole", "choice")
        own = recipe.labels(whole, initialised) if recipe else {}
        return shape | (FINE_TUNING if initialised else FROM_SCRATCH) | own

    def prepare_corpus(self, settings: Settings, corpus: Corpus, folder: RunFolder, report: Report) -> None:
        """Nothing takes long; a teacher does."""

    def read_corpus(self, settings: Settings, folder: RunFolder | None, report: Report) -> Corpus:
        """The run's examples as rows, by the tokenizer in its folder where there is one already."""
        report("phase", {"name": "reading the examples"})
        train, valid, labels = self._examples(settings, report)
        form = form_of(settings, folder, labels, train, report)
        report("phase", {"name": "tokenising the examples"})
        rows = self.kind.write(train, form)
        held = self.kind.write(valid, form) if valid else None
        tell_cut([rows, *([held] if held else [])], form, report)
        return Corpus(form, train, rows, valid, held)

    def _examples(self, settings: Settings, report: Report) -> tuple[list[Any], list[Any], tuple[str, ...]]:
        """What to learn from, what to validate with, and the labels there are before anything is held out."""
        data = settings.data
        notes: list[str] = []
        how = ReadOptions(data.columns, skip_short=data.bad_lines == "skip")
        train = self.kind.read(data.files, how, notes) if data.files else []
        valid = self.kind.read(data.valid, replace(how, for_training=False), notes) if data.valid else []
        labels = data.labels or (self.kind.labels(train) if train else ())
        if how.skip_short:
            valid = with_known_labels(self.kind, valid, labels, notes)
        report_notes(notes, "and {} more notes", report)
        if not valid and data.holdout and len(train) > 1:
            chosen = evenly_spaced_groups(self.kind.together(train), min(data.holdout, MOST_HELD_OUT / len(train)))
            out = set(chosen)
            valid = [train[place] for place in chosen]
            train = [one for place, one in enumerate(train) if place not in out]
        if 0 < data.limit < len(train):
            seed = derive(settings.run.seed, "limit")
            train = [train[place] for place in drawn(self.kind.strata(train), data.limit, seed)]
        return train, valid, labels

    def add_head(self, settings: Settings, model: Any, corpus: Corpus) -> Labelled:
        """The system's body with a head for this task; a number's head begins near the numbers."""
        labels = corpus.form.labels
        head = replace(settings.head, outputs=self.kind.outputs(labels), kind=self.kind.head)
        check_reads(settings.run.system, settings.features)
        body = body_for(model, head, features_for(settings.features), self._reads_on(settings))
        made = Labelled(body, head, corpus.train.rows.rows_per_example)
        made.reach = settings.train.reach
        if self.kind.loss == "number":
            with torch.no_grad():
                made.out.bias.fill_(self._centre(corpus))
        return made

    def _reads_on(self, settings: Settings) -> bool:
        """Whether it must read as a language model does: because it begins with one, or goes on being one."""
        return bool(settings.run.begin_with or settings.train.language)

    def _centre(self, corpus: Corpus) -> float:
        """The mean of the numbers."""
        return float(corpus.train.rows.targets.mean())

    def complete_settings(self, settings: Settings, model: Labelled, corpus: Corpus) -> Settings:
        """The settings with everything that was left to us filled in."""
        train, data = settings.train, settings.data
        if train.adapters and (train.freeze or train.layer_decay < 1):
            raise InputError("adapters leave the body as it is", hint="leave out train.freeze and train.layer_decay")
        if train.adapters and not adaptable(model.body, _beside_head):
            what = f"{settings.run.system} has no layers for adapters"
            raise InputError(what, hint="leave out train.adapters, or use bert, roberta or gpt")
        if train.reach and getattr(model.body, "cuts", "") != "streams":
            what = f"train.reach is for a state that is carried on, which {settings.run.system} has not"
            raise InputError(what, hint="leave it out, or use lstm, gru or rnn")
        labels = corpus.form.labels if self.kind.loss == "label" else ()
        filled = replace(
            settings,
            train=replace(train, batch_tokens=batch_tokens(train, corpus.train.rows)),
            data=replace(data, length=corpus.form.length, labels=labels),
            head=model.config,
        )
        return fill_common(filled, corpus.tokenizer)

    def batches(self, settings: Settings, model: Labelled, corpus: Corpus) -> RowBatches:
        """The rows as batches of similar lengths."""
        rows = corpus.train.rows
        return RowBatches(rows, batch_tokens(settings.train, rows), derive(settings.run.seed, "data"))

    def objective(self, settings: Settings, model: Labelled, corpus: Corpus) -> Objective:
        """What training asks of the model."""
        asked = self._label(settings, model, corpus, corpus.train.rows.targets)
        return asked if settings.features is None else corpus.remembered.before(asked)

    def _label(self, settings: Settings, model: Labelled, corpus: Corpus, targets: np.ndarray) -> LabelLoss:
        """The loss of labels; ``targets`` are those to learn from."""
        train = settings.train
        if train.language and not hasattr(model.body, "head"):
            what = f"train.language asks for the next token, which {settings.run.system} does not say"
            raise InputError(what, hint="use gpt or lstm, or leave it out")
        weights = None
        if train.class_weights == "balanced":
            asked = targets[targets >= 0]
            if self.kind.loss != "label" or self.kind.head == "choice" or not len(asked):
                raise InputError(f"{self.kind.name} has no labels to balance", hint="use train.class_weights=none")
            counts = np.bincount(asked, minlength=len(corpus.form.labels))
            weights = torch.tensor(counts.sum() / (len(counts) * np.maximum(counts, 1)), dtype=torch.float32)
        return LabelLoss(self.kind.loss, weights, train.label_smoothing, train.language)

    def options(self, settings: Settings, model: Labelled, corpus: Corpus) -> TrainingOptions:
        """Which layers train, and how fast; the task's measure chooses the weights."""
        train, depths = settings.train, model.depths()
        top = max(depths.values())
        if train.unfreeze and not train.freeze and not train.adapters:
            raise InputError("train.unfreeze lets go of frozen layers, and none is", hint="set train.freeze too")
        frozen = top if train.freeze < 0 else min(train.freeze, top)
        if train.adapters or (not frozen and train.layer_decay == 1.0):
            return TrainingOptions(None, self.kind.chosen_by)
        rows = corpus.train.rows
        steps = RowBatches(rows, batch_tokens(train, rows)).steps_per_epoch
        every = max(1, round(train.unfreeze * steps / train.accumulate)) if train.unfreeze else 0
        return TrainingOptions(LayerUnfreezing(depths, train.layer_decay, frozen, every), self.kind.chosen_by)

    def prepare_model(self, settings: Settings, model: Labelled, corpus: Corpus) -> None:
        """Put in adapters, and freeze what they stand beside."""
        if settings.train.adapters:
            adapt(model.body, settings.train.adapters, settings.train.adapters_alpha, _beside_head)

    def finish_model(self, model: Labelled) -> Labelled:
        """Adapters merged into the weights they stand beside, and nothing frozen."""
        merge(model)
        model.requires_grad_(True)
        return model

    def evaluator(self, settings: Settings, model: Labelled, corpus: Corpus) -> Evaluate | None:
        """What the loop calls to see how the model does on held-out examples."""
        if corpus.valid is None:
            return None
        examples, written = corpus.valid_examples, corpus.valid
        most = settings.data.eval_examples or MOST_EVAL_EXAMPLES
        if len(examples) > most:
            examples = [examples[place] for place in evenly_spaced(len(examples), most / len(examples))]
            written = self.kind.write(examples, corpus.form)
        loss = LabelLoss(self.kind.loss)

        def evaluate(stop: Callable[[], bool], ranks: Ranks = SINGLE) -> dict[str, float]:  # all read all
            corpus.remembered.fill(model)
            logits = logits_of(model, written.rows, stop=stop)
            answers = self.kind.answers(examples, written, logits, corpus.form)
            figures = self.kind.score(examples, answers, corpus.form.labels)
            return {"valid_loss": mean_loss(loss, written, logits), self.kind.chosen_by: figures[self.kind.chosen_by]}

        return evaluate

    def final_figures(
        self, settings: Settings, model: Labelled, corpus: Corpus, folder: RunFolder, report: Report
    ) -> dict[str, Any] | None:
        """How the finished model does on all of the held-out examples."""
        if corpus.valid is None:
            return None
        report("phase", {"name": "scoring the validation examples"})
        figures, _ = Labeller(model, self.kind, corpus.form).score(corpus.valid_examples, report)
        report("result", {self.kind.chosen_by: figures[self.kind.chosen_by]})
        return figures

    def describe_corpus(self, corpus: Corpus) -> dict[str, Any]:
        """Facts of the examples for the model card."""
        return {
            "tokenizer": corpus.tokenizer.kind,
            "vocabulary": corpus.tokenizer.size,
            "train_examples": len(corpus.examples),
            "train_tokens": len(corpus.train.rows.tokens),
            "valid_examples": len(corpus.valid_examples),
            "labels": list(corpus.form.labels),
            "length": corpus.form.length,
            "stride": corpus.form.stride,
            "choices": corpus.train.rows.rows_per_example,
            "texts": len(getattr(corpus.examples[0], "texts", ())),
        }


def label_task(kind: LabelKind, *measures: Measure) -> TaskSpec:
    """The record of a task that labels; the first measure ranks a race."""

    def shared_settings(corpus: Corpus) -> dict[str, Any]:
        """Rows of the same length, and all labels, which a small share of the examples may lack."""
        same: dict[str, Any] = {"data.length": corpus.form.length}
        return {**same, "data.labels": corpus.form.labels} if kind.loss == "label" else same

    race = RaceSpec(
        name=kind.name,
        measures=measures,
        systems=("bert", "lstm", "gpt"),
        between="between systems that label",
        facts=race_facts,
        shared_settings=shared_settings,
    )
    return LabelTask(kind).record(race)


def race_facts(corpus: Corpus, facts: dict[str, Any]) -> dict[str, Any]:
    """The description of a corpus; its labels are the classes, since race.json counts labelled examples as labels."""
    classes = facts.pop("labels")
    return {**facts, "classes": classes}


def laws(model: Any) -> Iterator[Finding]:
    """The laws of a model with a head, or of a system without one."""
    return labelled_laws(model) if isinstance(model, Labelled) else laws_of(model)


def shorten(data: LabelSettings, share: float) -> LabelSettings:
    """Evaluations of fewer examples if the budget is short."""
    if data.eval_examples or share == 1:
        return data
    return replace(data, eval_examples=max(100, int(MOST_EVAL_EXAMPLES * share)))


def tuning_rate(system: str, flat: Mapping[str, Any]) -> float:
    """The learning rate for a pre-trained model; a Transformer's is inversely proportional to its width.

    Adam moves every weight by about the rate, so the change of a sum over D inputs grows with D. For the 768 of
    BERT-base this gives 5e-5, the value of its paper.
    """
    rate = float(flat["train.lr"])
    defaults = {field.name: field.default for field in describe(SYSTEMS.load(system).Config)}
    width = flat.get("hidden", defaults.get("hidden"))
    if "heads" not in defaults or not isinstance(width, int) or width < 1:  # an invalid width is refused later
        return rate
    return float(f"{rate * TUNED_WIDTH / width:.2g}")


def with_known_labels(kind: LabelKind, examples: list[Any], labels: Sequence[str], notes: list[str]) -> list[Any]:
    """Those examples whose labels are among some; ``notes`` learns how many are not."""
    known = set(labels)
    kept = [one for one in examples if known.issuperset(kind.labels([one]))]
    if len(kept) < len(examples):
        first = next(one for one in examples if not known.issuperset(kind.labels([one])))
        out = counted(len(examples) - len(kept), "example")
        notes.append(f"left out {out} with a label that is not known (first: {first.where})")
    return kept


def batch_tokens(train: LabelTrainSettings, rows: LabelledRows) -> int:
    """How many tokens a batch has: what the settings say, or room for enough examples that their mean says something.

    1,000 tokens are seventy short sentences, and four reviews of films: from four, training hardly gets away.
    """
    room = FEWEST_EXAMPLES * float(rows.lengths.mean()) * rows.rows_per_example if len(rows) else 0.0
    return train.batch_tokens or int(min(max(BATCH_TOKENS, room), MOST_BATCH_TOKENS))


def _beside_head(name: str) -> bool:
    """Whether a layer of a body is none of its output layers."""
    return "head" not in name


def drawn(strata: Sequence[Any], count: int, seed: int) -> list[int]:
    """So many places by chance, each stratum's share as it is among all; more of them contain fewer.

    >>> sorted(drawn(["a"] * 6 + ["b"] * 3, 3, 0), key=int)[-1] >= 6
    True
    """
    chance = np.random.default_rng(seed % 2**64)
    order = chance.permutation(len(strata))
    seen: dict[Any, int] = {}
    sizes = {kind: list(strata).count(kind) for kind in set(strata)}
    ranks = []
    for place in order.tolist():
        seen[strata[place]] = seen.get(strata[place], 0) + 1
        ranks.append((seen[strata[place]] / (sizes[strata[place]] + 1), place))
    return [place for _, place in sorted(ranks)[:count]]


def mean_loss(loss: LabelLoss, written: Written, logits: Sequence[np.ndarray]) -> float:
    """The mean loss of answers, an example at a time."""
    rows, total, count = written.rows, 0.0, 0
    for place, one in enumerate(logits):
        at = slice(int(rows.starts[place]), int(rows.starts[place + 1]))
        target = torch.from_numpy(np.asarray(rows.targets[at] if rows.per_token else rows.targets[place : place + 1]))
        if rows.per_token and not bool((target >= 0).any()):
            continue
        z = torch.from_numpy(one)
        lengths = torch.tensor([len(one)])
        total += float(loss.of(z if rows.per_token else z[None], target, lengths))
        count += 1
    return total / max(1, count)
