"""Copying over a gap: a letter, a stretch of dots, a question mark, and the letter again.

    B.................?B

Which letter is asked for can only be known from the first of the line, so what a model gets right at a gap of g dots
says whether it remembers over g + 1 tokens; and as gaps of all lengths are trained on, whether its gradients got there.
"""

from __future__ import annotations

import math
import random
from functools import cache

COPY_LETTERS = "ABCD"
"""What is to be copied: one in four is right by chance."""
MAX_GAP = 60
"""The longest gap in the corpus."""
MEAN_GAP = 10
"""The mean gap, were it not for the longest."""
CORPUS_LINES = 30_000


def copy_line(letter: str, gap: int) -> str:
    """One line.

    >>> copy_line("B", 4)
    'B....?B\\n'
    """
    return f"{letter}{'.' * gap}?{letter}\n"


@cache
def copy_text(lines: int = CORPUS_LINES, longest: int = MAX_GAP, seed: int = 0) -> str:
    """The corpus ``copying``: lines with random letters and random gaps.

    Gaps are geometrically distributed, so that counting dots does not help.
    """
    chance = random.Random(seed)
    return "".join(copy_line(chance.choice(COPY_LETTERS), _gap(chance, longest)) for _ in range(lines))


def _gap(chance: random.Random, longest: int) -> int:
    """A gap, drawn again where it is too long."""
    while (gap := int(math.log(1 - chance.random()) / math.log(1 - 1 / MEAN_GAP))) > longest:
        pass
    return gap


def copy_questions(gap: int, count: int = 4, seed: int = 0) -> list[tuple[str, str, str]]:
    """Texts that end before the answer, with the letters to choose from and the right one: ``count`` for each letter.

    A line with another letter stands before each, so that the last letter that was copied is never the answer.
    """
    chance, asked = random.Random(f"{seed} {gap}"), []
    for letter in COPY_LETTERS:
        others = [other for other in COPY_LETTERS if other != letter]
        for _ in range(count):
            before = copy_line(chance.choice(others), chance.randint(0, 8))
            asked.append((before + copy_line(letter, gap)[:-2], COPY_LETTERS, letter))
    return asked
