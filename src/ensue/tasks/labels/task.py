"""What all labelling tasks share: from labelled examples to a model that labels texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ensue.core.errors import InputError
from ensue.core.events import Report, abandon_when, report_notes
from ensue.core.run_folder import RunFolder
from ensue.core.schema import Items, Maybe, Number, Text, Whole
from ensue.core.seeds import derive
from ensue.core.settings import check, describe
from ensue.core.table import load_target
from ensue.core.wording import counted
from ensue.data.labelled import ReadOptions
from ensue.data.labelled_rows import LabelledRows, RowBatches
from ensue.data.splitting import evenly_spaced, evenly_spaced_groups, split_at
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.models.backbones import build_body
from ensue.models.features import FeatureConfig
from ensue.models.labelled import HeadConfig, Labelled
from ensue.models.laws import Finding, labelled_laws, laws_of
from ensue.models.table import SYSTEMS
from ensue.nn.adapters import adapt, adaptable, merge
from ensue.tasks.labels.encoding import fit_encoding
from ensue.tasks.labels.features import FeatureCache, build_features, check_cove
from ensue.tasks.labels.kind import EncodedExamples, ExampleEncoding, LabelKind
from ensue.tasks.labels.labeller import Labeller, compute_logits, report_cut
from ensue.tasks.masked_modelling import EncoderTokenizerSettings
from ensue.tasks.recipes import Recipe
from ensue.tasks.settings import DataSettings, Settings
from ensue.tasks.spec import Measure, RaceSpec, Task, TrainingOptions, model_shape
from ensue.train.label_objectives import LabelLoss
from ensue.train.layer_unfreezing import LayerUnfreezing
from ensue.train.objectives import Objective
from ensue.train.ranks import SINGLE, Evaluate, Ranks
from ensue.train.settings import LabelTrainSettings

MOST_HELD_OUT = 2000
MOST_EVAL_EXAMPLES = 2000
"""Examples of an evaluation during training, where no setting says."""
BACKBONES = (
    *("bert", "roberta", "albert", "electra", "deberta"),
    *("gpt", "lstm", "gru", "gru-cho", "rnn", "ulmfit", "cove"),
)
"""Systems that can be the body of a labelling model: each hidden state has read the token at its position."""
FINE_TUNING: dict[str, Any] = {
    "train.epochs": 3.0,
    "train.lr": 1e-4,
    "train.schedule": "one-cycle",
    "train.warmup": 0.1,
    "train.floor": 0.0,
    "train.beta2": 0.999,
}
"""The settings of a pre-trained model, unless its preset says otherwise."""
FROM_SCRATCH: dict[str, Any] = {**FINE_TUNING, "train.epochs": 5.0, "train.lr": 1e-3, "train.floor": 0.05}
"""The settings of a model with random weights."""
TUNED_WIDTH = 384
"""The hidden size that the learning rate of ``FINE_TUNING`` is for; see ``LabelTask.tuning_settings``."""
BATCH_TOKENS, MOST_BATCH_TOKENS = 1000, 8000
"""The fewest and the most tokens of a batch where no setting says."""
FEWEST_EXAMPLES = 16


FEWEST_TO_COMPARE, MOST_APART = 8, 0.4
"""Fewest held-out examples whose label shares are checked, and their largest distance from those of all examples."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelSettings(DataSettings):
    """Where labelled examples come from, under ``data.`` in run.toml."""

    files: tuple[str, ...] = ()
    """The examples to learn from: tables, JSONL, CoNLL columns or SQuAD JSON, as the task has them."""
    columns: str = ""
    """Which columns or fields are used, e.g. text=2,label=1; empty means that they are inferred."""
    holdout: float = 0.1
    """The share of the examples to hold out if there are no validation files (at most 2,000); 0 means none."""
    bad_lines: str = "error"
    """What to do with a line that has too few columns, or in scoring an unknown label: error, or skip (with a note)."""
    limit: int = 0
    """The most examples to learn from, a stratified sample by label; 0 means all."""
    labels: tuple[str, ...] = ()
    """The labels in their order; empty means those of the examples, sorted alphabetically or as numbers."""
    length: int = 0
    """The most tokens of a row, with special tokens; longer texts are cut. 0 means the model's context, of a
    pre-trained model at most 256."""
    stride: int = 0
    """How many tokens the windows of a long passage have in common (answer); 0 means a third of the length."""
    eval_examples: int = 0
    """Validation examples of an evaluation during training; 0 means 2,000, or fewer if the budget is short."""

    def __post_init__(self) -> None:
        super(LabelSettings, self).__post_init__()
        for name in ("limit", "length", "stride"):
            check(self, name, getattr(self, name) >= 0, "0 or more")
        check(self, "labels", len(set(self.labels)) == len(self.labels), "different from each other")


