"""Choose among several texts that continue one prompt, and say why.

    log P per token   1/t Σ_t log P(y_t | y_<t): how probable the model finds the text
    repetition        1 − distinct n-grams / n-grams, n = 4: 0 without a repeated n-gram, near 1 in a loop
    length            the number of tokens

Loops and texts that end at once are very probable (Holtzman et al., 2020), so the rule "best" compares the probability
only of texts that are long enough and do not repeat themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ensue.core.errors import unknown_name
from ensue.search.sampling import Sample

NGRAM = 4
MAX_REPETITION = 0.2
"""Share of repeated 4-grams above which a text is not chosen while there is another."""
MIN_LENGTH = 0.5
"""Share of the longest text's tokens that a text needs."""
RULES = {
    "all": "every text, in the order of drawing",
    "first": "the text that was drawn first",
    "best": f"the highest log P per token among texts with at most {MAX_REPETITION:.0%} repeated {NGRAM}-grams and at"
    f" least {MIN_LENGTH:.0%} of the longest text's tokens; if there is none, the least repetitive text",
}
"""The names of the rules, and what they choose."""


def repeated_share(tokens: Sequence[int], n: int = NGRAM) -> float:
    """The share of n-grams that stood before: 1 − distinct n-grams / n-grams; 0 for a text of fewer than n tokens.

    >>> repeated_share([1, 2, 3, 4, 5, 6, 7]), repeated_share([1, 2, 3, 1, 2, 3, 1], n=2)
    (0.0, 0.5)
    """
    grams = [tuple(tokens[at : at + n]) for at in range(len(tokens) - n + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


@dataclass(frozen=True, slots=True)
class Try:
    """A text's scores, whether the rule chose it, and why."""

    number: int
    """Its place in the order of drawing, from 1."""
    log_prob: float
    mean_log_prob: float
    repetition: float
    tokens: int
    ended: bool
    chosen: bool
    reason: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def compare(samples: Sequence[Sample], rule: str = "all") -> list[Try]:
    """Apply a rule to the samples of one prompt; return a ``Try`` for each, in their order."""
    if rule not in RULES:
        raise unknown_name("value of --select", rule, RULES)
    repetition = [repeated_share(one.tokens) for one in samples]
    if rule == "best":
        verdicts = _best(samples, repetition)
    else:
        verdicts = [(rule == "all" or not number, f"--select {rule}") for number in range(len(samples))]
    return [
        Try(number, one.log_prob, one.mean_log_prob, share, len(one.tokens), one.ended, *verdict)
        for number, (one, share, verdict) in enumerate(zip(samples, repetition, verdicts), 1)
    ]


def _best(samples: Sequence[Sample], repetition: Sequence[float]) -> list[tuple[bool, str]]:
    """Whether each sample is chosen, and why; of equals the first."""
    longest = max(len(one.tokens) for one in samples)
    refused = {}
    for number, (one, share) in enumerate(zip(samples, repetition)):
        if share > MAX_REPETITION:
            refused[number] = f"{share:.0%} of its {NGRAM}-grams are repeated"
        elif len(one.tokens) < MIN_LENGTH * longest:
            refused[number] = f"too short: {len(one.tokens)} of {longest} tokens"
    left = [number for number in range(len(samples)) if number not in refused]
    if left:
        best = max(left, key=lambda number: samples[number].mean_log_prob)
        top = samples[best].mean_log_prob
        why = f"the highest log P per token, {top:.3f}, of {len(left)} that qualify"
    else:
        best = min(range(len(samples)), key=lambda number: repetition[number])
        why = f"none qualifies; the least repetitive, {repetition[best]:.0%} of its {NGRAM}-grams"
    reasons = {number: f"log P per token {samples[number].mean_log_prob:.3f} is lower" for number in left} | refused
    return [(number == best, why if number == best else reasons[number]) for number in range(len(samples))]
