"""Copying over a gap: a letter, a stretch of dots, a question mark, and the letter again.

    B.................?B

Which letter is asked for can only be known from the first of the line, so what a model gets right at a gap of g dots
says whether it remembers over g + 1 tokens; and as gaps of all lengths are trained on, whether its gradients got there.
"""

from __future__ import annotations

import math
import random
from functools import cache

LETTERS = "ABCD"
"""What is to be copied: one in four is right by chance."""
LONGEST = 60
"""The longest gap in the corpus."""
MEAN = 10
"""The mean gap, were it not for the longest."""
LINES = 30_000


def copying_line(letter: str, gap: int) -> str:
    """One line.

    >>> copying_line("B", 4)
    'B....?B\\n'
    """
    return f"{letter}{'.' * gap}?{letter}\n"


@cache
def copying_text(lines: int = LINES, longest: int = LONGEST, seed: int = 0) -> str:
    """The corpus ``copying``: lines with random letters and random gaps.

    A gap ends at every dot with the same chance, one in ``MEAN``, so that there is nothing to be learnt by counting.
    """
    chance = random.Random(seed)
    return "".join(copying_line(chance.choice(LETTERS), _gap(chance, longest)) for _ in range(lines))


def _gap(chance: random.Random, longest: int) -> int:
    """A gap, drawn again where it is too long."""
    while (gap := int(math.log(1 - chance.random()) / math.log(1 - 1 / MEAN))) > longest:
        pass
    return gap


def copying_questions(gap: int, count: int = 4, seed: int = 0) -> list[tuple[str, str, str]]:
    """Texts that end before the answer, with the letters to choose from and the right one: ``count`` for each letter.

    A line with another letter stands before each, so that the last letter that was copied is never the answer.
    """
    chance, asked = random.Random(f"{seed} {gap}"), []
    for letter in LETTERS:
        others = [other for other in LETTERS if other != letter]
        for _ in range(count):
            before = copying_line(chance.choice(others), chance.randint(0, 8))
            asked.append((before + copying_line(letter, gap)[:-2], LETTERS, letter))
    return asked
