"""Settings of n-gram models."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from ensue.core.settings import Need, check, check_positive
from ensue.models.ngram_lookup import ADD, BACKOFF, MLE

Mode = Literal["kneser-ney", "backoff", "add", "mle"]
"""How counts become probabilities (``ngram_estimates``)."""
LOOKUP_KINDS = {"kneser-ney": BACKOFF, "backoff": BACKOFF, "add": ADD, "mle": MLE}
MAX_ORDER = 7


@dataclass(frozen=True, kw_only=True, slots=True)
class NGramConfig:
    """Configuration of an n-gram model."""

    needs: ClassVar[dict[str, Need]] = {"delta": ("mode", ("add",)), "alpha": ("mode", ("backoff",))}
    vocabulary: int
    """Vocabulary size; set by the tokenizer."""
    order: int = 5
    """Order n, from 1 to 7: each word is predicted from the n-1 words before it."""
    mode: Mode = "kneser-ney"
    """Smoothing method: kneser-ney, backoff (normalised stupid backoff), add (add-δ) or mle."""
    delta: float = 0.1
    """δ: pseudo-count added to every count in mode ``add``."""
    alpha: float = 0.4
    """Factor applied for each context word dropped in mode ``backoff``."""
    end: int = -1
    """Id of the end-of-text token, which no context crosses; -1 means none."""

    def __post_init__(self) -> None:
        check_positive(self, "vocabulary")
        check(self, "order", 1 <= self.order <= MAX_ORDER, f"1 to {MAX_ORDER}")
        check(self, "mode", self.mode in get_args(Mode), f"one of {', '.join(get_args(Mode))}")
        check(self, "delta", 0 < self.delta < math.inf, "above 0")
        check(self, "alpha", 0 < self.alpha <= 1, "above 0 and at most 1")
        check(self, "end", -1 <= self.end < self.vocabulary, f"a token from 0 to {self.vocabulary - 1}, or -1")
