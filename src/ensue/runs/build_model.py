"""Build the model of a run."""

from __future__ import annotations

from typing import Any

from ensue.core.errors import InputError
from ensue.core.seeds import derive, seed_everything
from ensue.models.model import Model
from ensue.nn.planning import without_storage
from ensue.tasks.labels.features import set_spelling
from ensue.tasks.settings import VOCABULARIES, Settings
from ensue.tasks.table import model_class, task_of


def build_model(settings: Settings, corpus: Any) -> Any:
    """Build a new model for this data, with random weights from the run's seed."""
    cls, values = model_class(settings.run.system, settings.run.task), model_values(settings, corpus)
    try:
        _check_size(cls, values)
        seed_everything(derive(settings.run.seed, "model"))
        model: Model = cls(cls.Config(**values))
    except (RuntimeError, OverflowError, MemoryError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"a model of this size cannot be built ({reason})", hint="choose smaller settings") from error
    with_head = task_of(settings).add_head(settings, model, corpus)
    set_spelling(with_head, getattr(corpus, "tokenizer", None))
    return with_head


def _check_size(cls: type[Any], values: dict[str, Any]) -> None:
    """Raise an error for a tensor of more elements than can be numbered, before smaller ones fill the memory."""
    try:
        with without_storage():
            cls(cls.Config(**values))
    except (RuntimeError, OverflowError, TypeError) as error:
        if "overflow" in str(error):
            raise  # other errors may be of the planning, for which a model need not be made


def model_values(settings: Settings, corpus: Any) -> dict[str, Any]:
    """Return the model's settings with those that follow from the corpus."""
    facts = task_of(settings).model_settings(settings, corpus)
    values = {**settings.model, **{name: fact for name, fact in facts.items() if name in settings.model}}
    for name in VOCABULARIES:  # a converted model may have a larger vocabulary than its tokenizer
        if name in values:
            values[name] = max(values[name], settings.model[name])
    return values
