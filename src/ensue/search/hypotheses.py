"""The result of a search."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ensue.search.trace import Path, Trace


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A sequence found by a search."""

    tokens: list[int]
    """The generated tokens, without the end token."""
    log_probs: list[float]
    """log P of each generated token given those before it, in nats; the end token's last if it ended."""
    log_prob: float
    """Their sum."""
    score: float
    """log P with length and coverage penalty; hypotheses are ranked by it."""
    ended: bool
    """True if it ended with the end token, False if it was cut off at the maximum length."""
    attention: Tensor | None = None
    """(T, S): attention of each generated token in the last layer, mean over heads."""

    def path(self, nodes: list[int]) -> Path:
        """This hypothesis as a path of a trace."""
        return Path(nodes, self.tokens, self.log_prob, self.score, self.ended)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The hypotheses of one sentence, and on request the trace of the search."""

    hypotheses: list[Hypothesis]
    trace: Trace | None = None

    @property
    def best(self) -> Hypothesis:
        """The hypothesis with the highest score."""
        return max(self.hypotheses, key=lambda hypothesis: hypothesis.score)
