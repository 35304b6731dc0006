"""How a time budget becomes a plan: from the speed of the first steps, and again whenever the speed changes.

No step is a trial: the first ones are planned provisionally, and their speed gives the first plan. From then on the end
is predicted after every step. If it is off by more than ``TOLERANCE`` of the budget, the plan is revised. The clock
changes nothing but the plan, and the plan is recorded (ensue.train.plan).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ensue.core.cpu_load import MIN_INTERVAL, CPULoad, free_cores, threads_for
from ensue.core.durations import duration_in_words
from ensue.core.events import Abandoned
from ensue.core.seeds import isolated_rng
from ensue.core.torchrun import available_cores

PROVISIONAL_STEPS = 1000
"""Steps that are planned before the speed is known."""
PLANNED_SHARE = 0.98
"""The share of a budget that is planned."""
TOLERANCE = 0.02
"""The plan is revised if its end is off by more than this share of the budget …"""
LEFT_TOLERANCE = 0.1
"""… and of the time that is left: far from the end it need not be exact."""
MEMORY_SHARE = 0.1
"""The speed is an average in which a step weighs half as much when this share of the budget has passed."""
EVALUATION_SHARE = 0.15
"""The share of a budget that evaluations may take."""
LOAD_SHARE = 0.01
"""The load of the machine is measured over this share of the time used so far, so that a training of days does not
change its threads, and write run.toml, several times a second."""
BUSY = 0.5
"""Cores used by other processes that a user is told of."""
EXCESS = 1.1
"""A budget is exceeded beyond this share, which is explained to the user."""
FIRST_STEP_SHARE = 0.2
"""A first step that is much longer than the others and takes more than this share of the budget is explained."""
LAST_STEP_EXCESS = 1.05
"""A last step is made if it ends before this share of the budget, so that the schedule reaches its end."""


@dataclass
class Pace:
    """The time that a training has used of its budget, and its speed."""

    budget: float
    steps: int = 0
    """The largest number of steps; 0 means no limit."""
    counts_first: bool = True
    """Whether the first step counts, which pays for compilation and set-up; in a comparison it does not."""
    spent: float = 0.0
    """Seconds used so far."""
    evaluations: int = 0
    """Evaluations made in the whole run, whose time counts against the budget."""
    evaluation: float = 0.0
    """Seconds of one evaluation."""
    most_threads: int = 0
    """Threads to use when no other process needs the cores; 0 means that threads stay as they are."""
    load: CPULoad = field(default_factory=CPULoad)
    ranks: int = 1
    """Processes of this training. Of several each sees the others as other processes, so their use is not known."""
    clock: Callable[[], float] = time.perf_counter
    """What the budget is counted with."""
    first_plan: int = 0
    """Steps of the first plan that was made from measured steps."""
    last_revision: float = 0.0
    """Seconds used when the plan was last revised."""
    longest: dict[str, float] = field(default_factory=lambda: {"a step": 0.0, "an evaluation or a checkpoint": 0.0})
    """Seconds of what took longest."""
    first_step: float = 0.0
    """Seconds of the first step, if it counts."""
    _count: float = 0.0
    _seconds: float = 0.0

    def add_other(self, seconds: float) -> None:
        """Count time in which no step was made."""
        self.spent += seconds
        what = "an evaluation or a checkpoint"
        self.longest[what] = max(self.longest[what], seconds)

    def add_rolled_back(self, seconds: float) -> None:
        """Count an update that was rolled back; it tells nothing about the speed."""
        self.spent += seconds

    def add_step(self, seconds: float) -> None:
        """Count a step; the first one of a process is not part of the mean."""
        self.longest["a step"] = max(self.longest["a step"], seconds)
        if self._count == 0.0:
            self._count = math.ulp(1.0)
            self.first_step = seconds if self.counts_first else 0.0
            self.spent += self.first_step
            return
        self.spent += seconds
        kept = 0.5 ** (seconds / (MEMORY_SHARE * self.budget))
        self._count, self._seconds = self._count * kept + 1.0, self._seconds * kept + seconds

    @property
    def step_seconds(self) -> float:
        """The mean time of a step, of the last ones above all; 0 if it is not known yet."""
        return self._seconds / self._count if self._seconds else 0.0

    def left(self, position: float) -> float:
        """Return the seconds left for steps, given the share of the training up to which evaluations are made."""
        evaluations = self.evaluations - int(position * self.evaluations + 1e-9)  # made on the way to the end
        return self.budget * PLANNED_SHARE - self.spent - evaluations * self.evaluation

    def planned_steps(self, step: int, planned: int, position: float) -> int:
        """Return how many steps the training should have in all; ``planned`` if it is about right."""
        if not self.step_seconds and self.spent >= self.budget * PLANNED_SHARE:
            self.first_plan = step
            return step
        if step >= planned or not self.step_seconds:
            return planned
        left, seconds = self.left(position), self.step_seconds
        first = self.last_revision == 0.0
        error = abs((planned - step) * seconds - left)
        close = error <= max(TOLERANCE * self.budget, LEFT_TOLERANCE * left, seconds)
        recent = self.spent - self.last_revision < TOLERANCE * self.budget
        if not first and left > 0 and (close or recent):
            return planned
        if left < seconds:  # one more, so that the schedule ends, unless that takes too long
            fits = self.spent + seconds <= self.budget * LAST_STEP_EXCESS
            steps = step + fits
        else:
            steps = step + int(left / seconds)
        self.last_revision = max(self.spent, math.ulp(1.0))
        steps = min(steps, self.steps) if self.steps else steps
        self.first_plan = self.first_plan or steps
        return steps

    def mean_others(self) -> float:
        """Return the cores that other processes used on average; 0 if it is not known."""
        return self.load.mean_others() if self.ranks == 1 else 0.0

    def figures(self) -> dict[str, float]:
        """Return the use of the budget for config.json."""
        others = round(self.mean_others(), 2)
        return {"seconds": self.budget, "used": round(self.spent, 2), "first_plan": self.first_plan, "others": others}

    def remarks(self, steps: int) -> list[str]:
        """Return what a user should know: other processes that took cores, and why the budget was exceeded."""
        found = []
        others, cores = self.mean_others(), available_cores()
        if others > BUSY:
            fewer = steps < 0.9 * self.first_plan
            kept = f": {steps:,} steps, where {self.first_plan:,} were planned at first" if fewer else ""
            found.append(f"other processes used {others:.1f} of {cores} cores{kept}")
        if self.first_step > max(FIRST_STEP_SHARE * self.budget, 3 * self.step_seconds) and self.step_seconds:
            took = f"{duration_in_words(self.first_step)} of {duration_in_words(self.budget)}"
            found.append(f"the first step took {took}: on first use kernels are compiled")
        if self.spent > self.budget * EXCESS:
            longest = max(self.longest, key=lambda what: self.longest[what])
            took = f"{longest} took {duration_in_words(self.longest[longest])}"
            found.append(f"training took {duration_in_words(self.spent)} of {duration_in_words(self.budget)}: {took}")
        return found

    def suitable_threads(self, threads: int) -> int:
        """Return the number of threads that the load of the machine suggests; ``threads`` are used now."""
        interval = max(MIN_INTERVAL, LOAD_SHARE * self.spent)
        others = self.load.others(interval) if self.most_threads else None
        return threads if others is None else min(threads_for(free_cores(others), threads), self.most_threads)


def evaluation_seconds(
    evaluate: Callable[[Callable[[], bool]], object] | None,
    limit: float,
    clock: Callable[[], float] = time.perf_counter,
    agree: Callable[[bool], bool] = bool,
) -> float:
    """Return the seconds that an evaluation takes; infinity if more than ``limit``. Random numbers stay as they are.

    ``agree`` returns what all ranks do: one that stopped alone would leave the others waiting for it.
    """
    if evaluate is None:
        return 0.0
    started = clock()
    with isolated_rng(0):
        try:
            evaluate(lambda: agree(clock() - started > limit))
        except Abandoned:
            return math.inf
    return clock() - started


def affordable_evaluations(budget: float, seconds: float, wanted: int) -> int:
    """Return how many evaluations fit into their share of the budget, at most ``wanted``; 0 if only one does.

    Evaluations choose the best weights; a single one, at the end, has nothing to choose from.

    >>> affordable_evaluations(100.0, 5.0, 10), affordable_evaluations(100.0, 10.0, 10)
    (3, 0)
    """
    fitting = min(wanted, int(EVALUATION_SHARE * budget / seconds)) if seconds else wanted
    return fitting if fitting > 1 else 0
