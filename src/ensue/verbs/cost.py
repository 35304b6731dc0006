"""``ensue cost``: parameters and FLOPs of a system, counted on a model that is never filled with numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ensue.core.errors import InputError
from ensue.measure.cost import flops_per_token, parameter_parts
from ensue.models.table import SYSTEMS
from ensue.tasks.resolving import resolve, task_name
from ensue.tasks.settings import LABELS, VOCABULARIES


def cost(
    system: str, *, vocabulary: int = 10000, preset: str = "", settings: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What a system would cost with this vocabulary.

    >>> cost("window", vocabulary=100, settings={"context": 2, "embedding": 8, "hidden": 16})["parameters"]
    2772
    """
    import torch

    cls = SYSTEMS.load(system)
    if cls.__name__ == "NGram":
        raise InputError(
            "an n-gram model has no parameters: its size follows from the text",
            mend="see `ensue look ngrams`",
        )
    if getattr(cls, "task", "") in LABELS:
        raise InputError(f"{system} is built on another run, whose size it has too", mend="ask for that one's system")
    if task_name(system) == "forecast":
        raise InputError(f"{system} reads numbers, and its size follows from the series", mend="`ensue fit` says it")
    chosen = resolve(system, preset=preset, layers=[settings or {}])
    if vocabulary < 2:
        raise InputError(f"a vocabulary of {vocabulary} is too small", mend="at least 2 tokens are needed")
    values = {name: vocabulary if name in VOCABULARIES else value for name, value in chosen.model.items()}
    if values.get("tied") == "auto":
        values["tied"] = "all"  # one vocabulary for both languages
    try:
        with torch.device("meta"):
            model = cls(cls.Config(**values))
    except (RuntimeError, OverflowError, TypeError) as error:
        raise InputError(f"a model of this size cannot be built ({str(error).splitlines()[0]})") from error
    parameters = sum(p.numel() for p in model.parameters())
    forward = flops_per_token(model)
    return {
        "system": system,
        "vocabulary": vocabulary,
        "parameters": parameters,
        "bytes": 4 * parameters,
        "parts": parameter_parts(model),
        "flops_per_token": forward,
        "train_flops_per_token": 3 * forward,
        "settings": values,
    }
