"""Fitting by counting: a stream of tokens is read in passes; no particular model is known.

What is counted, and how, is the counter's affair; this is the loop that keeps its promises to people:
progress, a stop between two pieces of work when the time is up or Ctrl-C came, and a checkpoint between two passes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Literal, Protocol, TypeVar

from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.core.events import Report
from ensue.train.checkpoints import Checkpoint, Checkpoints
from ensue.train.interrupts import Interrupts
from ensue.train.loop import Outcome

SAVE_SECONDS = 10.0
"""A checkpoint is written between two passes where the last one is older than this."""

Reason = Literal["budget", "interrupted"]
"""Why counting stopped before its end."""


class Counter(Protocol):
    """Something that learns from passes over a stream of tokens."""

    passes: int
    """How many passes it wants."""
    done: int
    """How many it has had."""

    def count(self, tokens: NDArray[Any]) -> Iterator[tuple[int, int]]:
        """Make the passes that are not done yet; between two pieces of work say how many tokens are done of how many,
        over all passes. Work may be stopped there: what an unfinished pass has counted is dropped."""

    def tensors(self) -> dict[str, Tensor]:
        """All that is known between two passes, for a checkpoint."""

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Go on from what ``tensors`` answered."""

    def finish(self) -> nn.Module:
        """The model of the passes done so far; its ``notes`` say what people should know. It is called once."""


Counting = TypeVar("Counting", bound=Counter)


def count(
    counter: Counting,
    tokens: NDArray[Any],
    *,
    progress: Callable[[int, int], None] | None = None,
    should_stop: Callable[[], Reason | None] | None = None,
    save: Callable[[Counting], None] | None = None,
) -> Reason | None:
    """Give a counter the passes it still wants over ``tokens`` (any array, memory-mapped too).

    ``progress`` hears how many tokens are done of how many, over all passes; ``save`` is called between
    passes. Answers None at the end, or the reason ``should_stop`` gave. Then the counter has the passes
    finished so far: calling ``count`` again goes on with the next pass, ``counter.finish()`` makes the smaller
    model of them.

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
    """Count from the latest checkpoint on, at most ``budget`` seconds where that is not 0; a stop leaves a checkpoint.

    Answers the model of the passes that were made, and how it ended.
    """
    found = checkpoints.latest()
    if found is not None:
        counter.restore(found.tensors["counter"])
    begun = saved = time.perf_counter()

    def should_stop() -> Reason | None:
        if wish.asked:
            return "interrupted"
        return "budget" if budget and time.perf_counter() - begun > budget else None

    def write() -> None:
        checkpoints.save(Checkpoint(counter.done, {"counter": counter.tensors()}, {}))

    def save(counter: Counter) -> None:
        nonlocal saved
        if time.perf_counter() - saved > SAVE_SECONDS:  # what is sooner counted again than saved need not be saved
            write()
            saved = time.perf_counter()

    with Interrupts() as wish:
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
    fitted = counter.finish()
    stopped = wish.asked if reason == "interrupted" else reason or "finished"
    return fitted, Outcome(stopped, done, time.perf_counter() - begun, 0.0, len(tokens) - 1)
