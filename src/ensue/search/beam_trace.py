"""The trace of a beam search, made from its recorded steps after it is done."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ensue.search.backpointers import Backpointer, StepRecord
from ensue.search.constraints import Constraints
from ensue.search.hypotheses import Hypothesis
from ensue.search.length_penalty import LengthPenalty
from ensue.search.trace import Fate, Trace, ending


@dataclass(frozen=True, slots=True)
class BeamTracer:
    """Makes the traces of a batch of sentences."""

    records: list[StepRecord]
    beam: int
    length: str
    penalty: LengthPenalty
    constraints: Constraints

    def trace(self, sentence: int, longest: int, pointers: list[Backpointer], best: list[Hypothesis]) -> Trace:
        """The trace of one sentence; ``pointers`` are its best candidates, ``best`` the same as hypotheses."""
        trace = self.new_trace()
        before: list[int | None] = [None]  # the node of each row
        by_pointer: dict[tuple[int, int], int] = {}
        for number, record in enumerate(self.records):
            if sentence not in record.index:
                break
            nodes = self._candidates(trace, number, sentence, longest, before)
            self._disallowed(trace, number, sentence, before)
            by_pointer.update({(number, rank): node for rank, node in nodes.items()})
            before = [nodes.get(rank) for rank in record.opened[record.index[sentence]].tolist()]
        for number, (pointer, hypothesis) in enumerate(zip(pointers, best)):
            node = by_pointer[pointer.step, pointer.rank]
            trace.paths.append(hypothesis.path(trace.path(node)))
            if number == 0:
                trace.change(node, "best", f"{trace.nodes[node].why}, the best")
        return trace

    def new_trace(self) -> Trace:
        """Return an empty trace."""
        return Trace("greedy" if self.beam == 1 else "beam", self.beam, self.length)

    def _candidates(
        self, trace: Trace, number: int, sentence: int, longest: int, before: list[int | None]
    ) -> dict[int, int]:
        """Add the candidates of a step, and return the node of each rank."""
        record, nodes = self.records[number], {}
        i = record.index[sentence]
        parts = (record.rows, record.tokens, record.log_probs, record.totals)
        for rank, (row, token, log_prob, total) in enumerate(zip(*(part[i].tolist() for part in parts))):
            if total > -math.inf:
                score = self._score(number, sentence, row, total)
                fate, why = self.fate(number, sentence, rank, token, score, longest)
                nodes[rank] = trace.add(before[row], token, log_prob, score, fate, why)
        return nodes

    def fate(self, number: int, sentence: int, rank: int, token: int, score: float, longest: int) -> tuple[Fate, str]:
        """Return the fate of a candidate, and the reason."""
        record, last, is_end = self.records[number], number + 1 == longest, token == self.constraints.end
        if rank < self.beam and (is_end or last):
            return "ended", ending(score, is_end)
        if last or is_end or rank not in record.opened[record.index[sentence]] or (self.beam == 1 and rank):
            return "pruned", "not the best" if self.beam == 1 else f"not among the {self.beam} best"
        if number + 1 == len(self.records) or sentence not in self.records[number + 1].index:
            return "pruned", "cannot win any more"
        if self.constraints.forces(number, sentence):
            return "kept", "forced"
        return "kept", "the best" if self.beam == 1 else f"among the {self.beam} best"

    def _disallowed(self, trace: Trace, number: int, sentence: int, before: list[int | None]) -> None:
        """Add the probable tokens that were not allowed."""
        record = self.records[number]
        if record.disallowed is None:
            return
        forced = self.constraints.forces(number, sentence)
        tokens, log_probs = (part[record.index[sentence]].tolist() for part in record.disallowed)
        for row, parent in enumerate(before):
            node = None if parent is None else trace.nodes[parent]
            if number and (node is None or node.token == self.constraints.end):
                continue  # padding of the beam
            for token, log_prob in zip(tokens[row], log_probs[row]):
                if log_prob > -math.inf:
                    score = self._score(number, sentence, row, (node.total if node else 0.0) + log_prob)
                    trace.add(parent, token, log_prob, score, "pruned", self.constraints.reason(token, forced))

    def _score(self, number: int, sentence: int, row: int, total: float) -> float:
        record = self.records[number]
        penalty = 0.0 if record.penalty is None else float(record.penalty[record.index[sentence], row])
        return self.penalty.score(total, number + 1) + penalty
