"""A beam search told as a trace: from what it wrote down, after it is done, so that telling changes nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ensue.search.backpointers import Mark, Page
from ensue.search.constraints import Constraints
from ensue.search.hypotheses import Hypothesis
from ensue.search.length_penalty import LengthRule
from ensue.search.trace import Fate, Trace, ending


@dataclass(frozen=True, slots=True)
class Teller:
    """Tells the search of one sentence after another."""

    pages: list[Page]
    beam: int
    length: str
    rule: LengthRule
    constraints: Constraints

    def tell(self, sentence: int, longest: int, marks: list[Mark], found: list[Hypothesis]) -> Trace:
        """The trace of one sentence, whose best candidates are ``marks`` and were read back as ``found``."""
        trace = Trace("greedy" if self.beam == 1 else "beam", self.beam, self.length)
        before: list[int | None] = [None]  # the node of each row
        by_mark: dict[tuple[int, int], int] = {}
        for number, page in enumerate(self.pages):
            if sentence not in page.places:
                break
            nodes = self._candidates(trace, number, sentence, longest, before)
            self._barred(trace, number, sentence, before)
            by_mark.update({(number, rank): node for rank, node in nodes.items()})
            before = [nodes.get(rank) for rank in page.opened[page.places[sentence]].tolist()]
        for number, (mark, one) in enumerate(zip(marks, found)):
            node = by_mark[mark.step, mark.rank]
            trace.paths.append(one.path(trace.path(node)))
            if number == 0:
                trace.change(node, "best", f"{trace.nodes[node].why}, the best")
        return trace

    def _candidates(
        self, trace: Trace, number: int, sentence: int, longest: int, before: list[int | None]
    ) -> dict[int, int]:
        """Add the candidates of a step, and answer the node of each rank."""
        page, nodes = self.pages[number], {}
        place = page.places[sentence]
        parts = (page.rows, page.tokens, page.log_probs, page.totals)
        for rank, (row, token, log_prob, total) in enumerate(zip(*(part[place].tolist() for part in parts))):
            if total > -math.inf:
                score = self._score(number, sentence, row, total)
                fate, why = self._fate(number, sentence, rank, token, score, longest)
                nodes[rank] = trace.add(before[row], token, log_prob, score, fate, why)
        return nodes

    def _fate(self, number: int, sentence: int, rank: int, token: int, score: float, longest: int) -> tuple[Fate, str]:
        """What becomes of a candidate, and why."""
        page, last, is_end = self.pages[number], number + 1 == longest, token == self.constraints.end
        if rank < self.beam and (is_end or last):
            return "ended", ending(score, is_end)
        if last or is_end or rank not in page.opened[page.places[sentence]] or (self.beam == 1 and rank):
            return "pruned", "not the best" if self.beam == 1 else f"not among the {self.beam} best"
        if number + 1 == len(self.pages) or sentence not in self.pages[number + 1].places:
            return "pruned", "cannot win any more"
        if self.constraints.forces(number, sentence):
            return "kept", "forced"
        return "kept", "the best" if self.beam == 1 else f"among the {self.beam} best"

    def _barred(self, trace: Trace, number: int, sentence: int, before: list[int | None]) -> None:
        """Add the likely tokens that were not allowed."""
        page = self.pages[number]
        if page.barred is None:
            return
        forced = self.constraints.forces(number, sentence)
        tokens, log_probs = (part[page.places[sentence]].tolist() for part in page.barred)
        for row, parent in enumerate(before):
            node = None if parent is None else trace.nodes[parent]
            if number and (node is None or node.token == self.constraints.end):
                continue  # a row that only fills the beam
            for token, log_prob in zip(tokens[row], log_probs[row]):
                if log_prob > -math.inf:
                    score = self._score(number, sentence, row, (node.total if node else 0.0) + log_prob)
                    trace.add(parent, token, log_prob, score, "pruned", self.constraints.reason(token, forced))

    def _score(self, number: int, sentence: int, row: int, total: float) -> float:
        page = self.pages[number]
        penalty = 0.0 if page.penalty is None else float(page.penalty[page.places[sentence], row])
        return self.rule.score(total, number + 1) + penalty
