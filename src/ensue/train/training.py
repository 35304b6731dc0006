"""What the training loop works with: its inputs, its progress, and its outcome."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import nn

from ensue.core.events import Report, silent
from ensue.train.checkpoints import Checkpoints
from ensue.train.layer_unfreezing import LayerUnfreezing
from ensue.train.metrics import Metrics
from ensue.train.objectives import Objective
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


@dataclass
class Progress:
    """Where training stands; saved with every checkpoint."""

    step: int = 0
    best: float = math.inf
    stale: int = 0
    """Evaluations since the best one."""
    lr_scale: float = 1.0
    """Learning-rate factor after plateaus."""
    penalty: float = 1.0
    """Learning-rate factor after rollbacks."""
    rollbacks: int = 0
    """Rollbacks since the last scheduled checkpoint."""
    seconds: float = 0.0
    """Time spent in updates."""
    overhead: float = 0.0
    """Time spent on evaluations, samples and checkpoints."""
    loss: float = 0.0
    """Sum of losses since the last metrics record."""
    count: int = 0
    """Updates since the last metrics record."""
    tokens: int = 0
    rate: float = 0.0
    norm: float = 0.0
    top: float = 0.0
    """Largest gradient norm since the last metrics record."""
    clipped: int = 0
    """Clipped updates since the last metrics record."""
    owed: bool = False
    """Whether the evaluation due at this step was interrupted."""

    def add_update(self, loss: float, norm: float, rate: float, clip: float) -> None:
        """Count an update."""
        self.step, self.rate, self.norm = self.step + 1, rate, norm
        self.loss, self.count = self.loss + loss, self.count + 1
        self.top = max(self.top, norm)
        self.clipped += 0 < clip <= norm


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


@dataclass(kw_only=True)
class Training:
    """Everything the training loop needs."""

    model: nn.Module
    objective: Objective
    batches: Batches
    settings: TrainSettings
    checkpoints: Checkpoints
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
    """Whether the model is compiled; the trial that measures its speed then compiles its copy too."""
    ranks: Ranks = field(default_factory=Ranks)
    with_weights: RunWithWeights = run_directly
    """Runs a callable with full parameters gathered."""

    def run_hooks(self, step: int) -> None:
        """Call all hooks."""
        for hook in ([self.unfreezing] if self.unfreezing else []) + list(self.after_update):
            hook(self.model, step)

    def badness(self, measures: Mapping[str, float]) -> float:
        """Return the value that the best weights minimise."""
        value = measures[self.selection_metric]
        return value if self.selection_metric == "valid_loss" else -value
