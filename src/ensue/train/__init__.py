"""Objectives, optimisers, the training loop, checkpoints and distributed training; no particular model."""

# ruff: noqa: I001 (names of one module stay on one line)
from __future__ import annotations

from typing import TYPE_CHECKING

from ensue.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from ensue.train.budget import Pace as Pace
    from ensue.train.checkpoints import Checkpoint as Checkpoint, Checkpoints as Checkpoints
    from ensue.train.counting import Counter as Counter, count as count, fit_by_counting as fit_by_counting
    from ensue.train.distillation import DistillationLoss as DistillationLoss
    from ensue.train.forecast_objectives import ForecastLoss as ForecastLoss
    from ensue.train.label_objectives import LabelLoss as LabelLoss
    from ensue.train.layer_unfreezing import LayerUnfreezing as LayerUnfreezing
    from ensue.train.loop import train as train
    from ensue.train.metrics import Metrics as Metrics, read_metrics as read_metrics
    from ensue.train.objectives import ExpectedReward as ExpectedReward, Objective as Objective
    from ensue.train.objectives import TranslationLoss as TranslationLoss, next_token_loss as next_token_loss
    from ensue.train.optimisers import build_optimiser as build_optimiser, learning_rate as learning_rate
    from ensue.train.process_group import join_process_group as join_process_group
    from ensue.train.ranks import Ranks as Ranks
    from ensue.train.settings import TrainSettings as TrainSettings
    from ensue.train.training import Outcome as Outcome, Training as Training
    from ensue.train.update import update as update

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
