"""Exhaustive search: every sequence there is, and the best of them.

    ŷ = argmax_y s(y)     over all y of at most T tokens

On each step t there are V^t partial sequences, so this is for small vocabularies and short sequences: to see what
beam search misses. They are read side by side, level by level.

Legend: R rows (open sequences), V vocabulary, M = all continuations of a level, S source time.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ensue.core.errors import InputError
from ensue.search.backpointers import Mark, Page, Pool, Step, hypothesis
from ensue.search.beam import Search
from ensue.search.constraints import NEVER, Constraints
from ensue.search.hypotheses import Found, Hypothesis
from ensue.search.length_penalty import Coverage
from ensue.search.model_step import Model, lined_up, quiet, read
from ensue.search.trace import Trace, ending

MOST = 200_000
"""How many hypotheses are still tried."""


def exhaustive(
    model: Model,
    state: Any,
    begin: int | Tensor,
    *,
    end: int | None,
    longest: int | Tensor,
    how: Search | None = None,
    trace: bool = False,
) -> list[Found]:
    """The best ``how.nbest`` of all continuations of every row of ``state``, after the model has read ``begin``.

    ``how.beam`` plays no part; everything else is as in ``beam_search``.
    """
    how = how or Search()
    quiet(model)
    first, most = lined_up(begin, longest, state)
    found = []
    for number in range(len(first)):
        one = torch.tensor([number], device=first.device)
        own = state.fork().rows(one) if len(first) > 1 else state
        constraints = Constraints(-1 if end is None else end, how.shortest, how.forbidden, None, most[one])
        with torch.no_grad():
            levels, pool = _levels(model, own, first[one], int(most[number]), how, constraints)
        found.append(_answer([Page(level) for level in levels], pool.answers(how.nbest)[0], how, constraints, trace))
    return found


def _levels(
    model: Model, state: Any, tokens: Tensor, longest: int, how: Search, constraints: Constraints
) -> tuple[list[Step], Pool]:
    """All sequences of one sentence, level by level, and the best of those that are finished."""
    only = torch.zeros(1, dtype=torch.long, device=tokens.device)
    totals = torch.zeros(1, dtype=torch.double, device=tokens.device)
    pool, coverage, levels = Pool(1, how.nbest, tokens.device), Coverage(how.coverage), []
    for step in range(longest):
        logits, seen, state = read(model, tokens[:, None], state, how.coverage > 0)
        if step == 0:
            constraints.check(logits.shape[-1])
            _check_number(logits.shape[-1], longest, constraints)
        seen = seen[None] if seen is not None else None
        penalty = coverage.add(seen)
        log_probs = constraints.allowed(logits.log_softmax(-1), step, only).double()
        rows, tokens = (log_probs > NEVER).nonzero(as_tuple=True)  # (M,)
        log_probs = log_probs[rows, tokens]
        totals = totals[rows] + log_probs
        finished = (tokens == constraints.end) | (step + 1 == longest)
        scores = how.rule.score(totals, step + 1) + (penalty[0, rows] if penalty is not None else 0.0)
        pool.add(only, scores.masked_fill(~finished, NEVER)[None], step)
        opened = (~finished).nonzero()[:, 0]
        levels.append(Step(only, rows[None], tokens[None], log_probs[None], totals[None], opened[None], penalty, seen))
        if not len(opened):
            break
        tokens, totals, rows = tokens[opened], totals[opened], rows[opened]
        state = state.rows(rows)
        coverage.pick(only, rows[None])
    return levels, pool


def _check_number(vocabulary: int, longest: int, constraints: Constraints) -> None:
    """Refuse what would take too long, and say how much it is."""
    ends = constraints.end >= 0 and constraints.end not in constraints.forbidden
    going_on = vocabulary - len({*constraints.forbidden} | ({constraints.end} if constraints.end >= 0 else set()))
    number = going_on**longest + (sum(going_on**t for t in range(constraints.shortest, longest)) if ends else 0)
    if number > MOST:
        what = f"there are {number:,} hypotheses of up to {longest} tokens of {vocabulary}, more than {MOST:,}"
        raise InputError(what, hint="use beam search")


def _answer(pages: list[Page], marks: list[Mark], how: Search, constraints: Constraints, trace: bool) -> Found:
    """The best hypotheses, and every sequence where that was asked for."""
    best = [hypothesis(pages, 0, mark, constraints.end) for mark in marks]
    return Found(best, _trace(pages, marks, best, how, constraints) if trace else None)


def _trace(
    pages: list[Page], marks: list[Mark], best: list[Hypothesis], how: Search, constraints: Constraints
) -> Trace:
    """A node for every sequence."""
    trace = Trace("exhaustive", 0, how.length)
    before: list[int | None] = [None]
    by_mark = []
    for number, page in enumerate(pages):
        nodes = []
        opened = {*page.opened[0].tolist()}
        parts = (page.rows, page.tokens, page.log_probs, page.totals)
        for rank, (row, token, log_prob, total) in enumerate(zip(*(part[0].tolist() for part in parts))):
            penalty = float(page.penalty[0, row]) if page.penalty is not None else 0.0
            score = how.rule.score(total, number + 1) + penalty
            is_open, is_end = rank in opened, token == constraints.end
            why = "every token is tried" if is_open else ending(score, is_end)
            nodes.append(trace.add(before[row], token, log_prob, score, "kept" if is_open else "ended", why))
        by_mark.append(nodes)
        before = [nodes[rank] for rank in page.opened[0].tolist()]
    for mark, one in zip(marks, best):
        trace.paths.append(one.path(trace.path(by_mark[mark.step][mark.rank])))
    last = trace.paths[0].nodes[-1]
    trace.change(last, "best", f"{trace.nodes[last].why}, the best")
    return trace
