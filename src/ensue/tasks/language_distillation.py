"""Distillation of language models: a small one learns the distribution of the next token from a large one.

The student has the teacher's tokenizer, and reads the same windows or streams as any language model. The teacher reads
each batch too; its distributions over the whole vocabulary would fill a disk, so they are not kept.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError
from ensue.core.events import Report
from ensue.core.run_folder import RunFolder
from ensue.core.table import load_target
from ensue.data.tokenizers.registry import load_tokenizer
from ensue.models.language import LanguageModel
from ensue.tasks.language_modelling import LanguageTask, TextCorpus, read_text_corpus
from ensue.tasks.settings import Settings
from ensue.tasks.spec import saved_tokenizer
from ensue.train.objectives import Objective
from ensue.train.token_distillation import TokenDistillation


class LanguageTeacher:
    """The run of a teacher; its model is loaded when it is first used."""

    def __init__(self, path: str) -> None:
        self.folder = RunFolder(Path(path))

    @cached_property
    def config(self) -> dict[str, Any]:
        """Its config.json; raises InputError if it predicts no next token."""
        config = self.folder.read_config()
        self.folder.verify()
        if config.get("task", LanguageTask.name) != LanguageTask.name or config.get("direction") == "backward":
            what = f"is a {config['system']}, which cannot teach to predict the next token"
            raise InputError(what, where=str(self.folder.path), hint="name a run of gpt, llama or lstm")
        return config

    @cached_property
    def model(self) -> Any:
        """Its model."""
        load_model = load_target("ensue.runs.load_model:load_model")
        model = load_model(self.folder, self.config, load_tokenizer(self.folder.tokenizer))
        if not (hasattr(model, "head") and model.traits.steps):
            what = f"a {self.config['system']} has no output layer to learn from"
            raise InputError(what, where=str(self.folder.path), hint="name a run of gpt, llama or lstm")
        return model.requires_grad_(False)


class LanguageDistilTask(LanguageTask):
    """Predict the next token as a teacher does."""

    def read_corpus(self, settings: Settings, folder: RunFolder | None, report: Report) -> TextCorpus:
        """Read the text with the teacher's tokenizer."""
        if settings.tokenizer.kind != "auto" and saved_tokenizer(folder) is None:
            raise InputError("a student has the teacher's tokenizer", hint="leave out --tokenizer")
        teacher = LanguageTeacher(settings.run.teacher)
        assert teacher.config
        tokenizer = saved_tokenizer(folder) or load_tokenizer(teacher.folder.tokenizer)
        return read_text_corpus(settings.data, settings.tokenizer, tokenizer, report)

    def objective(self, settings: Settings, model: LanguageModel, corpus: TextCorpus) -> Objective:
        """Return the loss of the teacher's distributions and of the text itself."""
        teacher = LanguageTeacher(settings.run.teacher).model
        if teacher.config.vocabulary < model.config.vocabulary:
            what = f"has {teacher.config.vocabulary:,} tokens, and its student {model.config.vocabulary:,}"
            raise InputError(what, where=settings.run.teacher, hint="leave out vocabulary")
        if not hasattr(model, "head"):
            what = f"{settings.run.system} has no output layer to teach"
            raise InputError(what, hint="train gpt, llama, lstm, gru, rnn or window")
        return TokenDistillation(teacher, settings.distil.weight, settings.distil.temperature)
