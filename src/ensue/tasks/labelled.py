"""Training to label: examples in, a model that answers about texts out. What all tasks that label share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ensue.core.errors import InputError
from ensue.core.events import Report, tell_notes
from ensue.core.run_folder import RunFolder
from ensue.core.seeds import derive
from ensue.data.rows import RowBatches
from ensue.data.splitting import spread
from ensue.data.tokenizers.finding import find_tokenizer, fit_to_texts, load_tokenizer, save_tokenizer
from ensue.data.tokenizers.marked_fitting import fit_marked
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.models.bert import BERT
from ensue.models.features import Features
from ensue.models.labelled import HeadConfig, Labelled
from ensue.models.reader import BidirectionalReader
from ensue.models.recurrent import RecurrentLanguageModel
from ensue.models.table import SYSTEMS
from ensue.nn.adapters import adapt, adaptable, merge
from ensue.tasks.features import Remembered, feature_tokenizer, features_for
from ensue.tasks.labeller import Labeller, logits_of, tell_cut
from ensue.tasks.labels.kind import Form, LabelKind, Reading, Written
from ensue.tasks.machine import check_device
from ensue.tasks.means import Means
from ensue.tasks.settings import Settings
from ensue.train.labelling import Label
from ensue.train.objectives import Objective
from ensue.train.thawing import Thawing

LONGEST = 256
"""Tokens of a row, where nothing else is said and the model can read so many."""
MOST_HELD_OUT = 2000
EVAL_EXAMPLES = 2000
VOCABULARY = 8192
"""How many tokens a tokenizer that is fitted to the examples has at most, if nothing is said."""


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

    def corpus_of(self, settings: Settings, folder: RunFolder | None, report: Report) -> Corpus:
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
        how = Reading(data.columns, skip=data.bad_lines == "skip")
        train = self.kind.read(data.files, how, notes) if data.files else []
        valid = self.kind.read(data.valid, replace(how, learn=False), notes) if data.valid else []
        tell_notes(notes, "and {} more notes", report)
        labels = data.labels or (self.kind.labels(train) if train else ())
        if not valid and data.holdout and len(train) > 1:
            chosen = spread(len(train), min(data.holdout, MOST_HELD_OUT / len(train)))
            out = set(chosen)
            valid = [train[place] for place in chosen]
            train = [one for place, one in enumerate(train) if place not in out]
        if 0 < data.limit < len(train):
            seed = derive(settings.run.seed, "limit")
            train = [train[place] for place in drawn(self.kind.strata(train), data.limit, seed)]
        return train, valid, labels

    def save_tokenizers(self, corpus: Corpus, folder: RunFolder) -> None:
        """Write the tokenizer into a run's folder."""
        save_tokenizer(corpus.tokenizer, folder.tokenizer)

    def prepared(self, settings: Settings, corpus: Corpus, folder: RunFolder, report: Report) -> Corpus:
        """Nothing here takes long."""
        return corpus

    def model_facts(self, settings: Settings, corpus: Corpus) -> dict[str, Any]:
        """What the examples say of a model."""
        return {"vocabulary": corpus.tokenizer.size, "end": corpus.tokenizer.end}

    def with_head(self, settings: Settings, model: Any, corpus: Corpus) -> Labelled:
        """The system's body with a head for this task; a number's head begins near the numbers."""
        labels = corpus.form.labels
        head = replace(settings.head, outputs=self.kind.outputs(labels), kind=self.kind.head)
        body = body_for(model, head, features_for(settings.features), self._reads_on(settings))
        made = Labelled(body, head, corpus.train.rows.each)
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

    def resolved(self, settings: Settings, model: Labelled, corpus: Corpus) -> Settings:
        """The settings with everything that was left to us filled in."""
        train, tokens, data = settings.train, settings.tokenizer, settings.data
        if train.adapters and (train.freeze or train.layer_decay < 1):
            raise InputError("adapters leave the body as it is", mend="leave out train.freeze and train.layer_decay")
        if train.adapters and not adaptable(model.body, _beside_head):
            what = f"{settings.run.system} has no layers for adapters"
            raise InputError(what, mend="leave out train.adapters, or use bert, roberta or gpt")
        if tokens.kind == "auto":
            tokens = replace(tokens, kind=corpus.tokenizer.kind)
        length, labels = corpus.form.length, corpus.form.labels
        return replace(
            settings,
            run=replace(settings.run, device=check_device(settings.run.device)),
            train=replace(train, threads=train.threads or torch.get_num_threads()),
            tokenizer=replace(tokens, vocabulary=tokens.vocabulary or corpus.tokenizer.size),
            data=replace(data, length=length, labels=labels if self.kind.loss == "label" else ()),
            head=model.config,
        )

    def batches(self, settings: Settings, model: Labelled, corpus: Corpus) -> RowBatches:
        """The rows as batches of similar lengths."""
        return RowBatches(corpus.train.rows, settings.train.batch_tokens, derive(settings.run.seed, "data"))

    def objective(self, settings: Settings, model: Labelled, corpus: Corpus) -> Objective:
        """What training asks of the model."""
        asked = self._label(settings, model, corpus, corpus.train.rows.targets)
        return asked if settings.features is None else corpus.remembered.before(asked)

    def _label(self, settings: Settings, model: Labelled, corpus: Corpus, targets: np.ndarray) -> Label:
        """The loss of labels; ``targets`` are those to learn from."""
        train = settings.train
        if train.language and not hasattr(model.body, "head"):
            what = f"train.language asks for the next token, which {settings.run.system} does not say"
            raise InputError(what, mend="use gpt or lstm, or leave it out")
        weights = None
        if train.class_weights == "balanced":
            asked = targets[targets >= 0]
            if self.kind.loss != "label" or self.kind.head == "choice" or not len(asked):
                raise InputError(f"{self.kind.name} has no labels to balance", mend="use train.class_weights=none")
            counts = np.bincount(asked, minlength=len(corpus.form.labels))
            weights = torch.tensor(counts.sum() / (len(counts) * np.maximum(counts, 1)), dtype=torch.float32)
        return Label(self.kind.loss, weights, train.label_smoothing, train.language)

    def means(self, settings: Settings, model: Labelled, corpus: Corpus) -> Means:
        """Put in adapters, and say which layers learn how fast; the task's measure chooses."""
        train, depths = settings.train, model.depths()
        top = max(depths.values())
        if train.adapters:
            adapt(model.body, train.adapters, train.adapters_alpha, _beside_head)
            return Means(None, self.kind.chosen_by)
        if train.unfreeze and not train.freeze:
            raise InputError("train.unfreeze lets go of frozen layers, and none is", mend="set train.freeze too")
        frozen = top if train.freeze < 0 else min(train.freeze, top)
        if not frozen and train.layer_decay == 1.0:
            return Means(None, self.kind.chosen_by)
        steps = RowBatches(corpus.train.rows, train.batch_tokens).steps_per_epoch
        every = max(1, round(train.unfreeze * steps / train.accumulate)) if train.unfreeze else 0
        return Means(Thawing(depths, train.layer_decay, frozen, every), self.kind.chosen_by)

    def finished(self, model: Labelled) -> Labelled:
        """Adapters merged into the weights they stand beside, and nothing frozen."""
        merge(model)
        model.requires_grad_(True)
        return model

    def evaluation(
        self, settings: Settings, model: Labelled, corpus: Corpus
    ) -> Callable[[Callable[[], bool]], dict[str, float]] | None:
        """What the loop calls to see how the model does on held-out examples."""
        if corpus.valid is None:
            return None
        examples, written = corpus.valid_examples, corpus.valid
        most = settings.data.eval_examples or EVAL_EXAMPLES
        if len(examples) > most:
            examples = [examples[place] for place in spread(len(examples), most / len(examples))]
            written = self.kind.write(examples, corpus.form)
        loss = Label(self.kind.loss)

        def evaluate(stop: Callable[[], bool]) -> dict[str, float]:
            corpus.remembered.fill(model)
            logits = logits_of(model, written.rows, stop=stop)
            answers = self.kind.answers(examples, written, logits, corpus.form)
            figures = self.kind.score(examples, answers, corpus.form.labels)
            return {"valid_loss": mean_loss(loss, written, logits), self.kind.chosen_by: figures[self.kind.chosen_by]}

        return evaluate

    def writer(
        self, settings: Settings, model: Labelled, corpus: Corpus, device: torch.device
    ) -> Callable[[], str] | None:
        """It does not write."""
        return None

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
            "choices": corpus.train.rows.each,
            "texts": len(getattr(corpus.examples[0], "texts", ())),
        }


