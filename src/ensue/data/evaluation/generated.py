"""Built-in tasks that are generated from a seed: arithmetic, copying, dates and unscrambling.

They are like those of Brown et al. (2020, section 3.9). The answer is a short text that follows from the question, so
nothing has to be known. Questions are taken from nowhere, but the easiest (sums of one digit) occur in many texts.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date, timedelta

from ensue.data.evaluation.task import EvalTask, Example, PromptStyle

SEED = 20
"""The seed of the questions: they are the same in every evaluation."""
SIGNS: dict[str, Callable[[int, int], int]] = {
    "plus": lambda a, b: a + b,
    "minus": lambda a, b: a - b,
    "times": lambda a, b: a * b,
}
PER_GROUP = 40
"""Questions of each operation and number of digits."""
COUNT = 200
"""Questions of the other tasks."""
_WORDS = """
    above animal answer apple autumn because before beside between bottle bridge brother butter candle carbon
    castle cattle centre chance circle clever coffee colour corner cotton cousin danger decide desert dinner
    doctor double engine enough evening family famous farmer father finger flower follow forest friend garden
    gather gentle golden ground hammer handle harbour heaven hollow honest hungry island jacket journey kitchen
    ladder lesson letter listen little market matter meadow measure middle minute mirror modern moment monkey
    morning mother mountain narrow needle number office orange palace parent pencil people pepper picture planet
    pocket potato purple rabbit reason remember river sailor sample school season second secret shadow silver
    simple sister spider spring stable station strange summer sunset system tailor temple thunder ticket tomato
    travel triangle trouble tunnel turtle valley velvet village violet volcano weather whisper willow window
    winter wonder yellow
"""
WORDS = tuple(_WORDS.split())
_MONTHS = "January February March April May June July August September October November December"
MONTHS = tuple(_MONTHS.split())


def arithmetic() -> EvalTask:
    """Sums, differences and products of numbers of one to three digits."""
    chance, examples = random.Random(SEED), []
    for digits in (1, 2, 3):
        low, high = (0 if digits == 1 else 10 ** (digits - 1)), 10**digits
        count = high - low
        for word, result in SIGNS.items():
            group = f"{digits} digit{'s' if digits > 1 else ''} {word}"
            for number in chance.sample(range(count * count), PER_GROUP):
                a, b = low + number // count, low + number % count
                context, answer = f"Q: What is {a} {word} {b}?\nA:", str(result(a, b))
                examples.append(Example((context,), (answer,), where=group, group=group))
    return EvalTask(name="arithmetic", kind="match", examples=examples, style=PromptStyle(max_tokens=8))


def copying() -> EvalTask:
    """Two to eight words to write again."""
    chance, examples = random.Random(SEED + 1), []
    for _ in range(COUNT):
        size = chance.randint(2, 8)
        words = " ".join(chance.sample(WORDS, size))
        examples.append(Example((f"Input: {words}\nOutput:",), (words,), where=words, group=f"{size} words"))
    style = PromptStyle(description="Copy the input.", max_tokens=40)
    return EvalTask(name="copying", kind="match", examples=examples, style=style)


def dates() -> EvalTask:
    """English dates to write as year, month and day."""
    chance, examples = random.Random(SEED + 2), []
    for number in chance.sample(range(73_000), COUNT):
        day = date(1900, 1, 1) + timedelta(days=number)
        month = MONTHS[day.month - 1]
        forms = {
            "day first": f"{day.day} {month} {day.year}",
            "month first": f"{month} {day.day}, {day.year}",
            "short": f"{day.day} {month[:3]} {day.year}",
        }
        group = chance.choice(sorted(forms))
        context = f"Date: {forms[group]}\nISO:"
        examples.append(Example((context,), (day.isoformat(),), where=forms[group], group=group))
    style = PromptStyle(description="Write each date as YYYY-MM-DD.", max_tokens=16)
    return EvalTask(name="dates", kind="match", examples=examples, style=style)


def unscrambling() -> EvalTask:
    """Words whose letters were shuffled, or moved round in a circle."""
    chance, examples = random.Random(SEED + 3), []
    for number, word in enumerate(chance.sample(WORDS, len(WORDS))):
        letters = word
        if number % 2:
            by = chance.randrange(1, len(word))
            letters, group = word[by:] + word[:by], "cycled"
        else:
            group = "shuffled"
            while letters == word:
                letters = "".join(chance.sample(word, len(word)))
        examples.append(Example((f"Letters: {letters}\nWord:",), (word,), where=letters, group=group))
    style = PromptStyle(description="Unscramble the letters into a word.", max_tokens=12)
    return EvalTask(name="unscrambling", kind="match", examples=examples, style=style)
