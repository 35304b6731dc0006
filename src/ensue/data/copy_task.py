"""The copying task: a letter, a gap of dots, a question mark, and the letter again.

    B.................?B

The answer is known from the first letter of the line only, so accuracy at a gap of g dots shows whether a model
remembers over g + 1 tokens and, as gaps of all lengths are trained on, whether its gradients reach that far.
"""

from __future__ import annotations

import math
import random
from functools import cache

COPY_LETTERS = "ABCD"
"""Letters to copy: chance accuracy is one in four."""
MAX_GAP = 60
"""The longest gap in the corpus."""
MEAN_GAP = 10
"""The mean gap before truncation."""
CORPUS_LINES = 30_000


def copy_line(letter: str, gap: int) -> str:
    """Return one line.

    >>> copy_line("B", 4)
    'B....?B\\n'
    """
    return f"{letter}{'.' * gap}?{letter}\n"


@cache
def copy_text(lines: int = CORPUS_LINES, longest: int = MAX_GAP, seed: int = 0) -> str:
    """Return the corpus ``copying``; gaps are geometrically distributed, so that counting dots does not help."""
    chance = random.Random(seed)
    return "".join(copy_line(chance.choice(COPY_LETTERS), _gap(chance, longest)) for _ in range(lines))


def _gap(chance: random.Random, longest: int) -> int:
    """Draw a gap, again if it is too long."""
    while (gap := int(math.log(1 - chance.random()) / math.log(1 - 1 / MEAN_GAP))) > longest:
        pass
    return gap


def copy_questions(gap: int, count: int = 4, seed: int = 0) -> list[tuple[str, str, str]]:
    """Return prompts without their answers, the letters to choose from, and the answers: ``count`` per letter.

    Each follows a line with another letter, so that the last copied letter is never the answer.
    """
    chance, questions = random.Random(f"{seed} {gap}"), []
    for letter in COPY_LETTERS:
        others = [other for other in COPY_LETTERS if other != letter]
        for _ in range(count):
            before = copy_line(chance.choice(others), chance.randint(0, 8))
            questions.append((before + copy_line(letter, gap)[:-2], COPY_LETTERS, letter))
    return questions
