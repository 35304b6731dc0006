"""By what means a task trains, beyond its objective: which layers learn, what chooses the best weights, and in
what units its progress is told."""

from __future__ import annotations

from dataclasses import dataclass

from ensue.train.layer_unfreezing import Thawing


@dataclass(frozen=True)
class Means:
    """What a task asks of the loop."""

    thawing: Thawing | None = None
    chosen_by: str = "valid_loss"
    counts: str = "tokens"
    """What a batch is made of, of which so many are read a second."""
    unit: str = "nats a token"
    """What a loss is in."""
