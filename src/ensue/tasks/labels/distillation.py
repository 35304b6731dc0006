"""Distillation: from texts without labels to a smaller model that labels as its teacher does.

It differs from a labelling task only in what is learnt: the teacher's logits for texts that have no labels. The teacher
labels them once, and its logits are kept in the run's folder. A student may have another tokenizer, as labels are of
whole texts or of words.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from torch import nn

from ensue.core.durations import duration_in_words
from ensue.core.errors import InputError
from ensue.core.events import Report, report_notes
from ensue.core.files import atomic_file, sha256
from ensue.core.run_folder import RunFolder
from ensue.core.seeds import derive, isolated_rng
from ensue.core.table import load_target
from ensue.core.wording import counted
from ensue.data.labelled_rows import IGNORE_INDEX
from ensue.data.tokenizers.registry import load_tokenizer
from ensue.models.encoder import Encoder
from ensue.models.labelled import Labelled
from ensue.tasks.labels.encoding import encoding_from_config, fit_encoding
from ensue.tasks.labels.kind import EncodedExamples, ExampleEncoding, LabelKind
from ensue.tasks.labels.labeller import Labeller, compute_logits, report_cut
from ensue.tasks.labels.task import LabelCorpus, LabelTask
from ensue.tasks.settings import Settings
from ensue.tasks.spec import Task
from ensue.tasks.table import all_tasks, task_spec
from ensue.train.distillation import STUDENT_PROJECTION, DistillationLoss
from ensue.train.objectives import Objective

ASK_AGAIN = "delete it to ask the teacher again"


def can_teach(task: Task) -> bool:
    """Return whether a run of a task can be a teacher; spans cannot, as positions depend on the tokenizer."""
    return task.labels and task.kind.head != "span"


@dataclass(frozen=True)
class Teacher:
    """The run of a teacher; its model is loaded when it is first used."""

    folder: RunFolder

    @property
    def exists(self) -> bool:
        """True if its folder is still there."""
        return self.folder.config.exists()

    @cached_property
    def config(self) -> dict[str, Any]:
        """Its config.json; raises InputError if a run of its task cannot teach."""
        config = self.folder.read_config()
        self.folder.verify()
        task = str(config.get("task", "language"))
        if not can_teach(task_spec(task)):
            what = f"is a {config['system']} for {task}, which cannot teach"
            able = ", ".join(spec.name for spec in all_tasks() if can_teach(spec))
            raise InputError(what, where=str(self.folder.path), hint=f"name a run that does {able}")
        return config

    @cached_property
    def encoding(self) -> ExampleEncoding:
        """How it encodes examples."""
        return encoding_from_config(self.config, load_tokenizer(self.folder.tokenizer))

    @cached_property
    def labeller(self) -> Labeller:
        """Its model with its tokenizer and its task."""
        load_model = load_target("ensue.runs.load_model:load_model")
        model = load_model(self.folder, self.config, self.encoding.tokenizer)
        return Labeller(model, task_spec(self.config["task"]).kind, self.encoding)

    @cached_property
    def hash(self) -> str:
        """Hash of its weights."""
        return sha256(self.folder.weights)


@dataclass(frozen=True)
class DistilCorpus(LabelCorpus):
    """Texts without labels, then labelled examples, as rows; for their targets see ``ensue.train.distillation``."""

    kind: LabelKind
    teacher: Teacher
    unlabelled: int
    """The number of examples without a label."""

    @property
    def hash(self) -> str:
        """Hash of texts, rows and labels, without the teacher's logits."""
        digest = hashlib.sha256("\0".join(text for one in self.examples for text in self.kind.texts(one)).encode())
        digest.update(replace(self.train.rows, targets=self.train.rows.targets[..., 0]).hash.encode())
        if self.valid:
            digest.update(self.valid.rows.hash.encode())
        return digest.hexdigest()


