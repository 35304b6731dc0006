"""The training loop: one function, in the order things happen.

Everything that training needs is passed in; everything that must survive a break is in ``Progress`` and the tensors
of a checkpoint. A batch is a pure function of its number, so a run that is resumed goes on to the bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ensue.core.errors import InputError
from ensue.core.events import Report, silent
from ensue.core.seeds import random_state, restore_random_state
from ensue.nn.state import State
from ensue.train.checkpoints import BEST, STOP, Checkpoint, Checkpoints, Tensors
from ensue.train.interrupts import Interrupts
from ensue.train.layer_unfreezing import Thawing
from ensue.train.loss_reduction import ALONE
from ensue.train.metrics import Metrics
from ensue.train.objectives import Objective
from ensue.train.optimisers import build_optimiser, learning_rate, move, optimiser_tensors
from ensue.train.ranks import Ask, Measure, Ranks, plainly
from ensue.train.settings import TextTrainSettings, TrainSettings

MOST_ROLLBACKS = 10
Evaluate = Measure
"""Measures on held-out data, ``valid_loss`` among them."""


class Batches(Protocol):
    """Batches by number: any of them can be had at any time. A batch has ``some`` of its rows, for ranks."""

    rows: int

    def batch(self, number: int) -> Any:
        """Batch ``number`` of an endless row of epochs."""
        ...


@dataclass
class Progress:
    """Where training stands; saved with every checkpoint."""

    step: int = 0
    best: float = math.inf
    stale: int = 0
    """Evaluations since the best one."""
    lr_scale: float = 1.0
    """What plateaus have left of the rate."""
    penalty: float = 1.0
    """What roll-backs have left of it."""
    rollbacks: int = 0
    """Since the last scheduled checkpoint."""
    seconds: float = 0.0
    """Spent in updates."""
    overhead: float = 0.0
    """Spent on evaluations, samples and checkpoints."""
    loss: float = 0.0
    """The sum of losses since the last line of metrics, and how many."""
    count: int = 0
    tokens: int = 0
    rate: float = 0.0
    norm: float = 0.0
    top: float = 0.0
    """The largest norm since the last line of metrics, and how many gradients were clipped since."""
    clipped: int = 0
    owed: bool = False
    """An evaluation was due at this step and was given up."""


@dataclass(frozen=True)
class Outcome:
    """How training ended: ``finished``, ``budget``, ``patience``, or the name of the signal that asked to stop."""

    stopped: str
    step: int
    seconds: float
    best: float
    tokens: int = 0
    """How many were trained on, repetitions counted."""


@dataclass(kw_only=True)
class Training:
    """What the loop works with."""

    model: nn.Module
    objective: Objective
    batches: Batches
    settings: TrainSettings
    checkpoints: Checkpoints
    metrics: Metrics | None = None
    evaluate: Evaluate | None = None
    chosen_by: str = "valid_loss"
    """The measure that chooses the best weights: the lower the better, unless it is another than the loss."""
    counts: str = "tokens"
    """What batches are made of, for people."""
    unit: str = "nats a token"
    """What a loss is in, for people."""
    sample: Callable[[], str] | None = None
    thawing: Thawing | None = None
    """Which layers learn, and how fast; without it all do alike."""
    report: Report = silent
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    compile: bool = False
    """The model was compiled, so its speed must be tried on a compiled copy."""
    ranks: Ranks = field(default_factory=Ranks)
    """The processes that train together; of this one the first speaks and writes."""
    ask: Ask = plainly
    """How the model is asked where its weights are spread over ranks."""

    def worth(self, measures: Mapping[str, float]) -> float:
        """What chooses the best weights, the lower the better."""
        value = measures[self.chosen_by]
        return value if self.chosen_by == "valid_loss" else -value


def train(work: Training) -> Outcome:
    """Train until the steps are done, time is up, validation stalls, or somebody asks to stop."""
    settings = work.settings
    optimiser = build_optimiser(work.model, settings, work.thawing.scales() if work.thawing else None)
    progress, state = restore(work, optimiser, work.checkpoints.latest())
    if progress.step == 0:
        save(work, optimiser, progress, state)  # something to roll back to
    before = spent(work, progress)  # a budget counts from here
    with Interrupts() as wish:
        stopped = mind(work, optimiser, progress, state, wish, before) if progress.owed else ""
        while not stopped and progress.step < settings.steps:
            begun = time.perf_counter()
            rate = progress.penalty * progress.lr_scale * learning_rate(progress.step, settings.steps, settings)
            loss, norm, state, tokens = update(work, optimiser, progress.step, state, rate)
            progress.seconds += time.perf_counter() - begun
            progress.tokens += tokens
            if not (math.isfinite(loss) and math.isfinite(norm)):
                progress, state = roll_back(work, optimiser, progress)
                continue
            progress.step, progress.rate, progress.norm = progress.step + 1, rate, norm
            progress.loss, progress.count = progress.loss + loss, progress.count + 1
            progress.top = max(progress.top, norm)
            progress.clipped += 0 < settings.clip <= norm
            tell(work, progress, loss)
            stopped = mind(work, optimiser, progress, state, wish, before)
    return Outcome(stopped or "finished", progress.step, progress.seconds, progress.best, progress.tokens)


def spent(work: Training, progress: Progress) -> float:
    """Seconds that count against a budget."""
    return progress.seconds + progress.overhead * (work.settings.budget_covers == "all")


def mind(
    work: Training,
    optimiser: torch.optim.Optimizer,
    progress: Progress,
    state: State | None,
    wish: Interrupts,
    before: float,
) -> str:
    """What follows an update: evaluation, a line of metrics, a sample, a checkpoint; answers why to stop, if at all."""
    settings, ranks, begun = work.settings, work.ranks, time.perf_counter()
    measures = evaluate(work, progress, wish)
    if progress.owed:  # given up: whoever resumes begins here
        save(work, optimiser, progress, state, STOP)
        return ranks.asked(wish.asked)
    last = progress.step == settings.steps
    if measures or last or progress.step % settings.log_every == 0:
        log(work, progress, measures)
    if work.sample and settings.sample_every and progress.step % settings.sample_every == 0:
        work.report("sample", {"step": progress.step, "text": ranks.written(work.ask, work.sample)})
    if progress.step % settings.checkpoint_every == 0 or last:
        progress.rollbacks = 0
        save(work, optimiser, progress, state)
    progress.overhead += time.perf_counter() - begun
    stopped, asked = "", ranks.asked(wish.asked)
    if measures and 0 < settings.patience <= progress.stale:
        stopped = "patience"
    elif not last and settings.budget and ranks.agree(settings.budget < spent(work, progress) - before):
        stopped = "budget"
    elif not last and asked:
        stopped = asked
    if stopped:
        save(work, optimiser, progress, state, STOP)
    return stopped


def tell(work: Training, progress: Progress, loss: float) -> None:
    """Report a step."""
    steps = work.settings.steps
    values: dict[str, Any] = {"step": progress.step, "steps": steps, "loss": loss}
    values |= {"tokens_per_second": progress.tokens / progress.seconds, "counts": work.counts}
    values |= {"left": (steps - progress.step) * (progress.seconds + progress.overhead) / progress.step}
    work.report("step", values)


def update(
    work: Training, optimiser: torch.optim.Optimizer, step: int, state: State | None, rate: float
) -> tuple[float, float, State | None, int]:
    """One update: gradients of ``accumulate`` batches, clipped, then a step; none where something is not finite."""
    settings, ranks = work.settings, work.ranks
    work.model.train()
    if work.thawing is not None:
        work.thawing.apply(work.model, step)
    optimiser.zero_grad(set_to_none=True)
    total, tokens = 0.0, 0
    for part in range(settings.accumulate):
        whole = work.batches.batch(step * settings.accumulate + part)
        batch, pool = ranks.part(whole)
        batch = on_device(batch, work.device)
        before = None if batch.reset_state else renewed(work, state)
        with precision(settings, work.device):
            given = () if pool is ALONE else (pool,)  # an objective for one process need not know of others
            loss, after = work.ask(partial(work.objective, work.model, batch, before, *given))
        state = after.detach() if after is not None and batch.keep_state else None
        del after  # where nobody wants it, what it holds need not live until gradients are made
        (loss / settings.accumulate).backward()
        total, tokens = total + loss.item() / settings.accumulate, tokens + whole.size
    total = ranks.total(total)
    gradients = ranks.gradients(work.model)
    norm = ranks.norm(gradients)
    if math.isfinite(total) and math.isfinite(norm):
        for group in optimiser.param_groups:
            group["lr"] = rate * group["scale"]
        move(optimiser, gradients, norm, settings.clip)
    return total, norm, state, tokens


def renewed(work: Training, state: State | None) -> State | None:
    """The state carried on, but for a few rows that begin anew.

    A state that is only ever carried on moves with the weights; from the empty state a model then may never have been
    trained, and that is where it is when it is used.
    """
    settings = work.settings
    if state is None or not isinstance(settings, TextTrainSettings) or not settings.renew:
        return state
    count = work.batches.rows
    rows = work.ranks.agree(torch.rand(count) < settings.renew)[work.ranks.rows(count)]
    return state.renewed(rows.to(work.device), empty_state(work, len(rows)))


def empty_state(work: Training, rows: int) -> State:
    """The state before the first token, for so many rows."""
    model: Any = work.model
    with torch.no_grad():
        found: State = work.ask(partial(model.start, rows))
    return found


def on_device(batch: Any, device: torch.device) -> Any:
    """A batch with its tensors on the device."""
    if device.type == "cpu":
        return batch
    tensors = {f.name: getattr(batch, f.name) for f in fields(batch)}
    return replace(batch, **{name: value.to(device) for name, value in tensors.items() if isinstance(value, Tensor)})


def precision(settings: TrainSettings, device: torch.device) -> AbstractContextManager[Any]:
    """bf16 where it was asked for, or on a GPU that computes it."""
    able = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    wanted = settings.precision == "bf16" or (settings.precision == "auto" and able)
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=wanted)


def evaluate(work: Training, progress: Progress, wish: Interrupts) -> dict[str, float]:
    """Measure on held-out data when it is time, and keep the best weights; given up, it is owed to whoever resumes."""
    due = progress.step == work.settings.steps or progress.step % work.settings.eval_every == 0
    if work.evaluate is None or not due:
        return {}
    work.model.eval()
    measures = work.ranks.measured(work.ask, work.evaluate, wish)
    progress.owed = measures is None
    if measures is None:
        return {}
    work.report("evaluation", {"step": progress.step, **measures})
    value = work.worth(measures)
    if value < progress.best:
        progress.best, progress.stale = value, 0
        weights = {"model": dict(work.model.state_dict())}
        work.checkpoints.save(Checkpoint(progress.step, weights, {"worth": value}), BEST)
    else:
        progress.stale += 1
        if work.settings.schedule == "plateau":
            progress.lr_scale /= 2
    return measures


def log(work: Training, progress: Progress, measures: dict[str, float]) -> None:
    """A line of metrics: since the line before the mean loss, the largest norm, and how many gradients were clipped."""
    if work.metrics is not None:
        record = {"step": progress.step, "loss": progress.loss / progress.count, "lr": progress.rate}
        record |= {"norm": progress.norm, "norm_top": progress.top, "clipped": progress.clipped}
        work.metrics.write({**record, "seconds": round(progress.seconds, 3), **measures})
    progress.loss, progress.count, progress.top, progress.clipped = 0.0, 0, 0.0, 0


def roll_back(work: Training, optimiser: torch.optim.Optimizer, broken: Progress) -> tuple[Progress, State | None]:
    """Go back to the last scheduled checkpoint and halve the rate; time and tokens spent stay spent."""
    if broken.rollbacks == MOST_ROLLBACKS:
        raise InputError(
            f"the loss is not finite at step {broken.step + 1}, even at a {2**MOST_ROLLBACKS}th of the learning rate",
            hint="lower train.lr, or look for odd values in the data",
        )
    work.checkpoints.forget_stop()
    progress, state = restore(work, optimiser, work.checkpoints.scheduled())
    progress.penalty, progress.rollbacks = broken.penalty / 2, broken.rollbacks + 1
    progress.seconds, progress.overhead, progress.tokens = broken.seconds, broken.overhead, broken.tokens
    if broken.best != progress.best:  # the best weights lie on the way that was given up
        progress.best = math.inf
    if work.metrics is not None:
        work.metrics.cut_back(progress.step)
    way = f"back to step {progress.step} at {progress.penalty:g} of the rate"
    work.report("note", {"text": f"step {broken.step + 1} gave a value that is not finite: {way}"})
    return progress, state


def save(
    work: Training, optimiser: torch.optim.Optimizer, progress: Progress, state: State | None, name: str = ""
) -> None:
    """Write a checkpoint of everything: one of the schedule, or one with a name."""
    held = work.ranks.gathered(state, work.batches.rows)
    groups: dict[str, Tensors] = {
        "model": dict(work.model.state_dict()),
        "optimiser": optimiser_tensors(optimiser),
        "random": random_state(),
        "state": dict(held.tensors()) if held is not None else {},
    }
    groups |= {"ranks": chances} if (chances := work.ranks.chances()) else {}
    values = {**asdict(progress), "best": _finite(progress.best)}
    work.checkpoints.save(Checkpoint(progress.step, groups, values), name)


def restore(
    work: Training, optimiser: torch.optim.Optimizer, found: Checkpoint | None
) -> tuple[Progress, State | None]:
    """Take up a checkpoint, or begin where there is none."""
    while work.checkpoints.notes:
        work.report("note", {"text": work.checkpoints.notes.pop()})
    if found is None:
        work.ranks.set_chance({}, 0)
        return Progress(), None
    work.ranks.take_up(work.model, optimiser, found)
    restore_random_state(found.tensors["random"])
    work.ranks.set_chance(found.tensors.get("ranks", {}), found.step)
    values = {**found.progress, "step": found.step}
    values["best"] = math.inf if values["best"] is None else values["best"]
    state = None
    if found.tensors["state"]:
        whole = empty_state(work, work.batches.rows).filled(found.tensors["state"])
        state = work.ranks.own(whole, work.batches.rows).map(lambda tensor: tensor.to(work.device))
    return Progress(**values), state


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
