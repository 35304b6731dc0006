"""What every search answers with."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ensue.search.trace import Path, Trace


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A sequence that a search found."""

    tokens: list[int]
    """What was generated, without the end mark."""
    log_probs: list[float]
    """log P of each generated token given those before it, in nats; that of the end mark last, where it ended."""
    log_prob: float
    """log P of the whole: their sum."""
    score: float
    """What it is worth by the length rule; what hypotheses are compared by."""
    ended: bool
    """Whether it has its end mark, or was cut at the longest length."""
    attention: Tensor | None = None
    """(T, S): where each generated token attended to in the last layer that attends, on average over its heads."""

    def path(self, nodes: list[int]) -> Path:
        """This hypothesis in a trace, where these nodes lead to it."""
        return Path(nodes, self.tokens, self.log_prob, self.score, self.ended)


@dataclass(frozen=True, slots=True)
class Found:
    """The answer for one sentence: hypotheses, and how they were found where that was asked for."""

    hypotheses: list[Hypothesis]
    trace: Trace | None = None

    @property
    def best(self) -> Hypothesis:
        """The hypothesis with the highest score."""
        return max(self.hypotheses, key=lambda one: one.score)
