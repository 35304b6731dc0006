"""Whether this machine's memory can hold a model that is to be trained, asked before anything is read or built."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ensue.core.errors import InputError
from ensue.core.memory import MEMORY_VARIABLE, available_memory
from ensue.core.sizes import size_in_words
from ensue.measure.cost import training_state_bytes
from ensue.tasks.machine import check_device
from ensue.tasks.settings import VOCABULARIES, Settings
from ensue.tasks.table import model_class, task_of, task_spec
from ensue.train.ranks import Ranks

FEWEST = 2
"""Tokens that every vocabulary has, where it is not known yet."""


def check_room(settings: Settings, ranks: Ranks, corpus: Any = None) -> None:
    """Refuse a model whose weights, gradients and optimiser's memory alone are more than there is.

    Before the text is read its vocabulary is as small as can be; nothing is refused that might fit.
    """
    cls = model_class(settings.run.system, settings.run.task)
    values = _values(settings, corpus)
    if values is None or hasattr(cls, "counter"):
        return
    device = ranks.device(check_device(settings.run.device))
    room = torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else available_memory()
    parts = ranks.world_size if settings.train.shard else 1
    model = _shape(cls, values)
    if model is None:
        return
    needed = [one // parts for one in training_state_bytes(model, settings.train)]
    if sum(needed) <= room:
        return
    sizes = [size_in_words(one) for one in (sum(needed), *needed, room)]
    what = "training needs {} before any activation ({} weights, {} gradients, {} optimiser), and there is {}"
    hint = f"choose smaller settings (`ensue cost` counts them), or say with {MEMORY_VARIABLE}=64G that there is more"
    raise InputError(what.format(*sizes), hint=hint)


def _values(settings: Settings, corpus: Any) -> Mapping[str, Any] | None:
    """The settings of the model as it will be built; None where they follow from more than a vocabulary, or where not
    all of it is learnt."""
    task = getattr(model_class(settings.run.system, settings.run.task), "task", "")
    if not task or settings.run.task not in ("", task) or task_spec(task).example_loss is None:
        return None
    facts = task_of(settings).model_settings(settings, corpus) if corpus is not None else {}
    values = {**settings.model, **{name: fact for name, fact in facts.items() if name in settings.model}}
    if values.get("tied") == "auto":
        values["tied"] = "all"  # the fewest tables
    return {name: max(value, FEWEST) if name in VOCABULARIES else value for name, value in values.items()}


def _shape(cls: Any, values: Mapping[str, Any]) -> Any:
    """The model without any numbers; None where it cannot be built, which is said in its time."""
    try:
        with torch.device("meta"):
            return cls(cls.Config(**values))
    except (InputError, RuntimeError, OverflowError, TypeError):
        return None
