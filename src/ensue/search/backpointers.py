"""What a beam search writes down at each step, and how hypotheses are read back from it.

Nothing is copied as hypotheses grow. A step notes its candidates and which of them stay open; a candidate points back
to the row it continues, and a row to the candidate of the step before that it was:

    row r at step t  =  candidate opened[r] of step t − 1,  which continues row rows[opened[r]] at step t − 1,  …

Legend: N sentences, n of them still open, w rows of each (hypotheses), c candidates of each, S source time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ensue.core.errors import InputError
from ensue.search.hypotheses import Hypothesis


@dataclass(frozen=True, slots=True)
class Step:
    """The candidates of one step, best first, as far as they were ranked."""

    sentences: Tensor  # (n,), ascending
    rows: Tensor  # (n, c), the row that each candidate continues
    tokens: Tensor  # (n, c)
    log_probs: Tensor  # (n, c), log P of the token
    totals: Tensor  # (n, c), log P of all tokens; −∞ is no candidate
    opened: Tensor  # (n, w'), the candidates that stay open: the rows of the next step
    penalty: Tensor | None = None  # (n, w), of coverage
    attention: Tensor | None = None  # (n, w, S)
    barred: tuple[Tensor, Tensor] | None = None  # (n, w, b) likely tokens and their log P, −∞ where they are allowed


class Page:
    """A step as it is read back: in main memory, as arrays, one number at a time."""

    def __init__(self, step: Step) -> None:
        self.places = {sentence: place for place, sentence in enumerate(step.sentences.tolist())}
        self.rows, self.tokens, self.log_probs, self.totals, self.opened = (
            part.cpu().numpy() for part in (step.rows, step.tokens, step.log_probs, step.totals, step.opened)
        )
        self.penalty = step.penalty.cpu().numpy() if step.penalty is not None else None
        self.attention = step.attention.cpu() if step.attention is not None else None
        self.barred = tuple(part.cpu().numpy() for part in step.barred) if step.barred else None


class Mark(NamedTuple):
    """A candidate: of which step (from 0), of which rank, and what it is worth."""

    step: int
    rank: int
    score: float


class Pool:
    """The finished hypotheses of N sentences, the best ``size`` of each, best first."""

    def __init__(self, sentences: int, size: int, device: torch.device) -> None:
        self.scores = torch.full((sentences, size), float("-inf"), dtype=torch.double, device=device)
        self._marks = torch.zeros(sentences, size, 2, dtype=torch.long, device=device)  # step and rank

    def add(self, sentences: Tensor, scores: Tensor, step: int) -> None:
        """Let the candidates of rank 0, 1 … of a step join with ``scores`` (n, k); −∞ joins nothing."""
        ranks = torch.arange(scores.shape[1], device=scores.device).expand_as(scores)
        marks = torch.stack([torch.full_like(ranks, step), ranks], dim=-1)
        joined = torch.cat([self.scores[sentences], scores], dim=1)
        ordered, index = joined.sort(dim=1, descending=True, stable=True)  # of equals, what was found first
        size = self.scores.shape[1]
        both = torch.cat([self._marks[sentences], marks], dim=1)
        self.scores[sentences] = ordered[:, :size]
        self._marks[sentences] = both.gather(1, index[:, :size, None].expand(-1, -1, 2))

    def answers(self, most: int) -> list[list[Mark]]:
        """For every sentence its best finished hypotheses, at most so many."""
        found = [
            [Mark(step, rank, score) for (step, rank), score in zip(marks, scores) if score > float("-inf")]
            for marks, scores in zip(self._marks[:, :most].tolist(), self.scores[:, :most].tolist())
        ]
        empty = [number for number, marks in enumerate(found) if not marks]
        if empty:
            what = f"no hypothesis is allowed for sentence {empty[0] + 1}"
            raise InputError(what, hint="forbid less, or look whether the model answers numbers")
        return found


def trail(pages: list[Page], sentence: int, mark: Mark) -> Iterator[tuple[Page, int, int]]:
    """The candidates that lead to a finished one, last first: each its page, and its place and rank there."""
    rank = mark.rank
    for number in range(mark.step, -1, -1):
        page = pages[number]
        place = page.places[sentence]
        yield page, place, rank
        if number:
            earlier = pages[number - 1]
            rank = earlier.opened[earlier.places[sentence], page.rows[place, rank]]


def hypothesis(pages: list[Page], sentence: int, mark: Mark, end: int) -> Hypothesis:
    """Read a finished hypothesis back."""
    way = list(trail(pages, sentence, mark))[::-1]
    tokens = [int(page.tokens[place, rank]) for page, place, rank in way]
    log_probs = [float(page.log_probs[place, rank]) for page, place, rank in way]
    seen = [
        page.attention[place, int(page.rows[place, rank])] for page, place, rank in way if page.attention is not None
    ]
    ended = tokens[-1] == end
    page, place, rank = way[-1]
    total = float(page.totals[place, rank])
    return Hypothesis(tokens[: len(tokens) - ended], log_probs, total, mark.score, ended, _stacked(seen))


def _stacked(seen: list[Tensor]) -> Tensor | None:
    """Attention of one token after another, (T, S); a memory that grows is 0 where it was not yet."""
    if not seen:
        return None
    size = max(map(len, seen))
    return torch.stack([F.pad(one, (0, size - len(one))) for one in seen])
