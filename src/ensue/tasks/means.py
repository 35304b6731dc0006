"""By what means a task trains, beyond its objective: which layers learn, and what chooses the best weights."""

from __future__ import annotations

from dataclasses import dataclass

from ensue.train.thawing import Thawing


@dataclass(frozen=True)
class Means:
    """What a task asks of the loop."""

    thawing: Thawing | None = None
    chosen_by: str = "valid_loss"