def _beside_head(name: str) -> bool:
    """Whether a layer of a body is none of its output layers."""
    return "head" not in name


def body_of(model: Any) -> Any:
    """What of a model can be the body of one that labels: an encoder without its heads, or a whole language model."""
    return model.body if isinstance(model, BERT | Labelled) else model


def body_for(model: Any, head: HeadConfig, features: Features | None = None, onward: bool = False) -> Any:
    """The body that a head's settings ask for: a recurrent network may read from both ends, and features beside.

    ``onward`` says that it is to read from one end, where nothing else is said.
    """
    recurrent = isinstance(model, RecurrentLanguageModel)
    if features is not None and (not recurrent or head.directions == "one"):
        what = "features are read by a recurrent network, from both ends"
        raise InputError(what, mend="use --model lstm, gru or rnn, and leave out head.directions")
    if not recurrent and head.directions == "both":
        raise InputError("head.directions = both is for recurrent networks", mend="leave it out")
    each = head.kind in ("token", "span")
    both = head.directions == "both" or (head.directions == "auto" and (features is not None or (each and not onward)))
    return BidirectionalReader(model, features) if both and recurrent else body_of(model)


def system_config(model: Any) -> Any:
    """The settings of the system that a model is of, whatever head it has."""
    return model.body.config if isinstance(model, Labelled) else model.config


