"""The plan of a training: how many updates, with how many threads, revised as the machine's speed changes.

A learning-rate schedule needs to know its end, and a budget in seconds does not give it. So training follows a plan
in steps, and the budget revises the plan (ensue.train.budget). Each revision is written to run.toml before it takes
effect, and is keyed by the number of updates made, rolled-back ones included: a resumed or repeated run makes the same
revisions at the same updates, and ends with the same bits.

The schedule follows the position p, the share of the training that is done. From a revision at step s, p = p_s, it goes
to 1 along a straight line:

    p(t) = p_s + (1 − p_s) (t − s) / (S − s)          with S steps planned

So a revision never makes the rate jump, and the schedule always reaches its end. Without a revision p(t) = t / S.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple, TypeVar

import torch

from ensue.core.errors import InputError
from ensue.train.progress import PlanProgress
from ensue.train.settings import TrainSettings, WordTrainSettings

PARTS = 10
"""Checkpoints in a whole run where nothing else is set."""
AnySettings = TypeVar("AnySettings", TrainSettings, WordTrainSettings)
TEXT = re.compile(r"(\d{1,15}): (\d{1,15}) steps?, (\d{1,9}) threads?")


class Revision(NamedTuple):
    """From ``updates`` on, ``steps`` steps are planned, and ``threads`` threads are used; 0 leaves them as they are."""

    updates: int
    steps: int
    threads: int

    def __str__(self) -> str:
        steps, threads = ("step" + "s" * (self.steps != 1)), ("thread" + "s" * (self.threads != 1))
        return f"{self.updates}: {self.steps} {steps}, {self.threads} {threads}"


def parse_revision(text: str) -> Revision:
    """Parse a revision of ``train.plan``.

    >>> parse_revision("40: 250 steps, 1 thread")
    Revision(updates=40, steps=250, threads=1)
    """
    match = TEXT.fullmatch(text)
    if match is None:
        raise InputError(f"train.plan has {text!r}", hint='write for example "40: 250 steps, 1 thread"')
    return Revision(*map(int, match.groups()))


class Plan:
    """The revisions of a training, and the one in force.

    A plan that a budget made is recorded even if it was never revised, because evaluations follow it.
    """

    def __init__(self, revisions: Iterable[Revision], by_budget: bool = False) -> None:
        self.revisions = list(revisions)
        self.current = self.revisions[0]
        self.by_budget = by_budget

    @property
    def steps(self) -> int:
        """The number of steps planned."""
        return self.current.steps

    @property
    def threads(self) -> int:
        """The number of threads in use."""
        return self.current.threads

    @property
    def revised(self) -> bool:
        """Whether a revision is in force."""
        return self.current is not self.revisions[0]

    def resume(self, progress: PlanProgress) -> None:
        """Put the revision in force that is due at the progress of a checkpoint."""
        self.current = [one for one in self.revisions if one.updates <= progress.updates][-1]
        progress.position = self.position(progress)
        self._use_threads()

    def follow(self, progress: PlanProgress) -> None:
        """Put a revision in force if one is due after this update."""
        due = [one for one in self.revisions if one.updates <= progress.updates][-1]
        if due is not self.current:
            self.current = due
            progress.anchor()
            self._use_threads()

    def revise(self, progress: PlanProgress, steps: int, threads: int) -> None:
        """Add a revision, which ``follow`` puts in force."""
        self.revisions.append(Revision(progress.updates, steps, threads))
        self.by_budget = True

    def advance(self, progress: PlanProgress) -> None:
        """Compute the position after a step."""
        progress.previous_position, progress.position = progress.position, self.position(progress)

    def position(self, progress: PlanProgress, ahead: int = 0) -> float:
        """Return the share of the training that is done after ``ahead`` more steps, from 0 to 1."""
        step, left = progress.step + ahead, self.steps - progress.anchor_step
        if left <= 0:
            return 1.0
        return progress.anchor_position + (1 - progress.anchor_position) * (step - progress.anchor_step) / left

    def schedule_step(self, progress: PlanProgress) -> float:
        """Return the step of the learning-rate schedule, out of ``steps``: the real one unless the plan was revised."""
        if progress.anchor_step == 0:
            return progress.step
        return self.position(progress, ahead=1) * self.steps - 1

    def due(self, progress: PlanProgress, every: int, parts: int = PARTS) -> bool:
        """Whether something is due that happens every ``every`` steps, or, if that is 0, ``parts`` times in all."""
        if every:
            return progress.step % every == 0
        return int(progress.position * parts + 1e-9) > int(progress.previous_position * parts + 1e-9)

    def _use_threads(self) -> None:
        if self.threads and self.threads != torch.get_num_threads():
            torch.set_num_threads(self.threads)

    def settings(self, settings: AnySettings) -> AnySettings:
        """Return the settings with this plan, from which the training can be repeated."""
        plan = tuple(map(str, self.revisions)) if self.by_budget else ()
        return replace(settings, steps=self.revisions[-1].steps, plan=plan)


def fixed_plan(settings: TrainSettings | WordTrainSettings) -> Plan:
    """Return the plan that the settings give: the recorded revisions, or one number of steps."""
    recorded = [parse_revision(text) for text in settings.plan]
    if recorded and recorded[0].updates == 0 and recorded[-1].steps == settings.steps:
        return Plan(recorded, by_budget=True)
    return Plan([Revision(0, settings.steps, 0)])  # also if train.steps was set anew


def resolve_steps(settings: TrainSettings, steps_per_epoch: int) -> TrainSettings:
    """Return the settings with steps, eval_every and checkpoint_every in place of 0, for a training without budget."""
    steps = settings.steps
    if not steps and settings.epochs:
        steps = max(1, round(settings.epochs * steps_per_epoch / settings.accumulate))
    steps = steps or steps_per_epoch
    if fixed_plan(replace(settings, steps=steps)).by_budget:  # evaluations of a repeated run are where they were
        return replace(settings, steps=steps)
    spacing = max(1, -(-steps // settings.evaluations)) if settings.evaluations else 0
    return replace(
        settings,
        steps=steps,
        eval_every=settings.eval_every or spacing,
        checkpoint_every=settings.checkpoint_every or max(1, steps // PARTS),
    )
