"""Learning to label from a teacher: texts without labels in, a smaller model that answers as the teacher does out.

Only what is learnt from differs from a task that labels: the rows of texts nobody has labelled, and what the teacher
says of them. It is asked once, and its answers are kept in the run's folder. A student may have another tokenizer, as
answers are about whole texts, or about words.
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
from ensue.core.wording import counted
from ensue.data.labelled_rows import IGNORE_INDEX
from ensue.data.tokenizers.registry import load_tokenizer
from ensue.models.encoder import Encoder
from ensue.models.labelled import Labelled
from ensue.tasks.example_encoding import form_of, texts_of
from ensue.tasks.label_kind import Form, Written
from ensue.tasks.labelled import Corpus, LabelTask
from ensue.tasks.labeller import Labeller, logits_of, tell_cut
from ensue.tasks.load_model import form_in, model_in
from ensue.tasks.settings import Settings
from ensue.tasks.spec import TaskSpec
from ensue.tasks.table import all_tasks, task_spec
from ensue.train.distillation import STUDENT_PROJECTION, DistillationLoss
from ensue.train.objectives import Objective


def teaches(spec: TaskSpec) -> bool:
    """True if a run of a task can be a teacher; the positions of an answer are those of one tokenizer and window."""
    return spec.labels and spec.kind.head != "span"


@dataclass(frozen=True)
class Teacher:
    """The run that is asked; its model is opened when the first question comes."""

    folder: RunFolder

    @property
    def there(self) -> bool:
        """Whether it still is."""
        return self.folder.config.exists()

    @cached_property
    def config(self) -> dict[str, Any]:
        """Its config.json, once it is known to be of a run that can teach."""
        config = self.folder.read_config()
        task = str(config.get("task", "language"))
        if not teaches(task_spec(task)):
            what = f"is a {config['system']} for {task}, which cannot teach"
            able = ", ".join(spec.name for spec in all_tasks() if teaches(spec))
            raise InputError(what, where=str(self.folder.path), hint=f"name a run that does {able}")
        return config

    @cached_property
    def form(self) -> Form:
        """How it reads examples."""
        return form_in(self.config, load_tokenizer(self.folder.tokenizer))

    @cached_property
    def labeller(self) -> Labeller:
        """The model between its tokenizer and its task."""
        model = model_in(self.folder, self.config, self.form.tokenizer)
        return Labeller(model, task_spec(self.config["task"]).kind, self.form)

    @cached_property
    def hash(self) -> str:
        """Of its weights."""
        return sha256(self.folder.weights)


@dataclass(frozen=True)
class DistilCorpus(Corpus):
    """Texts without labels, then examples with labels, as rows; what is wanted: see ``ensue.train.distillation``."""

    teacher: Teacher
    unlabelled: int
    """How many of the examples have no label."""

    @property
    def hash(self) -> str:
        """Of texts, rows and labels; not of the teacher's answers."""
        rows = [replace(self.train.rows, targets=self.train.rows.targets[..., 0])]
        rows += [self.valid.rows] if self.valid else []
        whole = hashlib.sha256("\0".join(texts_of(self.examples)).encode())
        for one in rows:
            whole.update(one.hash.encode())
        return whole.hexdigest()