def texts_of(examples: Sequence[Any]) -> list[str]:
    """Everything that is text in examples, to fit a tokenizer to."""
    found: list[str] = []
    for one in examples:
        if hasattr(one, "words"):
            found.append(" ".join(one.words))
        elif hasattr(one, "passage"):
            found += [one.question, one.passage]
        elif hasattr(one, "choices"):
            found += [one.context, *one.choices]
        else:
            found += one.texts
    return found


def form_of(
    settings: Settings, folder: RunFolder | None, labels: tuple[str, ...], examples: Sequence[Any], report: Report
) -> Form:
    """How examples become rows: by the tokenizer in a folder where there is one already."""
    if folder is not None and folder.tokenizer.exists():
        tokenizer = load_tokenizer(folder.tokenizer)
    else:
        report("phase", {"name": "fitting the tokenizer"})
        tokenizer = choose_tokenizer(settings, texts_of(examples))
    return Form(tokenizer=tokenizer, labels=labels, length=row_length(settings), stride=settings.data.stride)


def choose_tokenizer(settings: Settings, texts: Sequence[str]) -> Tokenizer:
    """The tokenizer that the settings name, fitted to the texts where it is not given ready."""
    tokens = settings.tokenizer
    if settings.features is not None:
        return feature_tokenizer(settings.features, tokens, texts)
    cls = SYSTEMS.load(settings.run.system)
    encoder = issubclass(cls, BERT)
    # a recurrent tagger has a vector a word, so that it differs from one with features by those alone
    words = settings.run.task == "tag" and issubclass(cls, RecurrentLanguageModel)
    kind = ("wordpiece" if encoder else "word" if words else "bpe") if tokens.kind == "auto" else tokens.kind
    found = find_tokenizer(kind)
    if not isinstance(found, str):
        return found
    if encoder:
        if found not in ("wordpiece", "bpe", "unigram"):
            raise InputError(f"a {found} tokenizer has no marks for an encoder", mend="use wordpiece, bpe or unigram")
        return fit_marked(found, texts, tokens.vocabulary or VOCABULARY, tokens.min_count or 2, tokens.lowercase)
    parts = ((text, True, True) for text in texts)
    return fit_to_texts(found, parts, vocabulary=tokens.vocabulary or None, min_count=tokens.min_count or None)


def row_length(settings: Settings) -> int:
    """The most tokens of a row: as the settings say, or what the model can read."""
    context = settings.model.get("context")
    length: int = settings.data.length or min(context or LONGEST, LONGEST)
    if context and length > context:
        raise InputError(f"data.length = {length} is more than the model's context = {context}", mend="make it less")
    if length < 8:
        raise InputError(f"data.length = {length} leaves no room for a text", mend="use at least 8")
    return length


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


def mean_loss(loss: Label, written: Written, logits: Sequence[np.ndarray]) -> float:
    """The mean loss of answers, an example at a time."""
    rows, total, count = written.rows, 0.0, 0
    for place, one in enumerate(logits):
        at = slice(int(rows.at[place]), int(rows.at[place + 1]))
        target = torch.from_numpy(np.asarray(rows.targets[at] if rows.by_token else rows.targets[place : place + 1]))
        if rows.by_token and not bool((target >= 0).any()):
            continue
        z = torch.from_numpy(one)
        lengths = torch.tensor([len(one)])
        total += float(loss.of(z if rows.by_token else z[None], target, lengths))
        count += 1
    return total / max(1, count)
