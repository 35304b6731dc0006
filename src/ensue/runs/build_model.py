"""Build the model of a run."""

from __future__ import annotations

from typing import Any

from ensue.core.errors import InputError
from ensue.core.seeds import derive, seed_everything
from ensue.models.model import Model
from ensue.tasks.labels.features import set_spelling
from ensue.tasks.settings import VOCABULARIES, Settings
from ensue.tasks.table import model_class, task_of


def build_model(settings: Settings, corpus: Any) -> Any:
    """Build a new model for this data, with random weights from the run's seed."""
    cls, task = model_class(settings.run.system, settings.run.task), task_of(settings)
    facts = task.model_settings(settings, corpus)
    values = {**settings.model, **{name: fact for name, fact in facts.items() if name in settings.model}}
    for name in VOCABULARIES:  # a converted model may have a larger vocabulary than its tokenizer
        if name in values:
            values[name] = max(values[name], settings.model[name])
    seed_everything(derive(settings.run.seed, "model"))
    try:
        model: Model = cls(cls.Config(**values))
    except (RuntimeError, OverflowError, MemoryError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"a model of this size cannot be built ({reason})", hint="choose smaller settings") from error
    made = task.add_head(settings, model, corpus)
    set_spelling(made, getattr(corpus, "tokenizer", None))
    return made
