"""Whether this machine's memory can hold a model that is to be trained, asked before anything is read or built."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from ensue.core.errors import InputError
from ensue.core.memory import ROOM, memory_here
from ensue.measure.cost import LOSSES, held
from ensue.models.table import model_class
from ensue.tasks.machine import check_device
from ensue.tasks.settings import VOCABULARIES, Settings
from ensue.tasks.task import task_of
from ensue.train.ranks import Ranks

FEWEST = 2
"""Tokens that every vocabulary has, where it is not known yet."""
MOST = 16
"""Bytes that training holds of a parameter, at the most: weight, gradient, and AdamW's two memories, float32."""


def check_room(settings: Settings, ranks: Ranks, corpus: Any = None) -> None:
    """Refuse a model whose weights, gradients and optimiser's memory alone are more than there is.

    Before the text is read its vocabulary is as small as can be; nothing is refused that might fit.
    """
    cls = model_class(settings.run.system, settings.run.task)
    values = _values(settings, corpus)
    if values is None or hasattr(cls, "counter"):
        return
    device = ranks.device(check_device(settings.run.device))
    room = torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else memory_here()
    parts = ranks.count if settings.train.shard else 1
    build = partial(_built, cls, values)
    if MOST * _parameters(build) <= room * parts:
        return
    needed = [one // parts for one in held(build, settings.train)]
    if sum(needed) <= room:
        return
    apart = ", ".join(f"{_gigabytes(one)} {name}" for one, name in zip(needed, ("weights", "gradients", "optimiser")))
    what = f"training needs {_gigabytes(sum(needed))} before any activation ({apart}), and there are {_gigabytes(room)}"
    mend = f"choose smaller settings, or {ROOM}={2 * sum(needed) // 10**9}G if there is more; `ensue cost` counts it"
    raise InputError(what, mend=mend)


def _values(settings: Settings, corpus: Any) -> Mapping[str, Any] | None:
    """The settings of the model as it will be built; None where they follow from more than a vocabulary, or where not
    all of it is learnt."""
    cls = model_class(settings.run.system, settings.run.task)
    if getattr(cls, "task", "") not in LOSSES or settings.run.task not in ("", getattr(cls, "task", "")):
        return None
    facts = task_of(settings).model_facts(settings, corpus) if corpus is not None else {}
    values = {**settings.model, **{name: fact for name, fact in facts.items() if name in settings.model}}
    if values.get("tied") == "auto":
        values["tied"] = "all"  # the fewest tables
    return {name: max(value, FEWEST) if name in VOCABULARIES else value for name, value in values.items()}


def _built(cls: Any, values: Mapping[str, Any]) -> Any:
    return cls(cls.Config(**values))


def _parameters(build: Any) -> int:
    """How many there are; 0 where the model cannot be built, which is said in its time."""
    try:
        with torch.device("meta"):
            return sum(p.numel() for p in build().parameters())
    except (InputError, RuntimeError, OverflowError, TypeError):
        return 0


def _gigabytes(count: float) -> str:
    """
    >>> _gigabytes(2_793_668_149_248)
    '2,793.7 GB'
    """
    return f"{count / 1e9:,.1f} GB"
