"""Fitting by counting: a stream of tokens is read in passes and chunks; no particular model is known.

What is counted, and how, is the counter's affair; this is the loop that keeps its promises to people:
progress, a stop between two chunks when the time is up or Ctrl-C came, and a checkpoint between two passes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.core.events import Report
from ensue.train.checkpoints import Checkpoint, Checkpoints
from ensue.train.interrupts import Interrupts
from ensue.train.loop import Outcome

CHUNK = 1 << 22
"""How many tokens are counted at once: memory for the pairs of one chunk, 64 MB."""
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

    def open(self) -> None:
        """Begin a pass; what an unfinished one has counted is dropped."""

    def absorb(self, chunk: NDArray[Any]) -> None:
        """Count the next tokens of the stream."""

    def close(self) -> None:
        """End a pass."""

    def tensors(self) -> dict[str, Tensor]:
        """All that is known between two passes, for a checkpoint."""

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Go on from what ``tensors`` answered."""

    def finish(self) -> nn.Module:
        """The model of the passes done so far; its ``notes`` say what people should know."""


Counting = TypeVar("Counting", bound=Counter)


def count(
    counter: Counting,
    tokens: NDArray[Any],
    *,
    chunk: int = CHUNK,
    progress: Callable[[int, int], None] | None = None,
    should_stop: Callable[[], Reason | None] | None = None,
    save: Callable[[Counting], None] | None = None,
) -> Reason | None:
    """Give a counter the passes it still wants over ``tokens`` (any array, memory-mapped too).

    ``progress`` hears how many tokens are done of how many, over all passes; ``save`` is called between
    passes. Answers None at the end, or the reason ``should_stop`` gave. Then the counter has the passes
    finished so far: ``counter.finish()`` makes the smaller model of them, and calling ``count`` again goes
    on with the next pass.

    >>> from ensue.models.ngram import NGram, NGramConfig
    >>> counter = NGram(NGramConfig(vocabulary=3, order=2, end=0)).counter()
    >>> count(counter, np.array([0, 1, 2, 1, 0]))
    >>> counter.finish().counts
    [3, 4]
    """
    size = len(tokens)
    total = counter.passes * size
    while counter.done < counter.passes:
        counter.open()
        for at in range(0, size, chunk):
            reason = should_stop() if should_stop is not None else None
            if reason is not None:
                return reason
            counter.absorb(np.asarray(tokens[at : at + chunk]))
            if progress is not None:
                progress(counter.done * size + min(at + chunk, size), total)
        counter.close()
        if save is not None and counter.done < counter.passes:
            save(counter)
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
    fitted = counter.finish()
    stopped = wish.asked if reason == "interrupted" else reason or "finished"
    return fitted, Outcome(stopped, counter.done, time.perf_counter() - begun, 0.0, len(tokens) - 1)
