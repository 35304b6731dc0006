"""Check, before anything is read or built, that a model to be trained fits into memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ensue.core.device import check_device
from ensue.core.errors import InputError
from ensue.core.memory import MEMORY_VARIABLE, available_memory
from ensue.core.run_folder import RunFolder
from ensue.core.schema import MAX_WHOLE
from ensue.core.sizes import size_in_words
from ensue.measure.cost import training_state_bytes
from ensue.nn.planning import without_storage
from ensue.runs.build_model import model_values
from ensue.tasks.settings import VOCABULARIES, Settings
from ensue.tasks.table import model_class, task_spec
from ensue.train.ranks import Ranks

MIN_VOCABULARY = 2
"""The size of a vocabulary before the text is read."""
MAX_PARTS = 10_000
"""The most layers, or experts of a layer: they are built one by one, even without storage."""


PARTS = ("layers", "experts", "sets")
"""Settings that count parts of a model, each of which has weights of its own."""


def check_parts(values: Mapping[str, Any], most: int = MAX_PARTS) -> None:
    """Refuse model settings with more layers, sets or experts than can be built, or than there are tensors for."""
    most = min(most, MAX_PARTS)
    for name in PARTS:
        if isinstance(values.get(name), int) and values[name] > max(1, most):
            count = f"{values[name]:,}" if values[name] <= MAX_WHOLE else "that many"
            raise InputError(f"{count} {name} cannot be built", hint=f"at most {most:,} can")


def check_memory(settings: Settings, ranks: Ranks, corpus: Any = None, base: RunFolder | None = None) -> None:
    """Refuse a model whose weights, gradients and optimiser state alone exceed the memory.

    Without ``corpus`` the vocabulary has its smallest size, so nothing is refused that might fit. ``base`` has the
    weights in groups that adapters are trained beside; they are mapped from its file.
    """
    check_parts(settings.model)
    values = _model_values(settings, corpus)
    model = _meta_model(model_class(settings.run.system, settings.run.task), values) if values is not None else None
    if model is None:
        return
    whole = sum(p.nbytes for p in model.parameters())
    task_spec(settings.run.task).prepare_model(settings, model, corpus)
    device = ranks.device(check_device(settings.run.device))
    memory = torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else available_memory()
    shards = ranks.world_size if settings.train.shard else 1
    needed = [size // shards for size in training_state_bytes(model, settings.train)]
    if base is not None:
        needed[0] += (base.base or base).weights.stat().st_size - whole
    if sum(needed) <= memory:
        return
    sizes = [size_in_words(size) for size in (sum(needed), *needed, memory)]
    what = "training needs {} before any activation ({} weights, {} gradients, {} optimiser), and there is {}"
    hint = f"choose smaller settings (`ensue cost` counts them), or set {MEMORY_VARIABLE}=64G if there is more"
    raise InputError(what.format(*sizes), hint=hint)


def _model_values(settings: Settings, corpus: Any) -> Mapping[str, Any] | None:
    """The model's settings as it will be built; None for a model that counts, has a head, or follows from its data."""
    cls = model_class(settings.run.system, settings.run.task)
    task = getattr(cls, "task", "")
    if hasattr(cls, "counter") or not task or settings.run.task not in ("", task):
        return None
    if task_spec(task).example_loss is None:
        return None
    values = dict(settings.model) if corpus is None else model_values(settings, corpus)
    if values.get("tied") == "auto":
        values["tied"] = "all"  # the fewest tables
    return {name: max(value, MIN_VOCABULARY) if name in VOCABULARIES else value for name, value in values.items()}


def _meta_model(cls: Any, values: Mapping[str, Any]) -> Any:
    """The model without storage; None if it cannot be built, which is reported when it is built for training."""
    try:
        with without_storage():
            return cls(cls.Config(**values))
    except (InputError, RuntimeError, OverflowError, TypeError):
        return None
