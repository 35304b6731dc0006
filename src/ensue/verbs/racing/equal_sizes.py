"""Systems of equal size: widths chosen so that each has as many parameters as the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ensue.core.settings import describe
from ensue.models.table import SYSTEMS
from ensue.runs.settings_resolution import own_settings, resolve
from ensue.tasks.backbones import body_of
from ensue.tasks.spec import TaskSpec

REFERENCE = "lstm"
"""The system whose preset says how large all are, where it takes part; else the first that has parameters."""


def matched_sizes(
    systems: Sequence[str], vocabulary: int, settings: Mapping[str, Any], task: TaskSpec
) -> dict[str, dict[str, Any]]:
    """For each system with a width, the ``hidden`` that brings it nearest to the common number of parameters.

    ``task`` is the task they are trained for.
    """
    wide = [name for name in systems if "hidden" in {f.name for f in describe(SYSTEMS.load(name).Config)}]
    if not wide:
        return {}
    target = parameters(REFERENCE if REFERENCE in wide else wide[0], vocabulary, settings, None, task)
    return {name: {"hidden": nearest_width(name, vocabulary, settings, target, task)} for name in wide}


def parameters(system: str, vocabulary: int, settings: Mapping[str, Any], hidden: int | None, task: TaskSpec) -> int:
    """How many parameters a system has, at a width or at its preset's; what labels is counted without its head."""
    layers: list[Mapping[str, Any]] = [own_settings(system, settings), {"hidden": hidden} if hidden else {}]
    chosen = resolve(system, task=task.name, layers=layers)
    cls = SYSTEMS.load(system)
    with torch.device("meta"):
        model = cls(cls.Config(**{**chosen.model, "vocabulary": vocabulary}))
    model = body_of(model) if task.labels else model
    return sum(p.numel() for p in model.parameters())


def nearest_width(system: str, vocabulary: int, settings: Mapping[str, Any], target: int, task: TaskSpec) -> int:
    """The width, a multiple of 16, with the number of parameters nearest to the target."""

    def size(width: int) -> int:
        return parameters(system, vocabulary, settings, width, task)

    low, high = 1, 512
    while low < high:  # parameters grow with width
        middle = (low + high) // 2
        if size(16 * middle) < target:
            low = middle + 1
        else:
            high = middle
    choices = [16 * n for n in (low - 1, low) if n >= 1]
    return min(choices, key=lambda width: abs(size(width) - target))
