"""What a finished hypothesis is worth: its log-probability, made fair to long ones, and how well it covers its source.

    none   s(y) = log P(y)                                    short ones win: every token costs
    mean   s(y) = 1/t log P(y)                                the cost of a token on average
    gnmt   s(y) = log P(y) / lp(t),  lp(t) = ((5 + t) / 6)^α  between the two (Wu et al., 2016, eq. 14)

    coverage c(y) = β Σ_i log min(Σ_t a_{t,i}, 1) ≤ 0         source places that no token attended to cost

t counts the generated tokens, the end mark included. log P only falls as a hypothesis grows and c is never above 0,
so each rule can say the best score that a hypothesis may still reach: that is when a search may stop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from ensue.core.errors import InputError

Number = TypeVar("Number", float, Tensor)


class LengthRule(Protocol):
    """How length enters the score."""

    def score(self, log_prob: Number, t: Number | int) -> Number:
        """What a hypothesis of t tokens and this log-probability is worth."""

    def bound(self, log_prob: Number, longest: Number | int) -> Number:
        """The most that any continuation can be worth, when it may have at most ``longest`` tokens."""


class Plain:
    """s = log P."""

    def score(self, log_prob: Number, t: Number | int) -> Number:
        """The log-probability itself, whatever the length."""
        return log_prob

    def bound(self, log_prob: Number, longest: Number | int) -> Number:
        """It only falls."""
        return log_prob


class Mean:
    """s = log P / t.

    >>> Mean().score(-6.0, 3), Mean().bound(-6.0, 12)
    (-2.0, -0.5)
    """

    def score(self, log_prob: Number, t: Number | int) -> Number:
        """The log-probability of a token on average."""
        return log_prob / t

    def bound(self, log_prob: Number, longest: Number | int) -> Number:
        """All the tokens that may follow are certain."""
        return log_prob / longest


class GNMT:
    """s = log P / ((5 + t) / 6)^α."""

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha

    def score(self, log_prob: Number, t: Number | int) -> Number:
        """The log-probability, divided by a power of the length."""
        penalty: Number = ((5 + t) / 6) ** self.alpha  # lp
        return log_prob / penalty

    def bound(self, log_prob: Number, longest: Number | int) -> Number:
        """All the tokens that may follow are certain."""
        return self.score(log_prob, longest)


LENGTH_RULES: dict[str, Callable[[float], LengthRule]] = {
    "none": lambda alpha: Plain(),
    "mean": lambda alpha: Mean(),
    "gnmt": GNMT,
}
"""Rules by name; each is made from α, which only ``gnmt`` needs."""


def coverage_penalty(covered: Tensor, real: Tensor, beta: float) -> Tensor:
    """c = β Σ_i log min(Σ_t a_{t,i}, 1) over real places: covered (…, S) holds Σ_t a_{t,i}; the result is (…).

    >>> covered, real = torch.tensor([1.5, 0.5, 0.0]), torch.tensor([True, True, False])
    >>> round(coverage_penalty(covered, real, 0.2).item(), 4)  # 0.2 log 0.5
    -0.1386
    """
    tiny = torch.finfo(covered.dtype).tiny  # a place that got nothing at all must not cost infinitely much
    return beta * covered.clamp(tiny, 1.0).log().masked_fill(~real, 0.0).sum(-1)


class Coverage:
    """What the rows of a search have attended to so far. Legend: n sentences, w rows of each, S source time."""

    def __init__(self, beta: float) -> None:
        self.beta = beta
        self._covered: Tensor | None = None  # (n, w, S), Σ_t a_{t,i}
        self._real: Tensor | None = None  # (n, 1, S), which source places are no padding

    def add(self, seen: Tensor | None) -> Tensor | None:
        """The penalty of each row (n, w) after it attended to ``seen`` (n, w, S); None where β is 0."""
        if not self.beta:
            return None
        if seen is None or (self._covered is not None and self._covered.shape[-1] != seen.shape[-1]):
            raise InputError("this model attends to no source, so nothing can be covered", hint="set coverage=0")
        if self._covered is None or self._real is None:
            self._covered, self._real = seen, seen[:, :1] > 0  # padding gets exactly nothing
        else:
            self._covered = self._covered + seen
        return coverage_penalty(self._covered, self._real, self.beta).double()

    def pick(self, sentences: Tensor, rows: Tensor) -> None:
        """Go on with some sentences (n',) and with rows (n', w') of them, numbered through."""
        if self._covered is not None and self._real is not None:
            self._covered, self._real = self._covered.flatten(0, 1)[rows], self._real[sentences]
