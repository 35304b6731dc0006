"""Fitting by counting: passes over a token stream, with progress, a budget, signals and checkpoints between passes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Literal, Protocol, TypeVar

from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.core.events import Report, report_all
from ensue.train.checkpoints import Checkpoint, Checkpoints
from ensue.train.interrupts import Interrupts
from ensue.train.training import Outcome

MIN_CHECKPOINT_SECONDS = 10.0
"""A checkpoint is written between two passes if the last one is older than this; a shorter pass is quicker repeated
than saved."""

Reason = Literal["budget", "interrupted"]
"""Why counting stopped early."""


class Counter(Protocol):
    """A model's statistics, collected in passes over a token stream."""

    passes: int
    """The number of passes needed."""
    done: int
    """The number of passes made."""

    def count(self, tokens: NDArray[Any]) -> Iterator[tuple[int, int]]:
        """Make the remaining passes, and yield now and then how many tokens of how many are done, over all passes.

        Counting may stop at any yield; an unfinished pass is then dropped.
        """

    def tensors(self) -> dict[str, Tensor]:
        """Return the state between two passes, for a checkpoint."""

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Load what ``tensors`` returned."""

    def finish(self) -> nn.Module:
        """Build the model from the passes made so far. Call it once. The model's ``notes`` are for the user."""


AnyCounter = TypeVar("AnyCounter", bound=Counter)


def count(
    counter: AnyCounter,
    tokens: NDArray[Any],
    *,
    progress: Callable[[int, int], None] | None = None,
    should_stop: Callable[[], Reason | None] | None = None,
    save: Callable[[AnyCounter], None] | None = None,
) -> Reason | None:
    """Make a counter's remaining passes over ``tokens`` (any array, memory-mapped too).

    ``progress`` gets the tokens done and their total over all passes; ``save`` is called between passes. Returns None
    at the end, or the reason that ``should_stop`` returned. After an early stop ``count`` continues with the next pass,
    and ``counter.finish()`` builds the smaller model of the passes made.

    >>> import numpy as np
    >>> from ensue.models.ngram import NGram, NGramConfig
    >>> counter = NGram(NGramConfig(vocabulary=3, order=2, end=0)).counter()
    >>> count(counter, np.array([0, 1, 2, 1, 0]))
    >>> counter.finish().counts
    [3, 4]
    """
    passes = counter.done
    for done, total in counter.count(tokens):
        if progress is not None:
            progress(done, total)
        if passes < counter.done < counter.passes and save is not None:
            save(counter)
        passes = counter.done
        reason = should_stop() if should_stop is not None and counter.done < counter.passes else None
        if reason is not None:
            return reason
    return None


def fit_by_counting(
    counter: Counter, tokens: NDArray[Any], checkpoints: Checkpoints, budget: float, report: Report
) -> tuple[nn.Module, Outcome]:
    """Count from the latest checkpoint, for at most ``budget`` seconds unless it is 0; an early stop is saved."""
    checkpoint = checkpoints.latest()
    report_all(checkpoints.notes, report)
    if checkpoint is not None:
        counter.restore(checkpoint.tensors["counter"])
    started = saved = time.perf_counter()

    def should_stop() -> Reason | None:
        if interrupts.signal:
            return "interrupted"
        return "budget" if budget and time.perf_counter() - started > budget else None

    def write() -> None:
        checkpoints.save(Checkpoint(counter.done, {"counter": counter.tensors()}, {}))

    def save(counter: Counter) -> None:
        nonlocal saved
        if time.perf_counter() - saved > MIN_CHECKPOINT_SECONDS:
            write()
            saved = time.perf_counter()

    with Interrupts() as interrupts:
        reason = count(
            counter,
            tokens,
            progress=lambda done, total: report("progress", {"done": done, "total": total}),
            should_stop=should_stop,
            save=save,
        )
    if reason is not None:
        write()
    done = counter.done
    model = counter.finish()
    stopped = interrupts.signal if reason == "interrupted" else reason or "finished"
    return model, Outcome(stopped, done, time.perf_counter() - started, 0.0, len(tokens) - 1)
