"""Objectives, optimisers, the training loop, checkpoints and distributed training; no particular model."""

# ruff: noqa: I001 (names of one module stay on one line)
from __future__ import annotations

from typing import TYPE_CHECKING

from ensue.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from ensue.train.budget import plan as plan
    from ensue.train.checkpoints import Checkpoint as Checkpoint, Checkpoints as Checkpoints
    from ensue.train.counting import Counter as Counter, count as count, fit_by_counting as fit_by_counting
    from ensue.train.distillation import Distil as Distil
    from ensue.train.forecast_objectives import Forecast as Forecast
    from ensue.train.label_objectives import Label as Label
    from ensue.train.loop import Outcome as Outcome, Progress as Progress, Training as Training, train as train
    from ensue.train.metrics import Metrics as Metrics, read_metrics as read_metrics
    from ensue.train.objectives import ExpectedReward as ExpectedReward, Objective as Objective, Translate as Translate
    from ensue.train.optimisers import build_optimiser as build_optimiser, learning_rate as learning_rate
    from ensue.train.process_group import ranks_here as ranks_here
    from ensue.train.ranks import Ranks as Ranks
    from ensue.train.settings import TrainSettings as TrainSettings

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
