"""Where a training stands: everything but tensors that an interruption must not lose."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass
class PlanProgress:
    """Where a training stands in its plan (ensue.train.plan)."""

    step: int = 0
    updates: int = 0
    """Updates tried, rolled-back ones included; revisions of the plan are keyed by it."""
    position: float = 0.0
    """Share of the training that is done, along the plan."""
    previous_position: float = 0.0
    """That share one step before."""
    anchor_step: int = 0
    """Step at which the plan was last revised."""
    anchor_position: float = 0.0
    """Position at which the plan was last revised."""

    def anchor(self) -> None:
        """Continue from here to the end of a revised plan."""
        self.anchor_step, self.anchor_position = self.step, self.position


@dataclass
class Progress(PlanProgress):
    """Where training stands; saved with every checkpoint."""

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
    restored: int = 0
    """Step of the checkpoint that the last rollback returned to."""

    def add_time(self, seconds: float, tokens: int) -> None:
        """Count an update's time and tokens, whether or not its loss is finite."""
        self.seconds, self.tokens, self.updates = self.seconds + seconds, self.tokens + tokens, self.updates + 1

    def add_update(self, loss: float, norm: float, rate: float, clip: float) -> None:
        """Count an update."""
        self.step, self.rate, self.norm = self.step + 1, rate, norm
        self.loss, self.count = self.loss + loss, self.count + 1
        self.top = max(self.top, norm)
        self.clipped += 0 < clip <= norm
