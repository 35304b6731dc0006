"""Training with a trainer that updates weights in place, as word2vec's kernels do: no gradients, no optimiser.

Everything random follows from the number of a step, so a checkpoint holds the weights and that number only.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from ensue.core.errors import InputError
from ensue.core.events import Report
from ensue.train.budget import Pace
from ensue.train.checkpoints import STOP, Checkpoint, Checkpoints
from ensue.train.interrupts import Interrupts
from ensue.train.metrics import Metrics
from ensue.train.plan import Plan, fixed_plan
from ensue.train.progress import PlanProgress
from ensue.train.settings import WordTrainSettings
from ensue.train.training import Outcome

CHECKPOINT_SECONDS = 30.0
"""Seconds between checkpoints where the settings give no number of steps."""


class InPlaceTrainer(Protocol):
    """Updates a model's weights in place, step by step."""

    model: Any
    steps_per_epoch: int

    def rate(self, position: float) -> float:
        """Return the learning rate when a share of the training is done."""

    def update(self, step: int, position: float, after: float) -> tuple[float, int]:
        """Run a step that leads from one position to another; return its mean loss and its number of tokens."""


@dataclass
class InPlaceProgress(PlanProgress):
    """Where training stands; saved with every checkpoint."""

    seconds: float = 0.0
    tokens: int = 0
    losses: list[float] = field(default_factory=list)
    """Losses since the last metrics record."""


def plan_word2vec(trainer: InPlaceTrainer, settings: WordTrainSettings) -> tuple[WordTrainSettings, Pace | None]:
    """Return the settings with the number of steps, those of the epochs, and the pace that lowers it to the budget."""
    steps = settings.steps or max(1, round(settings.epochs * trainer.steps_per_epoch))
    return replace(settings, steps=steps), Pace(settings.budget, steps=steps) if settings.budget else None


def train_word2vec(
    trainer: InPlaceTrainer,
    settings: WordTrainSettings,
    checkpoints: Checkpoints,
    metrics: Metrics,
    report: Report,
    pace: Pace | None = None,
    record_plan: Callable[[Plan], None] = lambda plan: None,
) -> tuple[Outcome, Plan]:
    """Train from the latest checkpoint until the plan is done, the budget is spent, or a signal arrives.

    With a pace the plan is revised to keep the budget; ``record_plan`` is called when the speed is known, and before a
    revision takes effect.
    """
    progress, stopped = restore(trainer, checkpoints, report), ""
    plan = fixed_plan(settings)
    plan.resume(progress)
    before, saved = progress.seconds, time.perf_counter()
    started = saved - before
    with Interrupts() as interrupts:
        while progress.step < plan.steps and not stopped:
            position, after = progress.position, plan.position(progress, ahead=1)
            loss, tokens = trainer.update(progress.step, position, after)
            if not math.isfinite(loss):
                raise InputError(f"the loss is not finite at step {progress.step + 1}", hint="use a lower train.lr")
            progress.step, progress.updates = progress.step + 1, progress.updates + 1
            progress.tokens += tokens
            seconds_before, progress.seconds = progress.seconds, time.perf_counter() - started
            progress.losses.append(loss)
            plan.advance(progress)
            if pace is not None:
                pace.add_step(progress.seconds - seconds_before)
                provisional = not pace.first_plan
                steps = pace.planned_steps(progress.step, plan.steps, progress.position)
                if changed := steps != plan.steps:
                    plan.revise(progress, steps, plan.threads)
                if changed or (provisional and pace.first_plan):
                    record_plan(plan)
                    report("plan", {"steps": steps, "step_seconds": pace.step_seconds, "first": provisional})
            plan.follow(progress)
            log(progress, plan.steps, settings, trainer.rate(position), metrics, report)
            if progress.step >= plan.steps:
                break
            if checkpoint_due(settings, progress.step, saved):
                save(trainer, progress, checkpoints)
                saved = time.perf_counter()
            over_budget = pace is None and 0 < settings.budget < progress.seconds - before
            stopped = interrupts.signal or ("budget" if over_budget else "")
    if stopped:
        save(trainer, progress, checkpoints, STOP)
    ended = stopped or "finished"
    return Outcome(ended, progress.step, progress.seconds, 0.0, progress.tokens, pace), plan


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


def log(
    progress: InPlaceProgress, steps: int, settings: WordTrainSettings, rate: float, metrics: Metrics, report: Report
) -> None:
    """Report a step, and every ``log_every`` steps write a metrics record with the mean loss."""
    left = (steps - progress.step) * progress.seconds / progress.step
    values = {"step": progress.step, "steps": steps, "loss": progress.losses[-1], "left": left}
    report("step", {**values, "tokens_per_second": progress.tokens / progress.seconds})
    if progress.step % settings.log_every == 0 or progress.step >= steps:
        loss = sum(progress.losses) / len(progress.losses)
        metrics.write({"step": progress.step, "loss": loss, "lr": rate, "seconds": round(progress.seconds, 3)})
        progress.losses.clear()