@dataclass(frozen=True, kw_only=True, slots=True)
class DistilSettings:
    """How a student learns from its teacher, under ``distil.`` in run.toml."""

    files: tuple[str, ...] = ()
    """The texts that the teacher labels: one per line, or tables whose labels are ignored."""
    columns: str = ""
    """Which of their columns or fields are used, e.g. text=2; empty means that they are inferred."""
    temperature: float = 2.0
    """The temperature of the softmax over logits: above 1, improbable labels count for more."""
    labels: float = 0.5
    """The weight of the usual loss, beside that of the teacher's logits, for examples that have a label."""
    hidden: float = 0.0
    """The weight of the difference between the hidden states of two encoders; 0 means none."""

    def __post_init__(self) -> None:
        check(self, "temperature", 0 < self.temperature < float("inf"), "above 0")
        for name in ("labels", "hidden"):
            check(self, name, 0 <= getattr(self, name) < float("inf"), "0 or more")


@dataclass(frozen=True)
class LabelCorpus:
    """Examples to learn from and some to validate with, as rows of tokens."""

    encoding: ExampleEncoding
    examples: list[Any]
    train: EncodedExamples
    valid_examples: list[Any]
    valid: EncodedExamples | None

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the rows."""
        return self.encoding.tokenizer

    @property
    def parts(self) -> list[EncodedExamples]:
        """The training examples, and the validation examples if there are any."""
        return [self.train, self.valid] if self.valid else [self.train]

    @property
    def feature_cache(self) -> FeatureCache:
        """The cache of features of all rows."""
        return FeatureCache(tuple(part.rows for part in self.parts))

    @property
    def hash(self) -> str:
        """Hash of all rows."""
        return "".join(part.rows.hash[:32] for part in self.parts)


class LabelTask(Task):
    """A labelling task; the first measure ranks a race."""

    data = "labelled examples"
    settings = {
        "train": LabelTrainSettings,
        "data": LabelSettings,
        "tokenizer": EncoderTokenizerSettings,
        "head": HeadConfig,
        "features": FeatureConfig,
        "distil": DistilSettings,
    }
    run = "ensue.runs.labelled:LabelRun"
    accepts = BACKBONES
    default_system = "bert"
    example_file = "train.tsv"
    short_evaluation = "data.eval_examples=50"
    facts_schema = {"labels": Items(Text()), "length": Whole(1), "stride": Whole(0), "choices": Whole(1)}
    figures_schema = {"threshold": Maybe(Number())}
    kind: LabelKind
    race: RaceSpec

    def __init__(self, kind: LabelKind, *measures: Measure) -> None:
        self.kind, self.name = kind, kind.name
        self.race = RaceSpec(
            name=kind.name,
            measures=measures,
            systems=("bert", "lstm", "gpt"),
            between="between systems that label",
            facts=race_facts,
            shared_settings=self._shared_settings,
        )

    def _shared_settings(self, corpus: LabelCorpus) -> dict[str, Any]:
        """Return the length of rows, and all labels: a small share of the examples may lack some."""
        labels = {"data.labels": corpus.encoding.labels} if self.kind.loss == "label" else {}
        return {"data.length": corpus.encoding.length, **labels}

    def check_head(self, head: Mapping[str, Any] | None, data: Mapping[str, Any]) -> None:
        """Raise InputError unless a run has the head of this task, with an output for each label."""
        kind, damaged = self.kind, "the folder may be damaged"
        if head is None:
            raise InputError(f"has no head, which the task {self.name} needs", hint=damaged)
        if head.get("kind", "whole") != kind.head:
            raise InputError(f"has another head than the task {self.name}", hint=damaged)
        labels, outputs = data.get("labels") or (), head.get("outputs")
        if kind.loss == "label" and kind.head != "choice" and len(labels) != outputs:
            raise InputError(f"has {len(labels)} labels, and a head of {outputs} outputs", hint=damaged)

    def with_teacher(self) -> Task:
        """Return this task as a student learns it."""
        student: Task = load_target("ensue.tasks.labels.distillation:DistilTask")(self.kind, *self.race.measures)
        return student

    def preset(self, preset: Mapping[str, Any], recipe: Recipe | None, initialised: bool) -> dict[str, Any]:
        """Return the model's shape, its tokenizer if the weights are new, and the training settings of labelling."""
        shape = model_shape(preset)
        if not initialised and "tokenizer.kind" in preset:
            shape["tokenizer.kind"] = preset["tokenizer.kind"]
        whole = self.kind.head in ("whole", "choice")
        own = recipe.labels(whole, initialised) if recipe else {}
        return shape | (FINE_TUNING if initialised else FROM_SCRATCH) | own

    def tuning_settings(self, system: str, flat: Mapping[str, Any]) -> dict[str, Any]:
        """Return the learning rate for a pre-trained model; a Transformer's is inversely proportional to its width.

        Adam moves every weight by about the rate, so the change of a sum over D inputs grows with D. For the 768 of
        BERT-base this gives 5e-5, the value of its paper.
        """
        rate = float(flat["train.lr"])
        defaults = {field.name: field.default for field in describe(SYSTEMS.load(system).Config)}
        width = flat.get("hidden", defaults.get("hidden"))
        if "heads" not in defaults or not isinstance(width, int) or width < 1:  # an invalid width is refused later
            return {"train.lr": rate}
        return {"train.lr": float(f"{rate * TUNED_WIDTH / width:.2g}")}

    def shorten(self, data: LabelSettings, share: float) -> LabelSettings:
        """Evaluate fewer examples if the budget is short."""
        if data.eval_examples or share == 1:
            return data
        return replace(data, eval_examples=max(100, int(MOST_EVAL_EXAMPLES * share)))

    def read_corpus(self, settings: Settings, folder: RunFolder | None, report: Report) -> LabelCorpus:
        """Read the examples and encode them as rows."""
        report("phase", {"name": "reading the examples"})
        train, valid, labels = self._examples(settings, report)
        encoding = fit_encoding(self.kind, settings, folder, labels, train, report)
        report("phase", {"name": "tokenising the examples"})
        rows = self.kind.encode(train, encoding)
        corpus = LabelCorpus(encoding, train, rows, valid, self.kind.encode(valid, encoding) if valid else None)
        report_cut(corpus.parts, encoding, report)
        return corpus

    def _examples(self, settings: Settings, report: Report) -> tuple[list[Any], list[Any], tuple[str, ...]]:
        """Return training examples, validation examples, and all labels, also those of held-out examples."""
        data = settings.data
        notes: list[str] = []
        options = ReadOptions(data.columns, skip_short=data.bad_lines == "skip")
        train = self.kind.read(data.files, options, notes) if data.files else []
        valid = self.kind.read(data.valid, replace(options, for_training=False), notes) if data.valid else []
        labels = data.labels or (self.kind.labels(train) if train else ())
        if options.skip_short:
            valid = with_known_labels(self.kind, valid, labels, notes)
        report_notes(notes, "and {} more notes", report)
        if not valid and data.holdout and len(train) > 1:
            share = min(data.holdout, MOST_HELD_OUT / len(train))
            train, valid = split_at(train, held_out_examples(self.kind.groups(train), self.kind.strata(train), share))
        if 0 < data.limit < len(train):
            seed = derive(settings.run.seed, "limit")
            train = [train[i] for i in stratified_sample(self.kind.strata(train), data.limit, seed)]
        return train, valid, labels

    def add_head(self, settings: Settings, model: Any, corpus: LabelCorpus) -> Labelled:
        """Return the system's body with a head for this task; the bias of a number's head is near the numbers."""
        head = replace(settings.head, outputs=self.kind.outputs(corpus.encoding.labels), kind=self.kind.head)
        check_cove(settings.run.system, settings.features)
        one_way = bool(settings.run.begin_with or settings.train.language)  # as the language model that it is
        body = build_body(model, head, build_features(settings.features), one_way)
        labelled = Labelled(body, head, corpus.train.rows.rows_per_example)
        labelled.reach = settings.train.reach
        if self.kind.loss == "number":
            with torch.no_grad():
                labelled.out.bias.fill_(self._initial_bias(corpus))
        return labelled

    def _initial_bias(self, corpus: LabelCorpus) -> float:
        """Return the mean of the numbers."""
        return float(corpus.train.rows.targets.mean())

    def complete_settings(self, settings: Settings, model: Labelled, corpus: LabelCorpus) -> Settings:
        """Fill in the size of batches, the length of rows, the labels and the head."""
        train, data = settings.train, settings.data
        if train.lora and (train.freeze or train.layer_decay < 1):
            raise InputError("adapters leave the body as it is", hint="leave out train.freeze and train.layer_decay")
        if train.lora and not adaptable(model.body, _is_no_output):
            what = f"{settings.run.system} has no layers for adapters"
            raise InputError(what, hint="leave out train.lora, or use bert, roberta, albert, deberta or gpt")
        if train.reach and getattr(model.body, "cuts", "") != "streams":
            what = f"train.reach is for models that carry a state, which {settings.run.system} does not"
            raise InputError(what, hint="leave it out, or use lstm, gru or rnn")
        labels = corpus.encoding.labels if self.kind.loss == "label" else ()
        completed = replace(
            settings,
            train=replace(train, batch_tokens=batch_tokens(train, corpus.train.rows)),
            data=replace(data, length=corpus.encoding.length, labels=labels),
            head=model.config,
        )
        return super().complete_settings(completed, model, corpus)

    def batches(self, settings: Settings, model: Labelled, corpus: LabelCorpus) -> RowBatches:
        """Return batches of rows of similar lengths."""
        rows = corpus.train.rows
        return RowBatches(rows, batch_tokens(settings.train, rows), derive(settings.run.seed, "data"))

    def objective(self, settings: Settings, model: Labelled, corpus: LabelCorpus) -> Objective:
        """Return the loss of labels; with features its first call fills their cache."""
        loss = self._label_loss(settings, model, corpus, corpus.train.rows.targets)
        return loss if settings.features is None else corpus.feature_cache.before(loss)

    def _label_loss(self, settings: Settings, model: Labelled, corpus: LabelCorpus, targets: np.ndarray) -> LabelLoss:
        """Return the loss of labels; the class weights balance ``targets``."""
        train = settings.train
        if train.language and not hasattr(model.body, "head"):
            what = f"train.language needs the next token, which {settings.run.system} does not predict"
            raise InputError(what, hint="use gpt or lstm, or leave it out")
        weights = None
        if train.class_weights == "balanced":
            used = targets[targets >= 0]
            if self.kind.loss != "label" or self.kind.head == "choice" or not len(used):
                raise InputError(f"{self.kind.name} has no labels to balance", hint="use train.class_weights=none")
            counts = np.bincount(used, minlength=len(corpus.encoding.labels))
            weights = torch.tensor(counts.sum() / (len(counts) * np.maximum(counts, 1)), dtype=torch.float32)
        return LabelLoss(self.kind.loss, weights, train.label_smoothing, train.language)

    def options(self, settings: Settings, model: Labelled, corpus: LabelCorpus) -> TrainingOptions:
        """Return which layers train, and how fast; the task's measure chooses the weights."""
        train, depths = settings.train, model.depths()
        top = max(depths.values())
        if train.unfreeze and not train.freeze and not train.lora:
            raise InputError("train.unfreeze unfreezes frozen layers, and none is frozen", hint="set train.freeze too")
        frozen = top if train.freeze < 0 else min(train.freeze, top)
        if train.lora or (not frozen and train.layer_decay == 1.0):
            return TrainingOptions(None, self.kind.chosen_by)
        rows = corpus.train.rows
        steps = RowBatches(rows, batch_tokens(train, rows)).steps_per_epoch
        every = max(1, round(train.unfreeze * steps / train.accumulate)) if train.unfreeze else 0
        return TrainingOptions(LayerUnfreezing(depths, train.layer_decay, frozen, every), self.kind.chosen_by)

    def prepare_model(self, settings: Settings, model: Labelled, corpus: LabelCorpus) -> None:
        """Add adapters, and freeze the layers they are beside."""
        if settings.train.lora:
            adapt(model.body, settings.train.lora, settings.train.lora_alpha, _is_no_output)

    def finish_model(self, model: Labelled) -> Labelled:
        """Merge adapters into the weights, and unfreeze all."""
        merge(model)
        model.requires_grad_(True)
        return model

    def evaluator(self, settings: Settings, model: Labelled, corpus: LabelCorpus) -> Evaluate | None:
        """Return a function that computes the loss and the measure that chooses weights, on held-out examples."""
        if corpus.valid is None:
            return None
        examples, encoded = corpus.valid_examples, corpus.valid
        most = settings.data.eval_examples or MOST_EVAL_EXAMPLES
        if len(examples) > most:
            examples = [examples[i] for i in evenly_spaced(len(examples), most / len(examples))]
            encoded = self.kind.encode(examples, corpus.encoding)
        loss = LabelLoss(self.kind.loss)

        def evaluate(stop: Callable[[], bool], ranks: Ranks = SINGLE) -> dict[str, float]:  # every rank reads all
            corpus.feature_cache.fill(model)
            logits = compute_logits(model, encoded.rows, report=abandon_when(stop))
            predictions = self.kind.predictions(examples, encoded, logits, corpus.encoding.labels)
            figures = self.kind.score(examples, predictions, corpus.encoding.labels)
            return {"valid_loss": mean_loss(loss, encoded, logits), self.kind.chosen_by: figures[self.kind.chosen_by]}

        return evaluate

    def final_figures(
        self, settings: Settings, model: Labelled, corpus: LabelCorpus, folder: RunFolder, report: Report
    ) -> dict[str, Any] | None:
        """Return the task's measures on all held-out examples."""
        if corpus.valid is None:
            return None
        report("phase", {"name": "scoring the validation examples"})
        figures, _ = Labeller(model, self.kind, corpus.encoding).score(corpus.valid_examples, report)
        report("result", {self.kind.chosen_by: figures[self.kind.chosen_by]})
        return figures

    def describe_corpus(self, corpus: LabelCorpus) -> dict[str, Any]:
        """Return the number of examples, and how they are encoded."""
        return super().describe_corpus(corpus) | {
            "train_examples": len(corpus.examples),
            "train_tokens": len(corpus.train.rows.tokens),
            "valid_examples": len(corpus.valid_examples),
            "labels": list(corpus.encoding.labels),
            "length": corpus.encoding.length,
            "stride": corpus.encoding.stride,
            "choices": corpus.train.rows.rows_per_example,
            "texts": len(getattr(corpus.examples[0], "texts", ())),
        }

    def laws(self, model: Any) -> Iterator[Finding]:
        """Test the laws of a model with a head, or of a system without one."""
        return labelled_laws(model) if isinstance(model, Labelled) else laws_of(model)


