"""Training by loops that change the weights where they are: no gradient is ever stored, and there is no optimiser.

What is learnt, and how, is the learner's affair; this keeps its promises to people: a budget that becomes a number of
steps, progress, metrics, checkpoints, a stop between two steps. Everything random follows from the number of a step, so
the weights and that number are all there is to save.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from ensue.core.errors import InputError
from ensue.core.events import Report
from ensue.train.budget import SPARE, TRIAL
from ensue.train.checkpoints import STOP, Checkpoint, Checkpoints
from ensue.train.interrupts import Interrupts
from ensue.train.loop import Outcome
from ensue.train.metrics import Metrics
from ensue.train.settings import WordTrainSettings

SAVE_SECONDS = 30.0
"""A checkpoint is written where the last one is older than this."""


class Learner(Protocol):
    """Something that learns in steps."""

    model: Any
    steps_per_epoch: int

    def rate(self, step: int, steps: int) -> float:
        """The learning rate before a step of so many."""

    def learn(self, step: int, steps: int) -> tuple[float, int]:
        """Do a step; its mean loss, and how many tokens it went through."""

    def trial(self) -> Learner:
        """The same with weights of its own, to try how fast it is."""


def plan_in_place(learner: Learner, settings: WordTrainSettings, report: Report) -> WordTrainSettings:
    """The settings with the number of steps: of the epochs, or fewer where the budget allows no more."""
    steps = settings.steps or max(1, round(settings.epochs * learner.steps_per_epoch))
    if not settings.budget:
        return replace(settings, steps=steps)
    times: list[float] = []
    begun, trial = time.perf_counter(), learner.trial()
    while len(times) < 3 or (len(times) < 40 and time.perf_counter() - begun < settings.budget * TRIAL):
        at = time.perf_counter()
        trial.learn(len(times), steps)
        times.append(time.perf_counter() - at)
        if time.perf_counter() - begun > settings.budget / 2:
            break
    settled = sorted(times[1:] or times)  # the first pays for what is compiled once
    pace = settled[len(settled) // 2]
    allowed = max(1, int((settings.budget * SPARE - (time.perf_counter() - begun)) / pace))
    if allowed < steps:
        report("plan", {"steps": allowed, "step_seconds": pace})
    return replace(settings, steps=min(steps, allowed))


@dataclass
class Going:
    """Where training stands; saved with every checkpoint."""

    step: int = 0
    seconds: float = 0.0
    tokens: int = 0
    losses: list[float] = field(default_factory=list)
    """Since the last line of metrics."""


def train_in_place(
    learner: Learner, settings: WordTrainSettings, checkpoints: Checkpoints, metrics: Metrics, report: Report
) -> Outcome:
    """Learn from the latest checkpoint on until the steps are done, time is up, or somebody asks to stop."""
    going, stopped = restored(learner, checkpoints, report), ""
    before, saved = going.seconds, time.perf_counter()
    begun = saved - before
    with Interrupts() as wish:
        while going.step < settings.steps and not stopped:
            rate = learner.rate(going.step, settings.steps)
            loss, tokens = learner.learn(going.step, settings.steps)
            if not math.isfinite(loss):
                raise InputError(f"the loss is not finite at step {going.step + 1}", hint="use a lower train.lr")
            going.step, going.tokens, going.seconds = going.step + 1, going.tokens + tokens, time.perf_counter() - begun
            going.losses.append(loss)
            tell(going, settings, rate, metrics, report)
            if going.step == settings.steps:
                break
            if due(settings, going.step, saved):
                save(learner, going, checkpoints)
                saved = time.perf_counter()
            late = 0 < settings.budget < going.seconds - before
            stopped = wish.asked or ("budget" if late else "")
    if stopped:
        save(learner, going, checkpoints, STOP)
    return Outcome(stopped or "finished", going.step, going.seconds, 0.0, going.tokens)


def restored(learner: Learner, checkpoints: Checkpoints, report: Report) -> Going:
    """Take up the latest checkpoint, or begin where there is none."""
    found = checkpoints.latest()
    for note in checkpoints.notes:
        report("note", {"text": note})
    if found is None:
        return Going()
    learner.model.load_state_dict(found.tensors["model"])  # copied to where the loops write
    return Going(step=found.step, **found.progress)


def save(learner: Learner, going: Going, checkpoints: Checkpoints, name: str = "") -> None:
    """Write a checkpoint: one of the schedule, or one with a name."""
    progress = {key: value for key, value in asdict(going).items() if key != "step"}
    checkpoints.save(Checkpoint(going.step, {"model": dict(learner.model.state_dict())}, progress), name)


def due(settings: WordTrainSettings, step: int, saved: float) -> bool:
    """Whether it is time for a checkpoint; the last one was ``saved`` then."""
    if settings.checkpoint_every:
        return step % settings.checkpoint_every == 0
    return time.perf_counter() - saved > SAVE_SECONDS


def tell(going: Going, settings: WordTrainSettings, rate: float, metrics: Metrics, report: Report) -> None:
    """Report a step; now and then a line of metrics with the mean loss since the line before."""
    left = (settings.steps - going.step) * going.seconds / going.step
    values = {"step": going.step, "steps": settings.steps, "loss": going.losses[-1], "left": left}
    report("step", {**values, "tokens_per_second": going.tokens / going.seconds})
    if going.step % settings.log_every == 0 or going.step == settings.steps:
        loss = sum(going.losses) / len(going.losses)
        metrics.write({"step": going.step, "loss": loss, "lr": rate, "seconds": round(going.seconds, 3)})
        going.losses.clear()