class DistilTask(LabelTask):
    """A labelling task learnt from a teacher."""

    def read_corpus(self, settings: Settings, folder: RunFolder | None, report: Report) -> DistilCorpus:
        """Read the texts as rows; ``prepare_corpus`` adds the teacher's logits."""
        teacher = Teacher(RunFolder(Path(settings.run.teacher)))
        report("phase", {"name": "reading the texts"})
        texts = self._unlabelled_examples(settings, report)
        train, valid, _ = self._examples(settings, report)
        examples, labels = [*texts, *train], self._labels(settings, teacher)
        encoding = fit_encoding(self.kind, with_teacher_tokenizer(settings), folder, labels, examples, report)
        report("phase", {"name": "tokenising the texts"})
        encoded = self.kind.encode(examples, encoding, with_targets=False)
        targets = self.kind.encode(train, encoding).rows.targets if train else np.zeros(0)
        rows = replace(encoded.rows, targets=empty_targets(encoded, targets, encoding))
        encoded = replace(encoded, rows=rows)
        held_out = self.kind.encode(valid, encoding) if valid else None
        corpus = DistilCorpus(encoding, examples, encoded, valid, held_out, self.kind, teacher, len(texts))
        report_cut(corpus.parts, encoding, report)
        return corpus

    def _unlabelled_examples(self, settings: Settings, report: Report) -> list[Any]:
        """Return the texts for the teacher to label."""
        notes: list[str] = []
        examples = []
        for file in settings.distil.files:
            lines = self.kind.read_inputs(file, settings.distil.columns, notes)
            full = [one for one in lines if all(text.strip() for text in self.kind.texts(one))]
            if not full:
                raise InputError("there is no text in any line", where=file, hint="give one text a line")
            if len(full) < len(lines):
                notes.append(f"{file}: left out {counted(len(lines) - len(full), 'line')} without text")
            examples += full
        report_notes(notes, "and {} more notes", report)
        if not settings.data.files and not settings.data.valid:
            report("note", {"text": "without --valid the student is not scored, and its last weights are kept"})
        return examples

    def _labels(self, settings: Settings, teacher: Teacher) -> tuple[str, ...]:
        """Return the teacher's labels; a resumed run has them in its settings, so its teacher may be gone."""
        given: tuple[str, ...] = settings.data.labels
        if not teacher.exists and given:
            return given
        if teacher.config["task"] != self.kind.name:
            what = f"does {teacher.config['task']}, so it cannot teach {self.kind.name}"
            raise InputError(what, where=str(teacher.folder.path))
        if given and given != teacher.encoding.labels:
            what = f"has the labels {', '.join(teacher.encoding.labels)}"
            raise InputError(what, where=str(teacher.folder.path), hint="leave out data.labels")
        return teacher.encoding.labels

    def prepare_corpus(self, settings: Settings, corpus: DistilCorpus, folder: RunFolder, report: Report) -> None:
        """Fill in the teacher's columns of the targets: its logits from the run's folder, or computed now."""
        logits = load_logits(folder.teacher_outputs, corpus)
        if logits is None:
            logits = self._teacher_logits(corpus, torch.device(settings.run.device), report)
            save_logits(folder.teacher_outputs, corpus, logits)
        else:
            report("note", {"text": "the teacher has answered before, and is not asked again"})
        corpus.train.rows.targets[..., 1:] = logits

    def _teacher_logits(self, corpus: DistilCorpus, device: torch.device, report: Report) -> np.ndarray:
        """Return the teacher's logits (E, Y), or (Σ lengths, Y) with NaN at tokens without a label."""
        report("phase", {"name": "asking the teacher"})
        start = time.perf_counter()
        labeller, encoded = corpus.teacher.labeller, corpus.train
        if not same_encoding(corpus.encoding, labeller.encoding):
            encoded = self.kind.encode(corpus.examples, labeller.encoding, with_targets=False)
        logits = compute_logits(labeller.model.to(device), encoded.rows, report=report)
        if not all(np.isfinite(one).all() for one in logits):
            raise InputError("answers with numbers that are not finite", where=str(corpus.teacher.folder.path))
        took = duration_in_words(time.perf_counter() - start)
        report("note", {"text": f"the teacher has answered about {counted(len(corpus.examples), 'text')} in {took}"})
        return align_words(corpus.train, encoded, logits) if corpus.train.rows.per_token else np.stack(logits)

    def _initial_bias(self, corpus: LabelCorpus) -> float:
        """Return the bias of the teacher's head; if the teacher is gone, a checkpoint has the weights."""
        assert isinstance(corpus, DistilCorpus)
        return float(corpus.teacher.labeller.model.out.bias[0]) if corpus.teacher.exists else 0.0

    def complete_settings(self, settings: Settings, model: Labelled, corpus: LabelCorpus) -> Settings:
        """Fill in the teacher's tokenizer too."""
        return super().complete_settings(with_teacher_tokenizer(settings), model, corpus)

    def objective(self, settings: Settings, model: Labelled, corpus: LabelCorpus) -> Objective:
        """Return the loss of the teacher's logits, of labels, and of hidden states if the settings say so."""
        assert isinstance(corpus, DistilCorpus)
        labels = corpus.train.rows.targets[..., 0]
        targets = np.where(np.isnan(labels), IGNORE_INDEX, labels).astype(np.int64)
        loss, distil = self._label_loss(settings, model, corpus, targets), settings.distil
        if not distil.hidden:
            return DistillationLoss(loss, distil.temperature, distil.labels)
        teacher = hidden_state_teacher(model, corpus).to(settings.run.device)
        return DistillationLoss(loss, distil.temperature, distil.labels, distil.hidden, teacher)

    def prepare_model(self, settings: Settings, model: Labelled, corpus: LabelCorpus) -> None:
        """Add the projection of hidden states to the teacher's width, if their widths differ."""
        assert isinstance(corpus, DistilCorpus)
        super().prepare_model(settings, model, corpus)
        if settings.distil.hidden:
            width, teacher_width = model.body.width, hidden_state_teacher(model, corpus).body.width
            if width != teacher_width:
                with isolated_rng(derive(settings.run.seed, STUDENT_PROJECTION)):
                    projection = nn.Linear(width, teacher_width, bias=False)  # type: ignore[arg-type]
                    model.add_module(STUDENT_PROJECTION, projection)

    def finish_model(self, model: Labelled) -> Labelled:
        """Remove the projection."""
        if hasattr(model, STUDENT_PROJECTION):
            delattr(model, STUDENT_PROJECTION)
        return super().finish_model(model)

    def final_figures(
        self, settings: Settings, model: Labelled, corpus: LabelCorpus, folder: RunFolder, report: Report
    ) -> dict[str, Any] | None:
        """Return the measures of the student on all held-out examples, and that of the teacher."""
        assert isinstance(corpus, DistilCorpus)
        figures = super().final_figures(settings, model, corpus, folder, report)
        if figures is None or not corpus.teacher.exists:
            return figures
        report("phase", {"name": "scoring the teacher"})
        labeller, by = corpus.teacher.labeller, self.kind.chosen_by
        size = sum(p.numel() for p in labeller.model.parameters())
        teacher_figures, _ = labeller.score(corpus.valid_examples, report)
        return {**figures, "teacher": {by: teacher_figures[by], "parameters": size}}

    def describe_corpus(self, corpus: LabelCorpus) -> dict[str, Any]:
        """Return the number of texts without labels too."""
        assert isinstance(corpus, DistilCorpus)
        facts = super().describe_corpus(corpus)
        return {**facts, "train_examples": len(corpus.examples) - corpus.unlabelled, "train_texts": corpus.unlabelled}


