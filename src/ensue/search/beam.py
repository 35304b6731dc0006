"""Beam search: at each step keep the k most probable hypotheses.

    score(y_1 … y_t) = log P(y_1 … y_t | x) = Σ_i log P(y_i | y_1 … y_{i-1}, x)

At each step all continuations of a sentence's k open hypotheses are ranked by log P. Those of the k best that are the
end token are finished and scored with the length penalty (see ``length_penalty``); the k best of the others stay open.
A sentence is done when no open hypothesis can win any more, or at its maximum length, where the k best are cut off.
k = 1 is greedy search: it takes the most probable token at each step and stops at the first end token.

Sentences are searched in one batch, the rows of a sentence next to each other; finished sentences leave the batch. Only
the k + 1 most probable tokens of each row can matter: k that continue, and the end token.

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
from ensue.core.settings import check, check_not_negative, check_positive
from ensue.search.backpointers import FinishedPool, Step, StepRecord, hypothesis
from ensue.search.beam_trace import BeamTracer
from ensue.search.constraints import NEG_INF, Constraints
from ensue.search.hypotheses import SearchResult
from ensue.search.length_penalty import LENGTH_PENALTIES, Coverage, LengthPenalty
from ensue.search.model_step import SearchModel, expand_start, model_step, select_rows, set_eval
from ensue.search.topk import fast_topk


@dataclass(frozen=True, kw_only=True, slots=True)
class Search:
    """Settings of beam search."""

    beam: int = 5
    """k, the beam size; 1 is greedy search."""
    length: str = "mean"
    """Length penalty of finished hypotheses: none (log P), mean (log P / t) or gnmt (log P / ((5 + t) / 6)^α)."""
    alpha: float = 0.6
    """α of gnmt; 0 is no penalty."""
    coverage: float = 0.0
    """β of the coverage penalty β Σ_i log min(Σ_t a_ti, 1), for models that attend to a source."""
    nbest: int = 1
    """The number of hypotheses to return."""
    shortest: int = 0
    """The minimum number of tokens before the end token."""
    forbidden: tuple[int, ...] = ()
    """Tokens that no hypothesis may contain."""

    def __post_init__(self) -> None:
        check_positive(self, "beam", "nbest")
        if self.length not in LENGTH_PENALTIES:
            raise unknown_name("length penalty", self.length, LENGTH_PENALTIES)
        check_not_negative(self, "alpha", "coverage", "shortest")
        check(self, "forbidden", min(self.forbidden, default=0) >= 0, "token numbers")

    @property
    def penalty(self) -> LengthPenalty:
        """The length penalty."""
        return LengthPenalty(self.length, self.alpha)


def beam_search(
    model: SearchModel,
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
) -> list[SearchResult]:
    """Find the best continuations of every row of ``state``, after the model reads ``begin``.

    begin      the first token that each row reads, one for all or (N,)
    end        the end token; None if hypotheses end by length only
    longest    the maximum number of tokens to generate, one for all or (N,)
    trace      also return every candidate and its fate
    prefix     for each sentence the tokens it must begin with; they count as generated
    attention  also return the attention of each token
    """
    how = how or Search()
    set_eval(model)
    first, most = expand_start(begin, longest, state)
    constraints = Constraints(-1 if end is None else end, how.shortest, how.forbidden, prefix, most)
    search = _BeamSearch(how, constraints, most, trace, attention, report)
    with torch.no_grad():
        search.run(model, state, first)
    records = [StepRecord(step) for step in search.steps]
    best = search.finished.best(how.nbest)
    results = [[hypothesis(records, n, pointer, constraints.end) for pointer in best[n]] for n in range(len(best))]
    if not trace:
        return [SearchResult(hypotheses) for hypotheses in results]
    tracer, limits = BeamTracer(records, how.beam, how.length, how.penalty, constraints), most.tolist()
    return [
        SearchResult(hypotheses, tracer.trace(n, limits[n], best[n], hypotheses))
        for n, hypotheses in enumerate(results)
    ]


class _Ranked(NamedTuple):
    """The candidates of a step, the best 2k first; each (n, c)."""

    rows: Tensor
    tokens: Tensor
    log_probs: Tensor
    totals: Tensor


class _BeamSearch:
    """The state of a search: open rows, finished hypotheses and recorded steps."""

    def __init__(
        self, how: Search, constraints: Constraints, longest: Tensor, trace: bool, attention: bool, report: Report
    ) -> None:
        self.how, self.penalty, self.constraints = how, how.penalty, constraints
        self.trace, self.attend, self.report = trace, attention or how.coverage > 0, report
        self.count, self.longest = len(longest), longest
        self.sentences = torch.arange(self.count, device=longest.device)  # still open, (n,)
        self.totals = torch.zeros(self.count, 1, dtype=torch.double, device=longest.device)  # log P of each row, (n, w)
        self.coverage = Coverage(how.coverage)
        self.finished = FinishedPool(self.count, max(how.beam, how.nbest), longest.device)
        self.steps: list[Step] = []

    def run(self, model: SearchModel, state: Any, first: Tensor) -> None:
        """Search until every sentence is done."""
        tokens = first[:, None]
        while len(self.sentences):
            logits, seen, state = model_step(model, tokens.reshape(-1, 1), state, self.attend)
            if not self.steps:
                self.constraints.check(logits.shape[-1])
            rows = len(logits)
            tokens, index = self._step(logits, seen)
            state = select_rows(state, index, rows) if len(index) else state
            self.report("progress", {"done": self.count - len(self.sentences), "total": self.count})

    def _step(self, logits: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor]:
        """Rank the candidates; return the tokens (n', w') to read next and the rows that they continue, flat."""
        n, w = self.totals.shape
        log_probs = logits.log_softmax(-1)
        allowed = self.constraints.allowed(log_probs, len(self.steps), self.sentences)
        ranked = self._rank(allowed)
        seen = seen.view(n, w, -1) if seen is not None else None
        penalty = self.coverage.add(seen)
        opened = self._opened(ranked)
        disallowed = self._disallowed(log_probs, allowed) if self.trace and allowed is not log_probs else None
        self.steps.append(Step(self.sentences, *ranked, opened, penalty, seen, disallowed))
        last = self.longest == len(self.steps)
        self._finish(ranked, penalty, last)
        return self._continue(ranked, opened, last)

    def _rank(self, allowed: Tensor) -> _Ranked:
        """The best candidates of each sentence: the k + 1 best of each row, then the 2k best of those."""
        n, k = len(self.totals), self.how.beam
        values, ids = fast_topk(allowed, k + 1)
        each = ids.shape[-1]
        log_probs = values.double()
        totals = (log_probs + self.totals.view(-1, 1)).view(n, -1)
        order = totals.topk(min(2 * k, totals.shape[1])).indices
        if self.trace:  # also the candidates that were not ranked
            rest = torch.zeros_like(totals, dtype=torch.uint8).scatter(1, order, 1).sort(dim=1, stable=True).indices
            order = torch.cat([order, rest[:, : totals.shape[1] - order.shape[1]]], dim=1)
        tokens, token_log_probs = (part.view(n, -1).gather(1, order) for part in (ids, log_probs))
        return _Ranked(order.div(each, rounding_mode="floor"), tokens, token_log_probs, totals.gather(1, order))

    def _opened(self, ranked: _Ranked) -> Tensor:
        """The ranks of the k best candidates that stay open, (n, w')."""
        closed = (ranked.tokens == self.constraints.end) | (ranked.totals == NEG_INF)
        closed = closed[:, : 2 * self.how.beam]
        width = min(self.how.beam, int((~closed).sum(1).max()))
        return closed.sort(dim=1, stable=True).indices[:, :width]

    def _finish(self, ranked: _Ranked, penalty: Tensor | None, last: Tensor) -> None:
        """Add those of the k best that ended, or reached the maximum length, to the finished ones."""
        k = self.how.beam
        totals, rows = ranked.totals[:, :k], ranked.rows[:, :k]
        ends = (ranked.tokens[:, :k] == self.constraints.end) | last[:, None]
        if bool(ends.any()):
            scores = self.penalty.score(totals, len(self.steps))
            if penalty is not None:
                scores = scores + penalty.gather(1, rows)
            self.finished.add(self.sentences, scores.masked_fill(~ends, NEG_INF), len(self.steps) - 1)

    def _continue(self, ranked: _Ranked, opened: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        """Drop the sentences that are done, and return what the others read next."""
        n, w = self.totals.shape
        closed = (ranked.tokens == self.constraints.end).gather(1, opened)
        totals = ranked.totals.gather(1, opened).masked_fill(closed, NEG_INF)
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
        """Which sentences are done: no open hypothesis can score higher than the finished ones, (n,)."""
        if not totals.shape[1]:
            return torch.ones_like(last)
        finished = self.finished.scores[self.sentences]
        if self.how.beam == 1:
            return last | (finished[:, 0] > NEG_INF) | (totals[:, 0] == NEG_INF)
        return last | (self.penalty.bound(totals[:, 0], self.longest) <= finished[:, self.how.nbest - 1])

    def _disallowed(self, log_probs: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor]:
        """The most probable tokens of each row that are not allowed, and their log-probabilities; −∞ if allowed."""
        n, w = self.totals.shape
        values, ids = fast_topk(log_probs, self.how.beam + 1)
        kept = allowed.gather(1, ids) > NEG_INF
        return ids.view(n, w, -1), values.masked_fill(kept, NEG_INF).double().view(n, w, -1)
