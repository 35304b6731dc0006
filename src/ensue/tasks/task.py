"""What a task is to ``fit``: how its data is read, what is trained on it, and how the outcome is measured.

A task is a module with these functions. It joins a reader, a model, an objective and a measure, and nothing else. Where
it has nothing to add, its functions are those of ``ensue.tasks.defaults``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

from ensue.core.errors import InputError
from ensue.core.events import Report
from ensue.core.run_folder import RunFolder
from ensue.core.seeds import derive, seed_everything
from ensue.models.model import Model
from ensue.models.table import model_class
from ensue.tasks import contexts, forecast, language_modelling, translation, words
from ensue.tasks import masked_modelling as masked
from ensue.tasks.distillation import DistilTask
from ensue.tasks.features import acquaint
from ensue.tasks.labelled import LabelTask
from ensue.tasks.labels import LABEL_KINDS
from ensue.tasks.settings import VOCABULARIES, Settings
from ensue.tasks.training_options import Means
from ensue.train.loop import Evaluate
from ensue.train.objectives import Objective


class Task(Protocol):
    """The functions of a task."""

    def corpus_of(self, settings: Settings, folder: RunFolder | None, report: Report) -> Any:
        """The run's data as tokens, with a ``hash``; tokenizers are the folder's where it has them already."""

    def save_tokenizers(self, corpus: Any, folder: RunFolder) -> None:
        """Write the tokenizers into a run's folder."""

    def prepared(self, settings: Settings, corpus: Any, folder: RunFolder, report: Report) -> Any:
        """The data with what takes long to find out; it is kept in the run's folder, and found there again."""

    def model_facts(self, settings: Settings, corpus: Any) -> dict[str, Any]:
        """What the data says of a model's settings: the sizes of vocabularies."""

    def resolved(self, settings: Settings, model: Any, corpus: Any) -> Settings:
        """The settings with everything that was left to us filled in, so that run.toml hides nothing."""

    def with_head(self, settings: Settings, model: Any, corpus: Any) -> Any:
        """The model with what the task adds to a system: a head that labels, for some."""

    def means(self, settings: Settings, model: Any, corpus: Any) -> Means:
        """Which layers learn, and what chooses the best weights."""

    def finished(self, model: Any) -> Any:
        """The model once it is trained, with what only training needed taken away."""

    def batches(self, settings: Settings, model: Any, corpus: Any) -> Any:
        """The training data as batches, each a pure function of its number."""

    def objective(self, settings: Settings, model: Any, corpus: Any) -> Objective:
        """What training asks of the model."""

    def evaluation(self, settings: Settings, model: Any, corpus: Any) -> Evaluate | None:
        """What the loop calls to see how the model does on held-out data."""

    def writer(self, settings: Settings, model: Any, corpus: Any, device: torch.device) -> Callable[[], str] | None:
        """What the loop calls to show what the model writes as it learns."""

    def final_figures(
        self, settings: Settings, model: Any, corpus: Any, folder: RunFolder, report: Report
    ) -> dict[str, Any] | None:
        """How the finished model does on all of the held-out data."""

    def describe_corpus(self, corpus: Any) -> dict[str, Any]:
        """Facts of the data for the model card."""


TASKS: dict[str, Task] = {
    "language": language_modelling,
    "translation": translation,
    "masked": masked,
    "contexts": contexts,
    "words": words,
    "forecast": forecast,
    **{name: LabelTask(kind) for name, kind in LABEL_KINDS.items()},
}


def task_of(settings: Settings) -> Task:
    """The task of a run; one with a teacher learns its answers."""
    if settings.run.teacher:
        return DistilTask(LABEL_KINDS[settings.run.task])
    return TASKS[settings.run.task]


def build_model(settings: Settings, corpus: Any) -> Any:
    """A new model for this data, its weights drawn from the run's seed."""
    cls, task = model_class(settings.run.system, settings.run.task), task_of(settings)
    facts = task.model_facts(settings, corpus)
    values = {**settings.model, **{name: fact for name, fact in facts.items() if name in settings.model}}
    for name in VOCABULARIES:  # a model that was trained elsewhere may have room for more tokens than there are
        if name in values:
            values[name] = max(values[name], settings.model[name])
    seed_everything(derive(settings.run.seed, "model"))
    try:
        model: Model = cls(cls.Config(**values))
    except (RuntimeError, OverflowError, MemoryError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"a model of this size cannot be built ({reason})", hint="choose smaller settings") from error
    made = task.with_head(settings, model, corpus)
    acquaint(made, getattr(corpus, "tokenizer", None))
    return made
