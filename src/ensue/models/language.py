"""What every language model here is: a model that starts from nothing.

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
    """What training asks of it: a name in ensue.train.objectives."""
    cuts: ClassVar[str] = "streams"
    """How training text is best cut for it: streams, whose state is carried on, or windows."""
    reads: ClassVar[int] = 256
    """So many tokens of a row are best read at once where a text is scored."""

    def start(self, rows: int) -> State:
        """The state before the first token, for so many rows."""
        raise TypeError(f"{type(self).__name__} does not say how it starts")
