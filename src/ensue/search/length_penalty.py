"""The score of a finished hypothesis: log-probability with length penalty and coverage penalty.

    none   s(y) = log P(y)                                    favours short hypotheses
    mean   s(y) = 1/t log P(y)                                mean log-probability per token
    gnmt   s(y) = log P(y) / lp(t),  lp(t) = ((5 + t) / 6)^α  in between (Wu et al., 2016, eq. 14)

    coverage c(y) = β Σ_i log min(Σ_t a_{t,i}, 1) ≤ 0         penalises source positions without attention

t counts the generated tokens, the end token included. log P only falls as a hypothesis grows and c ≤ 0, so each penalty
has an upper bound of the score that a hypothesis can still reach. The search stops when no bound exceeds the best.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from ensue.core.errors import InputError

Number = TypeVar("Number", float, Tensor)
LENGTH_PENALTIES: dict[str, Callable[[Any, float], Any]] = {
    "none": lambda t, alpha: 1,
    "mean": lambda t, alpha: t,
    "gnmt": lambda t, alpha: ((5 + t) / 6) ** alpha,
}
"""What log P is divided by, by name: a function of t and α, which only ``gnmt`` uses."""


@dataclass(frozen=True)
class LengthPenalty:
    """A length penalty.

    >>> LengthPenalty("mean").score(-6.0, 3), LengthPenalty("mean").bound(-6.0, 12)
    (-2.0, -0.5)
    """

    name: str
    alpha: float = 0.6

    def score(self, log_prob: Number, t: Number | int) -> Number:
        """The score of a hypothesis of t tokens."""
        divisor: Number = LENGTH_PENALTIES[self.name](t, self.alpha)
        return log_prob / divisor

    def bound(self, log_prob: Number, longest: Number | int) -> Number:
        """An upper bound of the score of any continuation: all tokens up to ``longest`` have probability 1."""
        return self.score(log_prob, longest)


def coverage_penalty(covered: Tensor, real: Tensor, beta: float) -> Tensor:
    """c = β Σ_i log min(Σ_t a_{t,i}, 1) over positions that are not padding; covered (…, S) is Σ_t a_{t,i}.

    >>> covered, real = torch.tensor([1.5, 0.5, 0.0]), torch.tensor([True, True, False])
    >>> round(coverage_penalty(covered, real, 0.2).item(), 4)  # 0.2 log 0.5
    -0.1386
    """
    tiny = torch.finfo(covered.dtype).tiny  # a position without any attention must not cost infinitely much
    return beta * covered.clamp(tiny, 1.0).log().masked_fill(~real, 0.0).sum(-1)


class Coverage:
    """Accumulated attention of the rows of a search. Legend: n sentences, w rows of each, S source time."""

    def __init__(self, beta: float) -> None:
        self.beta = beta
        self._covered: Tensor | None = None  # (n, w, S), Σ_t a_{t,i}
        self._real: Tensor | None = None  # (n, 1, S), False at padding

    def add(self, attention: Tensor | None) -> Tensor | None:
        """Add the attention of a step (n, w, S) and return the penalty of each row (n, w); None if β is 0."""
        if not self.beta:
            return None
        if attention is None or (self._covered is not None and self._covered.shape[-1] != attention.shape[-1]):
            raise InputError("a model without cross-attention has no coverage penalty", hint="set coverage=0")
        if self._covered is None or self._real is None:
            self._covered, self._real = attention, attention[:, :1] > 0  # padding gets exactly 0
        else:
            self._covered = self._covered + attention
        return coverage_penalty(self._covered, self._real, self.beta).double()

    def pick(self, sentences: Tensor, rows: Tensor) -> None:
        """Keep some sentences (n',), and of those the rows (n', w'), as flat indices."""
        if self._covered is not None and self._real is not None:
            self._covered, self._real = self._covered.flatten(0, 1)[rows], self._real[sentences]