@dataclass(frozen=True)
class DistilTask(LabelTask):
    """A task that labels, learnt from a teacher."""

    def read_corpus(self, settings: Settings, folder: RunFolder | None, report: Report) -> DistilCorpus:
        """The run's texts as rows; the teacher has not been asked yet."""
        teacher = Teacher(RunFolder(Path(settings.run.teacher)))
        report("phase", {"name": "reading the texts"})
        texts = self._texts(settings, report)
        train, valid, _ = self._examples(settings, report)
        examples = [*texts, *train]
        form = form_of(taught_tokens(settings), folder, self._labels(settings, teacher), examples, report)
        report("phase", {"name": "tokenising the texts"})
        written = self.kind.write(examples, form, wanted=False)
        labelled = self.kind.write(train, form).rows.targets if train else np.zeros(0)
        rows = replace(written.rows, targets=unanswered(written, labelled, form))
        written = replace(written, rows=rows)
        held = self.kind.write(valid, form) if valid else None
        tell_cut([written, *([held] if held else [])], form, report)
        return DistilCorpus(form, examples, written, valid, held, teacher, len(texts))

    def _texts(self, settings: Settings, report: Report) -> list[Any]:
        """What the teacher is asked about."""
        distil, found = settings.distil, []
        notes: list[str] = []
        for file in distil.files:
            held = self.kind.inputs(file, distil.columns, notes)
            full = [one for one in held if all(text.strip() for text in texts_of([one]))]
            if not full:
                raise InputError("there is no text in any line", where=file, hint="give one text a line")
            if len(full) < len(held):
                notes.append(f"{file}: left out {counted(len(held) - len(full), 'line')} without text")
            found += full
        report_notes(notes, "and {} more notes", report)
        if not settings.data.files and not settings.data.valid:
            report("note", {"text": "without --valid the student is not scored, and its last weights are kept"})
        return found

    def _labels(self, settings: Settings, teacher: Teacher) -> tuple[str, ...]:
        """The teacher's; a run that goes on has them in its settings, so its teacher may be gone."""
        given: tuple[str, ...] = settings.data.labels
        if not teacher.there and given:
            return given
        if teacher.config["task"] != self.kind.name:
            what = f"does {teacher.config['task']}, so it cannot teach {self.kind.name}"
            raise InputError(what, where=str(teacher.folder.path))
        if given and given != teacher.form.labels:
            what = f"has the labels {', '.join(teacher.form.labels)}"
            raise InputError(what, where=str(teacher.folder.path), hint="leave out data.labels")
        return teacher.form.labels

    def prepare_corpus(self, settings: Settings, corpus: Corpus, folder: RunFolder, report: Report) -> None:
        """Fill the teacher's columns of the targets: with its answers in the run's folder, or by asking it now."""
        assert isinstance(corpus, DistilCorpus)
        soft = kept_answers(folder.teacher_outputs, corpus)
        if soft is None:
            soft = self._asked(corpus, torch.device(settings.run.device), report)
            keep_answers(folder.teacher_outputs, corpus, soft)
        else:
            report("note", {"text": "the teacher has answered before, and is not asked again"})
        corpus.train.rows.targets[..., 1:] = soft

    def _asked(self, corpus: DistilCorpus, device: torch.device, report: Report) -> np.ndarray:
        """The teacher's logits (E, Y), or (Σ lengths, Y) with NaN at tokens that nobody asks about."""
        report("phase", {"name": "asking the teacher"})
        begun = time.perf_counter()
        labeller = corpus.teacher.labeller
        written = corpus.train
        if not same_rows(corpus.form, labeller.form):
            written = self.kind.write(corpus.examples, labeller.form, wanted=False)
        logits = logits_of(labeller.model.to(device), written.rows, report=report)
        if not all(np.isfinite(one).all() for one in logits):
            raise InputError("answers with numbers that are not finite", where=str(corpus.teacher.folder.path))
        took = duration_in_words(time.perf_counter() - begun)
        report("note", {"text": f"the teacher has answered about {counted(len(corpus.examples), 'text')} in {took}"})
        return by_word(corpus.train, written, logits) if corpus.train.rows.per_token else np.stack(logits)

    def _centre(self, corpus: Corpus) -> float:
        """Where the teacher's own head stands; with weights to come from elsewhere it does not matter."""
        assert isinstance(corpus, DistilCorpus)
        return float(corpus.teacher.labeller.model.out.bias[0]) if corpus.teacher.there else 0.0

    def complete_settings(self, settings: Settings, model: Labelled, corpus: Corpus) -> Settings:
        """The settings with everything that was left to us filled in."""
        return super().complete_settings(taught_tokens(settings), model, corpus)

    def objective(self, settings: Settings, model: Labelled, corpus: Corpus) -> Objective:
        """To answer as the teacher does, and as labels say where there are any."""
        assert isinstance(corpus, DistilCorpus)
        wanted = corpus.train.rows.targets[..., 0]
        numbers = np.where(np.isnan(wanted), IGNORE_INDEX, wanted).astype(np.int64)
        label, distil = self._label(settings, model, corpus, numbers), settings.distil
        if not distil.hidden:
            return DistillationLoss(label, distil.temperature, distil.labels)
        teacher = matched_teacher(model, corpus).to(settings.run.device)
        return DistillationLoss(label, distil.temperature, distil.labels, distil.hidden, teacher)

    def prepare_model(self, settings: Settings, model: Labelled, corpus: Corpus) -> None:
        """Add the projection of hidden states onto the teacher's, where their widths differ."""
        assert isinstance(corpus, DistilCorpus)
        super().prepare_model(settings, model, corpus)
        if settings.distil.hidden:
            width, taught = model.body.width, matched_teacher(model, corpus).body.width
            if width != taught:
                with isolated_rng(derive(settings.run.seed, STUDENT_PROJECTION)):
                    model.add_module(STUDENT_PROJECTION, nn.Linear(width, taught, bias=False))  # type: ignore[arg-type]

    def finish_model(self, model: Labelled) -> Labelled:
        """As usual, without what mapped its hidden states onto the teacher's."""
        if hasattr(model, STUDENT_PROJECTION):
            delattr(model, STUDENT_PROJECTION)
        return super().finish_model(model)

    def final_figures(
        self, settings: Settings, model: Labelled, corpus: Corpus, folder: RunFolder, report: Report
    ) -> dict[str, Any] | None:
        """How the student does on all of the held-out examples, and what the teacher does there."""
        assert isinstance(corpus, DistilCorpus)
        figures = super().final_figures(settings, model, corpus, folder, report)
        if figures is None or not corpus.teacher.there:
            return figures
        report("phase", {"name": "scoring the teacher"})
        labeller, by = corpus.teacher.labeller, self.kind.chosen_by
        size = sum(p.numel() for p in labeller.model.parameters())
        theirs, _ = labeller.score(corpus.valid_examples, report)
        return {**figures, "teacher": {by: theirs[by], "parameters": size}}

    def describe_corpus(self, corpus: Corpus) -> dict[str, Any]:
        """Facts of the texts for the model card."""
        assert isinstance(corpus, DistilCorpus)
        facts = super().describe_corpus(corpus)
        return {**facts, "train_examples": len(corpus.examples) - corpus.unlabelled, "train_texts": corpus.unlabelled}


