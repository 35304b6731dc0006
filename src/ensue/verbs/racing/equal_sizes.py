"""Systems of equal size: hidden sizes that give all systems about the same number of parameters."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ensue.core.settings import describe
from ensue.models.backbones import body_of
from ensue.models.table import SYSTEMS
from ensue.runs.settings_resolution import own_settings, resolve
from ensue.tasks.spec import Task

REFERENCE = "lstm"
"""The system whose preset sets the size of all, if it takes part; otherwise it is the first with parameters."""


def equal_sizes(
    systems: Sequence[str], vocabulary: int, settings: Mapping[str, Any], task: Task
) -> dict[str, dict[str, Any]]:
    """For each system with a hidden size, the ``hidden`` whose number of parameters is nearest to the reference's."""
    sized = [name for name in systems if "hidden" in {f.name for f in describe(SYSTEMS.load(name).Config)}]
    if not sized:
        return {}
    target = parameters(REFERENCE if REFERENCE in sized else sized[0], vocabulary, settings, None, task)
    return {name: {"hidden": nearest_width(name, vocabulary, settings, target, task)} for name in sized}


def parameters(system: str, vocabulary: int, settings: Mapping[str, Any], hidden: int | None, task: Task) -> int:
    """The number of parameters of a system, at ``hidden`` or its preset's hidden size, without a labelling head."""
    layers: list[Mapping[str, Any]] = [own_settings(system, settings), {"hidden": hidden} if hidden else {}]
    chosen = resolve(system, task=task.name, layers=layers)
    cls = SYSTEMS.load(system)
    with torch.device("meta"):
        model = cls(cls.Config(**{**chosen.model, "vocabulary": vocabulary}))
    model = body_of(model) if task.labels else model
    return sum(p.numel() for p in model.parameters())


def nearest_width(system: str, vocabulary: int, settings: Mapping[str, Any], target: int, task: Task) -> int:
    """The hidden size, a multiple of 16, whose number of parameters is nearest to ``target``."""

    def size(width: int) -> int:
        return parameters(system, vocabulary, settings, width, task)

    widths = range(16, 16 * 512 + 1, 16)
    first = bisect_left(widths[:-1], target, key=size)  # parameters grow with the width
    return min(widths[max(first - 1, 0) : first + 1], key=lambda width: abs(size(width) - target))
