"""The base class of language models.

P(x_1 … x_T) = ∏_t P(x_t | x_1 … x_{t-1})
"""

from __future__ import annotations

from typing import ClassVar

from ensue.models.model import Model
from ensue.nn.state import State


class LanguageModel(Model):
    """The base of all language models."""

    task = "language"
    objective: ClassVar[str] = "next"
    """Training objective: a name in ensue.train.objectives."""
    cuts: ClassVar[str] = "streams"
    """How training text is split by default: streams (the state is carried on) or windows."""
    reads: ClassVar[int] = 256
    """Tokens of a row read at once when a text is scored."""
    slides: bool = False
    """Whether a text longer than the context is read in windows; other models carry their state on."""

    @property
    def window(self) -> int | None:
        """Tokens of a training window where nobody says: the context, also of a model that reads on beyond it."""
        context: int | None = self.traits.context or getattr(self.config, "context", None)
        return context if self.cuts == "windows" else None

    def start(self, rows: int) -> State:
        """Return the state before the first token."""
        raise TypeError(f"{type(self).__name__} does not implement start")
