"""What became of generated programs: outcomes, their shares, and pass@k."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ensue.core.escapes import escape_controls
from ensue.core.wording import table_lines
from ensue.measure.pass_at_k import PassRate, mean_pass_rate
from ensue.measure.sandbox.execution import OUTCOMES

MAX_ERRORS = 10
"""Classes of exceptions that the summary counts one by one."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A generated program and how it ended."""

    problem: str
    number: int
    """Its number among the samples of the problem, from 1."""
    completion: str
    program: str
    outcome: str
    error: str
    message: str
    seconds: float
    tokens: int
    finish: str
    """Why the completion ended: stop (a stop sequence), end (an end token) or length."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class CodeResult:
    """The attempts at some problems, equally many at each."""

    attempts: Sequence[Attempt]
    ks: Sequence[int]

    @property
    def counts(self) -> dict[str, tuple[int, int]]:
        """For each problem the number of attempts, and of those that passed."""
        counts: dict[str, tuple[int, int]] = {}
        for one in self.attempts:
            n, c = counts.get(one.problem, (0, 0))
            counts[one.problem] = (n + 1, c + (one.outcome == "passed"))
        return counts

    @property
    def rates(self) -> list[PassRate]:
        """pass@k for every k, with intervals."""
        counts = list(self.counts.values())
        return [mean_pass_rate(counts, k) for k in self.ks]

    @property
    def outcomes(self) -> dict[str, int]:
        """The number of attempts with each outcome."""
        found = Counter(one.outcome for one in self.attempts)
        return {name: found[name] for name in OUTCOMES}

    @property
    def errors(self) -> dict[str, int]:
        """The most frequent classes of exceptions, among attempts with the outcome "exception"."""
        return dict(Counter(one.error for one in self.attempts if one.outcome == "exception").most_common(MAX_ERRORS))

    def as_dict(self) -> dict[str, Any]:
        """The figures, for JSON; the attempts are not among them."""
        total = len(self.attempts)
        return {
            "problems": len(self.counts),
            "samples": total // len(self.counts),
            "pass_at": {str(rate.k): asdict(rate) for rate in self.rates},
            "outcomes": self.outcomes,
            "shares": {name: count / total for name, count in self.outcomes.items()},
            "errors": self.errors,
            "cut": sum(one.finish == "length" for one in self.attempts),
        }

    @property
    def table(self) -> tuple[list[str], list[list[str]]]:
        """Columns and rows: how many attempts had each outcome that occurred, and their share."""
        total = len(self.attempts)
        rows = [[name, f"{count:,}", f"{count / total:.1%}"] for name, count in self.outcomes.items() if count]
        return ["outcome", "programs", "share"], rows

    def lines(self) -> list[str]:
        """The result for people: pass@k, the table of outcomes, and the exceptions."""
        n = len(self.attempts) // len(self.counts)
        said = [
            f"pass@{rate.k} {rate.value:.1%} (95 % interval {rate.low:.1%} to {rate.high:.1%})" for rate in self.rates
        ]
        of = f"{len(self.counts):,} problems, {n:,} program{'s' if n > 1 else ''} each"
        errors = ", ".join(f"{escape_controls(name)} {count:,}" for name, count in self.errors.items())
        return [*said, of, "", *table_lines(*self.table), *([f"exceptions: {errors}"] if errors else [])]