def with_teacher_tokenizer(settings: Settings) -> Settings:
    """Return settings that name the teacher's tokenizer, unless they name another or a run to start from."""
    tokens = settings.tokenizer
    if tokens.kind != "auto" or settings.run.begin_with:
        return settings
    own = RunFolder(Path(settings.run.teacher)).tokenizer
    return replace(settings, tokenizer=replace(tokens, kind=str(own)))


def empty_targets(encoded: EncodedExamples, labels: np.ndarray, encoding: ExampleEncoding) -> np.ndarray:
    """Return targets (…, 1 + Y) before the teacher is asked: the ``labels`` of the last examples, else NaN."""
    count = len(encoded.rows.tokens) if encoded.rows.per_token else len(encoded.rows)
    targets = np.full((count, 1 + max(1, len(encoding.labels))), np.nan, dtype=np.float32)
    if len(labels):
        whole = labels.dtype.kind != "f"
        targets[-len(labels) :, 0] = np.where(labels == IGNORE_INDEX, np.nan, labels) if whole else labels
    return targets


def same_encoding(own: ExampleEncoding, other: ExampleEncoding) -> bool:
    """Return whether two encodings make the same rows of the same examples."""
    same_sizes = (own.length, own.stride, own.bare) == (other.length, other.stride, other.bare)
    return same_sizes and own.tokenizer.state() == other.tokenizer.state()


