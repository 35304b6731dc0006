"""Beam search: at each step keep the k most probable hypotheses.

    score(y_1 … y_t) = log P(y_1 … y_t | x) = Σ_i log P(y_i | y_1 … y_{i-1}, x)

At each step all continuations of a sentence's k open hypotheses are ranked by log P. Those of the k best that are the
end mark are finished, and are worth what the length rule says (see ``rules``); the k best of the others stay open.
A sentence is done when no open hypothesis can win any more, or at its longest length, where the k best are cut as they
are. k = 1 is greedy search: it takes the most probable token each time, and the first end mark ends it.

Sentences are searched side by side, the rows of one next to each other; one that is done leaves the batch. Of each row
only its k + 1 most probable tokens can matter: k that go on, and the end mark.

Legend: N sentences, n still open, w ≤ k rows of each, c candidates of each, V vocabulary, S source time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ensue.core.errors import unknown_name
from ensue.core.events import Report, silent
from ensue.core.settings import check, check_positive
from ensue.search.backpointers import Page, Pool, Step, hypothesis
from ensue.search.beam_trace import Teller
from ensue.search.constraints import NEVER, Constraints
from ensue.search.hypotheses import Found
from ensue.search.length_penalty import LENGTH_RULES, Coverage, LengthRule
from ensue.search.model_step import Model, lined_up, picked, quiet, read
from ensue.search.topk import best


@dataclass(frozen=True, kw_only=True, slots=True)
class Search:
    """How to search."""

    beam: int = 5
    """k, the number of hypotheses that are kept open; 1 is greedy."""
    length: str = "mean"
    """What a finished hypothesis is worth: none (log P), mean (log P / t) or gnmt (log P / ((5 + t) / 6)^α)."""
    alpha: float = 0.6
    """α of gnmt: 0 is none."""
    coverage: float = 0.0
    """β of the coverage penalty β Σ_i log min(Σ_t a_ti, 1), for models that attend to a source."""
    nbest: int = 1
    """How many hypotheses to answer with."""
    shortest: int = 0
    """How many tokens come before the end mark at least."""
    forbidden: tuple[int, ...] = ()
    """Tokens that no hypothesis may have."""

    def __post_init__(self) -> None:
        check_positive(self, "beam", "nbest")
        if self.length not in LENGTH_RULES:
            raise unknown_name("length rule", self.length, LENGTH_RULES)
        check(self, "alpha", 0 <= self.alpha < float("inf"), "0 or more")
        check(self, "coverage", 0 <= self.coverage < float("inf"), "0 or more")
        check(self, "shortest", self.shortest >= 0, "0 or more")
        check(self, "forbidden", min(self.forbidden, default=0) >= 0, "token numbers")

    @property
    def rule(self) -> LengthRule:
        """The length rule."""
        return LENGTH_RULES[self.length](self.alpha)


def beam_search(
    model: Model,
    state: Any,
    begin: int | Tensor,
    *,
    end: int | None,
    longest: int | Tensor,
    how: Search | None = None,
    trace: bool = False,
    prefix: Sequence[Sequence[int]] | None = None,
    attention: bool = False,
    report: Report = silent,
) -> list[Found]:
    """The best continuations of every row of ``state``, after the model has read ``begin``.

    begin      the first token that each row reads, one for all or (N,)
    end        the end mark; None where nothing ends but by length
    longest    the most tokens to generate, one number for all or (N,)
    trace      also answer what was tried, and what became of it
    prefix     for each sentence the tokens it must begin with; they count as generated
    attention  also answer where each token attended to
    """
    how = how or Search()
    quiet(model)
    first, most = lined_up(begin, longest, state)
    constraints = Constraints(-1 if end is None else end, how.shortest, how.forbidden, prefix, most)
    search = _BeamSearch(how, constraints, most, trace, attention, report)
    with torch.no_grad():
        search.run(model, state, first)
    pages = [Page(step) for step in search.steps]
    answers = search.pool.answers(how.nbest)
    found = [[hypothesis(pages, n, mark, constraints.end) for mark in marks] for n, marks in enumerate(answers)]
    if not trace:
        return [Found(one) for one in found]
    teller = Teller(pages, how.beam, how.length, how.rule, constraints)
    limits = most.tolist()
    return [Found(one, teller.tell(n, limits[n], answers[n], one)) for n, one in enumerate(found)]


class _Ranked(NamedTuple):
    """The candidates of a step, the best 2k first; each (n, c)."""

    rows: Tensor
    tokens: Tensor
    log_probs: Tensor
    totals: Tensor


class _BeamSearch:
    """The search itself: what is open, what is finished, and what was written down."""

    def __init__(
        self, how: Search, constraints: Constraints, longest: Tensor, trace: bool, attention: bool, report: Report
    ) -> None:
        self.how, self.rule, self.constraints = how, how.rule, constraints
        self.trace, self.attend, self.report = trace, attention or how.coverage > 0, report
        self.count, self.longest = len(longest), longest
        self.sentences = torch.arange(self.count, device=longest.device)  # still open, (n,)
        self.totals = torch.zeros(self.count, 1, dtype=torch.double, device=longest.device)  # log P of each row, (n, w)
        self.coverage = Coverage(how.coverage)
        self.pool = Pool(self.count, max(how.beam, how.nbest), longest.device)
        self.steps: list[Step] = []

    def run(self, model: Model, state: Any, first: Tensor) -> None:
        """Step by step, until every sentence is done."""
        tokens = first[:, None]
        while len(self.sentences):
            logits, seen, state = read(model, tokens.reshape(-1, 1), state, self.attend)
            if not self.steps:
                self.constraints.check(logits.shape[-1])
            rows = len(logits)
            tokens, index = self._step(logits, seen)
            state = picked(state, index, rows) if len(index) else state
            self.report("progress", {"done": self.count - len(self.sentences), "total": self.count})

    def _step(self, logits: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor]:
        """Rank what may come next; answer the tokens (n', w') to read and the rows that they continue, flat."""
        n, w = self.totals.shape
        log_probs = logits.log_softmax(-1)
        allowed = self.constraints.allowed(log_probs, len(self.steps), self.sentences)
        ranked = self._rank(allowed)
        seen = seen.view(n, w, -1) if seen is not None else None
        penalty = self.coverage.add(seen)
        opened = self._opened(ranked)
        self.steps.append(
            Step(
                self.sentences,
                *ranked,
                opened,
                penalty,
                seen,
                self._barred(log_probs, allowed) if self.trace and allowed is not log_probs else None,
            )
        )
        last = self.longest == len(self.steps)
        self._finish(ranked, penalty, last)
        return self._go_on(ranked, opened, last)

    def _rank(self, allowed: Tensor) -> _Ranked:
        """The best candidates of each sentence: the k + 1 best of each row, then the 2k best of those."""
        n, k = len(self.totals), self.how.beam
        values, ids = best(allowed, k + 1)
        each = ids.shape[-1]
        log_probs = values.double()
        totals = (log_probs + self.totals.view(-1, 1)).view(n, -1)
        order = totals.topk(min(2 * k, totals.shape[1])).indices
        if self.trace:  # all that was looked at, the rest in any order
            rest = torch.zeros_like(totals, dtype=torch.uint8).scatter(1, order, 1).sort(dim=1, stable=True).indices
            order = torch.cat([order, rest[:, : totals.shape[1] - order.shape[1]]], dim=1)
        tokens, chances = (part.view(n, -1).gather(1, order) for part in (ids, log_probs))
        return _Ranked(order.div(each, rounding_mode="floor"), tokens, chances, totals.gather(1, order))

    def _opened(self, ranked: _Ranked) -> Tensor:
        """The ranks of the k best candidates that can go on, (n, w'); as few columns as hold them all."""
        closed = (ranked.tokens == self.constraints.end) | (ranked.totals == NEVER)
        closed = closed[:, : 2 * self.how.beam]
        width = min(self.how.beam, int((~closed).sum(1).max()))
        return closed.sort(dim=1, stable=True).indices[:, :width]

    def _finish(self, ranked: _Ranked, penalty: Tensor | None, last: Tensor) -> None:
        """Let those of the k best that end, or that are as long as they may be, join the pool."""
        k = self.how.beam
        totals, rows = ranked.totals[:, :k], ranked.rows[:, :k]
        joins = (ranked.tokens[:, :k] == self.constraints.end) | last[:, None]
        if bool(joins.any()):
            scores = self.rule.score(totals, len(self.steps))
            if penalty is not None:
                scores = scores + penalty.gather(1, rows)
            self.pool.add(self.sentences, scores.masked_fill(~joins, NEVER), len(self.steps) - 1)

    def _go_on(self, ranked: _Ranked, opened: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        """Leave the sentences that are done, and answer what the others read next."""
        n, w = self.totals.shape
        closed = (ranked.tokens == self.constraints.end).gather(1, opened)
        totals = ranked.totals.gather(1, opened).masked_fill(closed, NEVER)
        index = ranked.rows.gather(1, opened) + torch.arange(0, n * w, w, device=opened.device)[:, None]
        tokens = ranked.tokens.gather(1, opened)
        done = self._done(totals, last)
        stay = (~done).nonzero()[:, 0]
        if len(stay) < n:
            self.sentences, self.longest = self.sentences[stay], self.longest[stay]
            totals, index, tokens = totals[stay], index[stay], tokens[stay]
        self.totals = totals
        self.coverage.pick(stay, index)
        return tokens, index.flatten()

    def _done(self, totals: Tensor, last: Tensor) -> Tensor:
        """Which sentences can stop: no open hypothesis can be worth more than what is finished, (n,)."""
        if not totals.shape[1]:
            return torch.ones_like(last)
        finished = self.pool.scores[self.sentences]
        if self.how.beam == 1:
            return last | (finished[:, 0] > NEVER) | (totals[:, 0] == NEVER)
        return last | (self.rule.bound(totals[:, 0], self.longest) <= finished[:, self.how.nbest - 1])

    def _barred(self, log_probs: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor]:
        """The likeliest tokens of each row that were not allowed, and their log-probabilities; −∞ where allowed."""
        n, w = self.totals.shape
        values, ids = best(log_probs, self.how.beam + 1)
        kept = allowed.gather(1, ids) > NEVER
        return ids.view(n, w, -1), values.masked_fill(kept, NEVER).double().view(n, w, -1)
