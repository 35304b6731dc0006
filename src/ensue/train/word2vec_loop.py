"""Training with a trainer that updates weights in place, as word2vec's kernels do: no gradients, no optimiser.

Everything random follows from the number of a step, so a checkpoint holds the weights and that number only.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from ensue.core.errors import InputError
from ensue.core.events import Report
from ensue.train.budget import PLANNED_SHARE, TRIAL_SHARE, median_seconds
from ensue.train.checkpoints import STOP, Checkpoint, Checkpoints
from ensue.train.interrupts import Interrupts
from ensue.train.metrics import Metrics
from ensue.train.settings import WordTrainSettings
from ensue.train.training import Outcome

CHECKPOINT_SECONDS = 30.0
"""Seconds between checkpoints where the settings give no number of steps."""


class InPlaceTrainer(Protocol):
    """Updates a model's weights in place, step by step."""

    model: Any
    steps_per_epoch: int

    def rate(self, step: int, steps: int) -> float:
        """Return the learning rate before a step of ``steps``."""

    def update(self, step: int, steps: int) -> tuple[float, int]:
        """Run a step; return its mean loss and its number of tokens."""

    def trial(self) -> InPlaceTrainer:
        """Return a copy with its own weights, to measure the speed."""


def plan_word2vec(trainer: InPlaceTrainer, settings: WordTrainSettings, report: Report) -> WordTrainSettings:
    """Return the settings with the number of steps: those of the epochs, or fewer if the budget is too small."""
    steps = settings.steps or max(1, round(settings.epochs * trainer.steps_per_epoch))
    if not settings.budget:
        return replace(settings, steps=steps)
    started, trial = time.perf_counter(), trainer.trial()
    seconds = median_seconds(
        lambda number: trial.update(number, steps), settings.budget * TRIAL_SHARE, most=settings.budget / 2
    )
    allowed = max(1, int((settings.budget * PLANNED_SHARE - (time.perf_counter() - started)) / seconds))
    if allowed < steps:
        report("plan", {"steps": allowed, "step_seconds": seconds})
    return replace(settings, steps=min(steps, allowed))


@dataclass
class InPlaceProgress:
    """Where training stands; saved with every checkpoint."""

    step: int = 0
    seconds: float = 0.0
    tokens: int = 0
    losses: list[float] = field(default_factory=list)
    """Losses since the last metrics record."""


def train_word2vec(
    trainer: InPlaceTrainer, settings: WordTrainSettings, checkpoints: Checkpoints, metrics: Metrics, report: Report
) -> Outcome:
    """Train from the latest checkpoint until the steps are done, the budget is spent, or a signal arrives."""
    progress, stopped = restore(trainer, checkpoints, report), ""
    before, saved = progress.seconds, time.perf_counter()
    started = saved - before
    with Interrupts() as interrupts:
        while progress.step < settings.steps and not stopped:
            rate = trainer.rate(progress.step, settings.steps)
            loss, tokens = trainer.update(progress.step, settings.steps)
            if not math.isfinite(loss):
                raise InputError(f"the loss is not finite at step {progress.step + 1}", hint="use a lower train.lr")
            progress.step, progress.tokens = progress.step + 1, progress.tokens + tokens
            progress.seconds = time.perf_counter() - started
            progress.losses.append(loss)
            log(progress, settings, rate, metrics, report)
            if progress.step == settings.steps:
                break
            if checkpoint_due(settings, progress.step, saved):
                save(trainer, progress, checkpoints)
                saved = time.perf_counter()
            over_budget = 0 < settings.budget < progress.seconds - before
            stopped = interrupts.signal or ("budget" if over_budget else "")
    if stopped:
        save(trainer, progress, checkpoints, STOP)
    return Outcome(stopped or "finished", progress.step, progress.seconds, 0.0, progress.tokens)


def restore(trainer: InPlaceTrainer, checkpoints: Checkpoints, report: Report) -> InPlaceProgress:
    """Load the latest checkpoint, or start from the beginning if there is none."""
    checkpoint = checkpoints.latest()
    for note in checkpoints.notes:
        report("note", {"text": note})
    if checkpoint is None:
        return InPlaceProgress()
    trainer.model.load_state_dict(checkpoint.tensors["model"])  # copies into the arrays that the kernels write
    return InPlaceProgress(step=checkpoint.step, **checkpoint.progress)


def save(trainer: InPlaceTrainer, progress: InPlaceProgress, checkpoints: Checkpoints, name: str = "") -> None:
    """Write a checkpoint: a scheduled one, or one with a name."""
    values = {key: value for key, value in asdict(progress).items() if key != "step"}
    checkpoints.save(Checkpoint(progress.step, {"model": dict(trainer.model.state_dict())}, values), name)


def checkpoint_due(settings: WordTrainSettings, step: int, saved: float) -> bool:
    """Whether to write a checkpoint; ``saved`` is when the last one was written."""
    if settings.checkpoint_every:
        return step % settings.checkpoint_every == 0
    return time.perf_counter() - saved > CHECKPOINT_SECONDS


def log(progress: InPlaceProgress, settings: WordTrainSettings, rate: float, metrics: Metrics, report: Report) -> None:
    """Report a step, and every ``log_every`` steps write a metrics record with the mean loss."""
    left = (settings.steps - progress.step) * progress.seconds / progress.step
    values = {"step": progress.step, "steps": settings.steps, "loss": progress.losses[-1], "left": left}
    report("step", {**values, "tokens_per_second": progress.tokens / progress.seconds})
    if progress.step % settings.log_every == 0 or progress.step == settings.steps:
        loss = sum(progress.losses) / len(progress.losses)
        metrics.write({"step": progress.step, "loss": loss, "lr": rate, "seconds": round(progress.seconds, 3)})
        progress.losses.clear()
