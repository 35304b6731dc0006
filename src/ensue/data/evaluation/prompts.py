"""k-shot prompts: examples with their answers before the one that is asked.

Shots are drawn once for all questions, so that a model reads them once; a question never sees itself among them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from ensue.core.errors import InputError
from ensue.core.wording import counted
from ensue.data.evaluation.task import EvalTask, Example, PromptStyle


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is asked of a model: contexts with shots, and options with their delimiter."""

    index: int
    """The number of the example in its file, from 0."""
    example: Example
    shots: tuple[int, ...]
    """The numbers of the examples that are its shots."""
    contexts: tuple[str, ...]
    """One for all options, or one for each."""
    options: tuple[str, ...]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Each option with its context."""
        contexts = self.contexts if len(self.contexts) > 1 else self.contexts * len(self.options)
        return list(zip(contexts, self.options))


def select(count: int, limit: int, seed: int) -> list[int]:
    """Return the numbers of the examples to ask: all, or ``limit`` of them at random, in the order of the file.

    A larger limit includes those of a smaller one.
    """
    order = list(range(count))
    random.Random(f"examples {seed}").shuffle(order)
    return sorted(order[:limit]) if limit else sorted(order)


class ShotDrawer:
    """Draws the shots of each question from a pool of examples."""

    def __init__(self, pool: Sequence[Example], shots: int, seed: int, each: bool = False) -> None:
        self.pool, self.shots, self.seed, self.each = pool, shots, seed, each
        self._order = list(range(len(pool)))
        random.Random(f"shots {seed}").shuffle(self._order)

    def draw(self, asked: Example, index: int) -> tuple[int, ...]:
        """The numbers of the shots of a question; with ``each`` drawn for it alone, else the same for all.

        Examples with the same text as the question are left out. Fewer shots are the first of more.
        """
        order = self._order
        if self.each and self.shots:
            order = list(range(len(self.pool)))
            random.Random(f"shots {self.seed} {index}").shuffle(order)
        drawn: list[int] = []
        for number in order:
            if len(drawn) == self.shots:
                break
            if self.pool[number].contexts != asked.contexts:
                drawn.append(number)
        if len(drawn) < self.shots:
            what = f"there are {counted(len(drawn), 'other example')} to draw {self.shots} shots from"
            raise InputError(what, where=asked.where, hint="use fewer shots, or --shots-from FILE")
        return tuple(drawn)


def question(context: str, style: PromptStyle) -> str:
    r"""Return a context with the task's suffix, unless it ends with it.

    >>> question("Question: why?\n", PromptStyle(suffix="\nAnswer:"))
    'Question: why?\nAnswer:'
    """
    if not style.suffix or context.rstrip().endswith(style.suffix.strip()):
        return context
    return context.rstrip() + style.suffix


def continuation(context: str, option: str, style: PromptStyle) -> str:
    """Return an option with the delimiter before it, if there is text without white space on both sides.

    >>> continuation("Question: why?", "so", PromptStyle()), continuation("1+1=", " 2", PromptStyle())
    (' so', ' 2')
    """
    if not context or context[-1:].isspace() or option[:1].isspace():
        return option
    return style.delimiter + option


def shots_text(shots: Sequence[Example], style: PromptStyle) -> str:
    """Return the text before a question: the description, and each shot with its answer."""
    parts = [style.description] if style.description else []
    for shot in shots:
        context = question(shot.context, style)
        parts.append((context + continuation(context, shot.answer, style)).lstrip("\n"))
    return "".join(part + style.separator for part in parts)


def make_prompts(task: EvalTask, drawer: ShotDrawer, asked: Sequence[int]) -> list[Prompt]:
    """Return the prompts of the examples with the numbers ``asked``."""
    prompts = []
    for index in asked:
        example = task.examples[index]
        shots = drawer.draw(example, index)
        before = shots_text([drawer.pool[number] for number in shots], task.style)
        contexts = [question(one, task.style) for one in example.contexts]
        if before:
            contexts = [before + one.lstrip("\n") for one in contexts]
        each = contexts if len(contexts) > 1 else contexts * len(example.options)
        options = [continuation(one, option, task.style) for one, option in zip(each, example.options)]
        prompts.append(Prompt(index, example, shots, tuple(contexts), tuple(options)))
    return prompts