def student(spec: TaskSpec) -> TaskSpec:
    """The record of a task that labels, learnt from a teacher."""
    return DistilTask(spec.kind).record(spec.race)


def taught_tokens(settings: Settings) -> Settings:
    """Settings in which a student has its teacher's tokenizer, unless they name another or a run to begin with."""
    tokens = settings.tokenizer
    if tokens.kind != "auto" or settings.run.begin_with:
        return settings
    own = RunFolder(Path(settings.run.teacher)).tokenizer
    return replace(settings, tokenizer=replace(tokens, kind=str(own)))


def unanswered(written: Written, labelled: np.ndarray, form: Form) -> np.ndarray:
    """What is wanted before the teacher has been asked, (…, 1 + Y): the labels of the last examples, else NaN."""
    count = len(written.rows.tokens) if written.rows.per_token else len(written.rows)
    targets = np.full((count, 1 + max(1, len(form.labels))), np.nan, dtype=np.float32)
    if len(labelled):
        whole = labelled.dtype.kind != "f"
        targets[-len(labelled) :, 0] = np.where(labelled == IGNORE_INDEX, np.nan, labelled) if whole else labelled
    return targets


def same_rows(own: Form, other: Form) -> bool:
    """Whether two forms make the same rows of the same examples."""
    same_frame = (own.length, own.stride, own.bare) == (other.length, other.stride, other.bare)
    return same_frame and own.tokenizer.state() == other.tokenizer.state()


def by_word(own: Written, theirs: Written, logits: Sequence[np.ndarray]) -> np.ndarray:
    """The teacher's logits at each word's first token, moved to the student's first token of that word."""
    rows = own.rows
    soft = np.full((len(rows.tokens), logits[0].shape[-1]), np.nan, dtype=np.float32)
    for place, one in enumerate(logits):
        count = min(len(own.notes[place]), len(theirs.notes[place]))  # one of them may have cut more words off
        soft[rows.starts[place] + own.notes[place][:count]] = one[theirs.notes[place][:count]]
    return soft


def matched_teacher(model: Labelled, corpus: DistilCorpus) -> Labelled:
    """The teacher, once it is known that its hidden states can be matched with the student's."""
    teacher: Labelled = corpus.teacher.labeller.model
    where, hint = str(corpus.teacher.folder.path), "leave out distil.hidden"
    if not isinstance(model.body, Encoder) or not isinstance(teacher.body, Encoder):
        raise InputError("only an encoder's hidden states are matched with another's", where=where, hint=hint)
    if corpus.form.tokenizer.state() != corpus.teacher.form.tokenizer.state():
        what = "has another tokenizer than the student, so that hidden states stand for other tokens"
        raise InputError(what, where=where, hint=hint)
    if corpus.form.length > teacher.body.config.context:
        what = f"reads {teacher.body.config.context} tokens, the student {corpus.form.length}"
        raise InputError(what, where=where, hint=f"use data.length={teacher.body.config.context}")
    return teacher


def keep_answers(path: Path, corpus: DistilCorpus, soft: np.ndarray) -> None:
    """Write down what the teacher said, and of what."""
    facts = {"texts": corpus.hash, "teacher": corpus.teacher.hash}
    with atomic_file(path) as temporary:
        save_file({"logits": np.ascontiguousarray(soft)}, temporary, metadata=facts)
        temporary.chmod(0o644)


def kept_answers(path: Path, corpus: DistilCorpus) -> np.ndarray | None:
    """What the teacher said before of these texts; None where it has to be asked."""
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="numpy") as file:
            facts, soft = file.metadata(), file.get_tensor("logits")
    except (SafetensorError, OSError) as error:
        raise InputError(f"is damaged ({error})", where=str(path), hint="delete it to ask the teacher again") from error
    if corpus.teacher.there and corpus.teacher.hash != facts["teacher"]:
        hint = "put it back, or begin a new run"
        raise InputError("has other weights than when this run began", where=str(corpus.teacher.folder.path), hint=hint)
    if facts["texts"] != corpus.hash:
        raise InputError("is about other texts", where=str(path), hint="delete it to ask the teacher again")
    result: np.ndarray = soft
    return result
