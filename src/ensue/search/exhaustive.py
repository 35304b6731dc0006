"""Exhaustive search: score every sequence and return the best.

    ŷ = argmax_y s(y)     over all y of at most T tokens

At step t there are V^t partial sequences, so this is for small vocabularies and short sequences, to see what beam
search misses. All sequences of a length are read as one batch.

Legend: R rows (open sequences), V vocabulary, M = all continuations of a level, S source time.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ensue.core.errors import InputError
from ensue.search.backpointers import FinishedPool, Step, StepRecord, hypothesis
from ensue.search.beam import Search
from ensue.search.beam_trace import BeamTracer
from ensue.search.constraints import NEG_INF, Constraints
from ensue.search.hypotheses import SearchResult
from ensue.search.length_penalty import Coverage
from ensue.search.model_step import SearchModel, expand_start, model_step, set_eval
from ensue.search.trace import Fate, Trace, ending

MAX_HYPOTHESES = 200_000


def exhaustive(
    model: SearchModel,
    state: Any,
    begin: int | Tensor,
    *,
    end: int | None,
    longest: int | Tensor,
    how: Search | None = None,
    trace: bool = False,
) -> list[SearchResult]:
    """The best ``how.nbest`` of all continuations of every row of ``state``, after the model reads ``begin``.

    ``how.beam`` is ignored; everything else is as in ``beam_search``.
    """
    how = how or Search()
    set_eval(model)
    first, most = expand_start(begin, longest, state)
    results = []
    for number in range(len(first)):
        row = torch.tensor([number], device=first.device)
        row_state = state.fork().rows(row) if len(first) > 1 else state
        constraints = Constraints(-1 if end is None else end, how.shortest, how.forbidden, None, most[row])
        with torch.no_grad():
            levels, pool = _levels(model, row_state, first[row], int(most[number]), how, constraints)
        records, pointers = [StepRecord(level) for level in levels], pool.best(how.nbest)[0]
        best = [hypothesis(records, 0, pointer, constraints.end) for pointer in pointers]
        tracer = _ExhaustiveTracer(records, 0, how.length, how.penalty, constraints)
        results.append(SearchResult(best, tracer.trace(0, int(most[number]), pointers, best) if trace else None))
    return results


def _levels(
    model: SearchModel, state: Any, tokens: Tensor, longest: int, how: Search, constraints: Constraints
) -> tuple[list[Step], FinishedPool]:
    """All sequences of one sentence, by length, and the best finished ones."""
    only = torch.zeros(1, dtype=torch.long, device=tokens.device)
    totals = torch.zeros(1, dtype=torch.double, device=tokens.device)
    pool, coverage, levels = FinishedPool(1, how.nbest, tokens.device), Coverage(how.coverage), []
    for step in range(longest):
        logits, seen, state = model_step(model, tokens[:, None], state, how.coverage > 0)
        if step == 0:
            constraints.check(logits.shape[-1])
            _check_number(logits.shape[-1], longest, constraints)
        seen = seen[None] if seen is not None else None
        penalty = coverage.add(seen)
        log_probs = constraints.allowed(logits.log_softmax(-1), step, only).double()
        rows, tokens = (log_probs > NEG_INF).nonzero(as_tuple=True)  # (M,)
        log_probs = log_probs[rows, tokens]
        totals = totals[rows] + log_probs
        finished = (tokens == constraints.end) | (step + 1 == longest)
        scores = how.penalty.score(totals, step + 1) + (penalty[0, rows] if penalty is not None else 0.0)
        pool.add(only, scores.masked_fill(~finished, NEG_INF)[None], step)
        opened = (~finished).nonzero()[:, 0]
        levels.append(Step(only, rows[None], tokens[None], log_probs[None], totals[None], opened[None], penalty, seen))
        if not len(opened):
            break
        tokens, totals, rows = tokens[opened], totals[opened], rows[opened]
        state = state.rows(rows)
        coverage.pick(only, rows[None])
    return levels, pool


def _check_number(vocabulary: int, longest: int, constraints: Constraints) -> None:
    """Raise an error if there are too many hypotheses."""
    ends = constraints.end >= 0 and constraints.end not in constraints.forbidden
    continuing = vocabulary - len({*constraints.forbidden} | ({constraints.end} if constraints.end >= 0 else set()))
    number = continuing**longest + (sum(continuing**t for t in range(constraints.shortest, longest)) if ends else 0)
    if number > MAX_HYPOTHESES:
        what = f"{number:,} hypotheses of up to {longest} tokens of {vocabulary} are more than {MAX_HYPOTHESES:,}"
        raise InputError(what, hint="use beam search")


class _ExhaustiveTracer(BeamTracer):
    """Traces a search that keeps every candidate."""

    def new_trace(self) -> Trace:
        return Trace("exhaustive", 0, self.length)

    def fate(self, number: int, sentence: int, rank: int, token: int, score: float, longest: int) -> tuple[Fate, str]:
        is_end = token == self.constraints.end
        finished = is_end or number + 1 == longest
        return ("ended", ending(score, is_end)) if finished else ("kept", "every token is tried")