def align_words(student: EncodedExamples, teacher: EncodedExamples, logits: Sequence[np.ndarray]) -> np.ndarray:
    """Move the teacher's logits at each word's first token to the student's first token of that word."""
    rows = student.rows
    aligned = np.full((len(rows.tokens), logits[0].shape[-1]), np.nan, dtype=np.float32)
    for start, own, other, one in zip(rows.starts, student.notes, teacher.notes, logits):
        count = min(len(own), len(other))  # one of them may have cut more words off
        aligned[start + own[:count]] = one[other[:count]]
    return aligned


def hidden_state_teacher(model: Labelled, corpus: DistilCorpus) -> Labelled:
    """Return the teacher's model; raise InputError if its hidden states cannot be compared with the student's."""
    teacher: Labelled = corpus.teacher.labeller.model
    where, hint = str(corpus.teacher.folder.path), "leave out distil.hidden"
    if not isinstance(model.body, Encoder) or not isinstance(teacher.body, Encoder):
        raise InputError("only hidden states of two encoders can be compared", where=where, hint=hint)
    if corpus.encoding.tokenizer.state() != corpus.teacher.encoding.tokenizer.state():
        what = "has another tokenizer than the student, so their hidden states are of different tokens"
        raise InputError(what, where=where, hint=hint)
    context, length = teacher.body.config.context, corpus.encoding.length
    if length > context:
        raise InputError(
            f"reads {context} tokens, the student {length}", where=where, hint=f"use data.length={context}"
        )
    return teacher


def _logits_hash(logits: np.ndarray) -> str:
    return hashlib.sha256(logits.data).hexdigest()


def save_logits(path: Path, corpus: DistilCorpus, logits: np.ndarray) -> None:
    """Write the teacher's logits, with their hash and those of the texts and of the teacher."""
    logits = np.ascontiguousarray(logits)
    facts = {"texts": corpus.hash, "teacher": corpus.teacher.hash, "logits": _logits_hash(logits)}
    with atomic_file(path) as temporary:
        save_file({"logits": logits}, temporary, metadata=facts)
        temporary.chmod(0o644)


def load_logits(path: Path, corpus: DistilCorpus) -> np.ndarray | None:
    """Read the teacher's logits for these texts; None if there are none yet."""
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="numpy") as file:
            facts, logits = file.metadata(), file.get_tensor("logits")
    except (SafetensorError, OSError) as error:
        raise InputError(f"is damaged ({error})", where=str(path), hint=ASK_AGAIN) from error
    if facts.get("logits", digest := _logits_hash(logits)) != digest:  # older versions did not write it
        raise InputError("is damaged: its SHA-256 has changed", where=str(path), hint=ASK_AGAIN)
    if corpus.teacher.exists and corpus.teacher.hash != facts["teacher"]:
        hint = "put it back, or begin a new run"
        raise InputError("has other weights than when this run began", where=str(corpus.teacher.folder.path), hint=hint)
    if facts["texts"] != corpus.hash:
        raise InputError("is about other texts", where=str(path), hint=ASK_AGAIN)
    result: np.ndarray = logits
    return result
