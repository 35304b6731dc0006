"""Backpointers of a beam search, and how hypotheses are read back from them.

Hypotheses are not copied as they grow. A step stores its candidates and which of them stay open. A candidate points to
the row it continues, and a row to its candidate in the step before:

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
    """The candidates of one step. The ranked ones come first, best first."""

    sentences: Tensor  # (n,), ascending
    rows: Tensor  # (n, c), the row that each candidate continues
    tokens: Tensor  # (n, c)
    log_probs: Tensor  # (n, c), log P of the token
    totals: Tensor  # (n, c), log P of all tokens; −∞ if there is no candidate
    opened: Tensor  # (n, w'), the candidates that stay open: the rows of the next step
    penalty: Tensor | None = None  # (n, w), of coverage
    attention: Tensor | None = None  # (n, w, S)
    disallowed: tuple[Tensor, Tensor] | None = None  # (n, w, b) probable tokens and their log P, −∞ if allowed


class StepRecord:
    """A step as NumPy arrays in main memory."""

    def __init__(self, step: Step) -> None:
        self.index = {sentence: i for i, sentence in enumerate(step.sentences.tolist())}
        self.rows, self.tokens, self.log_probs, self.totals, self.opened = (
            part.cpu().numpy() for part in (step.rows, step.tokens, step.log_probs, step.totals, step.opened)
        )
        self.penalty = step.penalty.cpu().numpy() if step.penalty is not None else None
        self.attention = step.attention.cpu() if step.attention is not None else None
        self.disallowed = tuple(part.cpu().numpy() for part in step.disallowed) if step.disallowed else None


class Backpointer(NamedTuple):
    """A finished candidate: its step (from 0), its rank and its score."""

    step: int
    rank: int
    score: float


class FinishedPool:
    """The finished hypotheses of N sentences, the best ``size`` of each, best first."""

    def __init__(self, sentences: int, size: int, device: torch.device) -> None:
        self.scores = torch.full((sentences, size), float("-inf"), dtype=torch.double, device=device)
        self._pointers = torch.zeros(sentences, size, 2, dtype=torch.long, device=device)  # step and rank

    def add(self, sentences: Tensor, scores: Tensor, step: int) -> None:
        """Add the candidates of rank 0, 1 … of a step with ``scores`` (n, k); −∞ adds nothing."""
        ranks = torch.arange(scores.shape[1], device=scores.device).expand_as(scores)
        pointers = torch.stack([torch.full_like(ranks, step), ranks], dim=-1)
        joined = torch.cat([self.scores[sentences], scores], dim=1)
        ordered, index = joined.sort(dim=1, descending=True, stable=True)  # earlier candidates win ties
        size = self.scores.shape[1]
        both = torch.cat([self._pointers[sentences], pointers], dim=1)
        self.scores[sentences] = ordered[:, :size]
        self._pointers[sentences] = both.gather(1, index[:, :size, None].expand(-1, -1, 2))

    def best(self, most: int) -> list[list[Backpointer]]:
        """The best finished hypotheses of every sentence, at most ``most``."""
        best = [
            [Backpointer(step, rank, score) for (step, rank), score in zip(pointers, scores) if score > float("-inf")]
            for pointers, scores in zip(self._pointers[:, :most].tolist(), self.scores[:, :most].tolist())
        ]
        empty = [number for number, pointers in enumerate(best) if not pointers]
        if empty:
            what = f"no hypothesis is allowed for sentence {empty[0] + 1}"
            raise InputError(what, hint="forbid less, or check that the model's weights are finite")
        return best


def backtrack(records: list[StepRecord], sentence: int, pointer: Backpointer) -> Iterator[tuple[StepRecord, int, int]]:
    """The candidates that lead to a finished one, last first: each as its record, and its index and rank there."""
    rank = pointer.rank
    for number in range(pointer.step, -1, -1):
        record = records[number]
        index = record.index[sentence]
        yield record, index, rank
        if number:
            earlier = records[number - 1]
            rank = earlier.opened[earlier.index[sentence], record.rows[index, rank]]


def hypothesis(records: list[StepRecord], sentence: int, pointer: Backpointer, end: int) -> Hypothesis:
    """Read a finished hypothesis back."""
    path = list(backtrack(records, sentence, pointer))[::-1]
    tokens = [int(record.tokens[i, rank]) for record, i, rank in path]
    log_probs = [float(record.log_probs[i, rank]) for record, i, rank in path]
    attention = [
        record.attention[i, int(record.rows[i, rank])] for record, i, rank in path if record.attention is not None
    ]
    ended = tokens[-1] == end
    record, i, rank = path[-1]
    total = float(record.totals[i, rank])
    return Hypothesis(tokens[: len(tokens) - ended], log_probs, total, pointer.score, ended, _stacked(attention))


def _stacked(attention: list[Tensor]) -> Tensor | None:
    """Attention of each token, (T, S), padded with 0 where the source grew (self-attention)."""
    if not attention:
        return None
    size = max(map(len, attention))
    return torch.stack([F.pad(row, (0, size - len(row))) for row in attention])
