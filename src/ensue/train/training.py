"""What the training loop works with: its inputs and its outcome."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import nn

from ensue.core.events import Report, silent
from ensue.nn.mixers.mixer import Mixer
from ensue.train.budget import Pace
from ensue.train.checkpoints import Checkpoints
from ensue.train.layer_unfreezing import LayerUnfreezing
from ensue.train.metrics import Metrics
from ensue.train.objectives import Objective
from ensue.train.plan import Plan, fixed_plan
from ensue.train.ranks import Evaluate, Ranks, RunWithWeights, run_directly
from ensue.train.settings import TrainSettings

Hook = Callable[[nn.Module, int], None]
"""Gets the model and the number of updates made so far."""


class Batches(Protocol):
    """Batches by number. A batch has a method ``select`` that selects rows, for ranks."""

    rows: int

    def batch(self, number: int) -> Any:
        """Return batch ``number`` of an endless sequence of epochs."""
        ...


@dataclass(frozen=True)
class Outcome:
    """How training ended."""

    stopped: str
    """``finished``, ``budget``, ``patience``, or the name of a signal."""
    step: int
    seconds: float
    best: float
    tokens: int = 0
    """Tokens trained on, with repetitions."""
    pace: Pace | None = None
    """The use of the budget, if there was one."""


@dataclass(kw_only=True)
class Training:
    """Everything the training loop needs."""

    model: nn.Module
    objective: Objective
    batches: Batches
    settings: TrainSettings
    checkpoints: Checkpoints
    pace: Pace | None = None
    """Given, the plan is revised to keep the budget; without it the plan is followed as it is."""
    record_plan: Callable[[], None] = lambda: None
    """Writes the plan to run.toml; called when the speed is known, and before a revision takes effect."""
    metrics: Metrics | None = None
    evaluate: Evaluate | None = None
    selection_metric: str = "valid_loss"
    """The metric that selects the best weights: the lowest ``valid_loss``, or the highest of another metric."""
    item_name: str = "tokens"
    """What batches consist of, for progress reports."""
    loss_unit: str = "nats a token"
    sample: Callable[[], str] | None = None
    """Generates a text."""
    unfreezing: LayerUnfreezing | None = None
    """Learning-rate factors and frozen layers; without it all layers are trained alike. It is the first hook."""
    after_update: Sequence[Hook] = ()
    """Hooks called after each optimiser update, and before the first one of a process or after a rollback."""
    report: Report = silent
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    compile: bool = False
    """Whether the model is compiled."""
    ranks: Ranks = field(default_factory=Ranks)
    with_weights: RunWithWeights = run_directly
    """Runs a callable with full parameters gathered."""

    @cached_property
    def plan(self) -> Plan:
        """How many steps, with how many threads: that of the settings, unless another one is assigned."""
        return fixed_plan(self.settings)

    def clock(self) -> float:
        """Return the time by the clock of the budget."""
        return time.perf_counter() if self.pace is None else self.pace.clock()

    def run_hooks(self, step: int) -> None:
        """Call all hooks, and those of the mixers."""
        for module in self.model.modules():
            if isinstance(module, Mixer):
                module.after_update(step)
        for hook in ([self.unfreezing] if self.unfreezing else []) + list(self.after_update):
            hook(self.model, step)

    def badness(self, measures: Mapping[str, float]) -> float:
        """Return the value that the best weights minimise."""
        value = measures[self.selection_metric]
        return value if self.selection_metric == "valid_loss" else -value
