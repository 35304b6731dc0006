"""Tasks that a language model does from a prompt.

choice      which of several options has the highest probability
cloze       the last words of a text: their probability, and whether they are the most probable
match       an answer that the model writes, compared with the right ones
perplexity  the probability of whole texts
code        programs that are run against tests
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

KINDS = ("choice", "cloze", "match", "perplexity", "code")
MEASURES = {
    "choice": ("acc", "acc_norm", "acc_uncond"),
    "cloze": ("acc", "perplexity"),
    "match": ("exact_match",),
    "perplexity": ("bits_per_byte", "word_perplexity"),
}
"""The measures of each kind of task that is not of programs; the first is shown in charts."""


@dataclass(frozen=True, slots=True)
class Example:
    """One question.

    ``options`` are the choices, the continuation of a cloze, the accepted answers of a match, or the text whose
    perplexity is asked for.
    """

    contexts: tuple[str, ...]
    """The text before the options: one for all, or one for each."""
    options: tuple[str, ...]
    gold: int = 0
    """The right option."""
    where: str = ""
    """File and line."""
    group: str = ""
    """A part of the task that is also scored by itself, such as the number of digits."""

    @property
    def context(self) -> str:
        """The text before the right option."""
        return self.contexts[self.gold if len(self.contexts) > 1 else 0]

    @property
    def answer(self) -> str:
        """The right option."""
        return self.options[self.gold]


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptStyle:
    """How examples become prompts: description, shots and question, with a separator between."""

    description: str = ""
    """Text before everything."""
    suffix: str = ""
    """Text after the context, such as a line "Answer:"."""
    delimiter: str = " "
    """Text between a context and an option, unless white space is there already."""
    separator: str = "\n\n"
    """Text between two examples."""
    stop: tuple[str, ...] = ("\n",)
    """Where a written answer ends."""
    max_tokens: int = 32
    """Most tokens of a written answer."""
    measure: str = ""
    """The measure that charts show; the kind's first by default."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalTask:
    """Examples of one kind, and how they become prompts."""

    name: str
    kind: str
    examples: Sequence[Example]
    style: PromptStyle = field(default_factory=PromptStyle)
    source: str = "built in"
    """The file, or "built in"."""
    problems: Sequence[dict[str, object]] = ()
    """The records of a task of the kind code."""

    @property
    def size(self) -> int:
        """The number of examples."""
        return len(self.problems) if self.kind == "code" else len(self.examples)
