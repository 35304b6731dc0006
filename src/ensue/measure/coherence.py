"""Coherence along a text: how much is repeated, and how long the names of its beginning stay.

    repeated   share of the 4-grams of a segment that occurred before in the text
    distinct   different words of a segment ÷ its words
    kept       1 if a segment has one of the names of the prompt, else 0
    new        names of a segment that did not occur before

A name is a word with a capital letter that does not begin a sentence. This counts; it does not understand: a text may
repeat nothing, keep its names, and make no sense.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

SIZE = 4
"""Words of the n-grams."""
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*|[.!?]")


class Segment(NamedTuple):
    """Figures of one part of a text."""

    repeated: float
    distinct: float
    kept: float
    new: int


def words_of(text: str) -> list[str]:
    """Return the words and the marks that end sentences.

    >>> words_of("Well, it's Anna. She left!")
    ['Well', "it's", 'Anna', '.', 'She', 'left', '!']
    """
    return _WORD.findall(text)


def names_of(words: Sequence[str], begins: bool = True) -> set[str]:
    """Return the names; ``begins`` says whether the first word begins a sentence.

    >>> sorted(names_of(words_of("One day Anna met Ben. They left.")))
    ['Anna', 'Ben']
    """
    found = set()
    for word in words:
        if not begins and word[0].isupper() and len(word) > 1:
            found.add(word)
        begins = word in ".!?"
    return found


def segments(prompt: str, text: str, size: int = 50) -> list[Segment]:
    """Return the figures of each ``size`` words of a text after its prompt; the rest at the end is left out.

    >>> segments("Then Anna saw", "the sea and the sea and the sea and the sea", size=5)
    [Segment(repeated=0.0, distinct=0.6, kept=0.0, new=0), Segment(repeated=0.8, distinct=0.6, kept=0.0, new=0)]
    """
    before, words = words_of(prompt), words_of(text)
    named, known = names_of(before), names_of(before)
    seen = {_gram(before, end) for end in range(SIZE, len(before) + 1)}
    found = []
    for start in range(0, len(words) - size + 1, size):
        part, repeated = words[start : start + size], 0
        for word in part:
            before.append(word)
            gram = _gram(before, len(before))
            repeated += gram in seen
            seen.add(gram)
        last = before[-size - 1] if len(before) > size else "."
        names = names_of(part, last in ".!?")
        lowered = {word.lower() for word in part}
        found.append(Segment(repeated / size, len(lowered) / size, float(bool(names & named)), len(names - known)))
        known |= names
    return found


def _gram(words: Sequence[str], end: int) -> tuple[str, ...]:
    """The n-gram that ends before ``end``."""
    return tuple(word.lower() for word in words[max(0, end - SIZE) : end])