def race_facts(corpus: LabelCorpus, facts: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of a corpus, with its labels as classes: in race.json labels are the labelled examples."""
    classes = facts.pop("labels")
    return {**facts, "classes": classes}


def with_known_labels(kind: LabelKind, examples: list[Any], labels: Sequence[str], notes: list[str]) -> list[Any]:
    """Return the examples whose labels are known; a note counts the others."""
    known = set(labels)
    kept = [one for one in examples if known.issuperset(kind.labels([one]))]
    if len(kept) < len(examples):
        first = next(one for one in examples if not known.issuperset(kind.labels([one])))
        out = counted(len(examples) - len(kept), "example")
        notes.append(f"left out {out} with a label that is not known (first: {first.where})")
    return kept


def batch_tokens(train: LabelTrainSettings, rows: LabelledRows) -> int:
    """Return the number of tokens of a batch: as the settings say, or enough for ``FEWEST_EXAMPLES``.

    1,000 tokens are seventy short sentences, but only four film reviews, and training on four hardly converges.
    """
    room = FEWEST_EXAMPLES * float(rows.lengths.mean()) * rows.rows_per_example if len(rows) else 0.0
    return train.batch_tokens or int(min(max(BATCH_TOKENS, room), MOST_BATCH_TOKENS))


def _is_no_output(name: str) -> bool:
    """Return whether a layer of a body is not an output layer."""
    return "head" not in name


def held_out_examples(groups: Sequence[Hashable], strata: Sequence[Any], share: float) -> list[int]:
    """Return the indices of held-out examples: evenly spaced, groups together.

    Labels that alternate in a file can have the period of these indices, so that all held-out ones are alike. Then a
    stratified sample of the groups is held out instead.

    >>> labels = ["good", "bad"] * 50
    >>> Counter(labels[i] for i in held_out_examples(range(100), labels, 0.1))
    Counter({'bad': 5, 'good': 5})
    """
    held = evenly_spaced_groups(groups, share)
    if len(held) < FEWEST_TO_COMPARE:
        return held
    whole, part = Counter(strata), Counter(strata[i] for i in held)
    if all(abs(part[key] / len(held) - count / len(strata)) <= MOST_APART for key, count in whole.items()):
        return held
    first = dict(zip(reversed(groups), reversed(strata)))
    count = len({groups[i] for i in held})
    chosen = stratified_sample(list(first.values()), count, 0)
    names = list(first)
    kept = {names[i] for i in chosen}
    return [i for i, group in enumerate(groups) if group in kept]


def stratified_sample(strata: Sequence[Any], count: int, seed: int) -> list[int]:
    """Return ``count`` random indices that keep the share of each stratum; larger samples contain smaller ones.

    >>> sorted(stratified_sample(["a"] * 6 + ["b"] * 3, 3, 0))[-1] >= 6
    True
    """
    sizes, seen, ranks = Counter(strata), Counter[Any](), []
    for i in np.random.default_rng(seed % 2**64).permutation(len(strata)).tolist():
        seen[strata[i]] += 1
        ranks.append((seen[strata[i]] / (sizes[strata[i]] + 1), i))
    return [i for _, i in sorted(ranks)[:count]]


def mean_loss(loss: LabelLoss, encoded: EncodedExamples, logits: Sequence[np.ndarray]) -> float:
    """Return the mean over examples of the loss of logits."""
    rows, total, count = encoded.rows, 0.0, 0
    for i, one in enumerate(logits):
        index = slice(int(rows.starts[i]), int(rows.starts[i + 1])) if rows.per_token else slice(i, i + 1)
        target = torch.from_numpy(np.asarray(rows.targets[index]))
        if rows.per_token and not bool((target >= 0).any()):
            continue
        z = torch.from_numpy(one)
        total += float(loss.of(z if rows.per_token else z[None], target, torch.tensor([len(one)])))
        count += 1
    return total / max(1, count)
