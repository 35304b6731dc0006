"""Concordance: where a word occurs in a text, and which words occur near it (Firth, 1957).

    … government debt problems turning into  banking  crises as happened in 2009 …
    … saying that Europe needs unified       banking  regulation to replace the hodgepodge …

The context of a word is the words at most ``window`` positions away. A window ends with its line, as a line is one
sentence in the corpora that word vectors are trained on; in text with wrapped lines, it can end with the paragraph.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ensue.core.errors import InputError
from ensue.data.reading import read_pieces
from ensue.data.sources import Source, as_source_list

_WORD = re.compile(r"\w+(?:['’.-]\w+)*")
_BLANK = re.compile(r"\n[^\S\n]*\n")


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One occurrence of a word, with the words of its window on either side."""

    left: tuple[str, ...]
    word: str
    right: tuple[str, ...]


@dataclass(frozen=True)
class Concordance:
    """The occurrences of a word in a text."""

    word: str
    window: int
    count: int
    """Number of occurrences."""
    words: int
    """Number of words in the text."""
    occurrences: list[Occurrence]
    """The first occurrences."""
    near: Counter[str]
    """Counts of the words, in lower case, in the windows."""
    all: Counter[str]
    """Counts of the words in the text."""

    def ratio(self, other: str) -> float:
        """Return how much more often a word occurs in the windows than by chance; 1 means independence.

        P(other | near the word) / P(other), whose logarithm is the pointwise mutual information.
        """
        return (self.near[other] / self.near.total()) / (self.all[other] / self.words)


def concordance(
    sources: Sequence[Source] | Source,
    word: str,
    window: int = 5,
    *,
    most: int = 20,
    paragraphs: bool = False,
    field: str | None = None,
) -> Concordance:
    """Find all occurrences of ``word``, ignoring case; ``most`` of them are kept for display (0: all)."""
    if window < 1:
        raise InputError(f"a window of {window} holds no context", hint="use 1 or more")
    wanted = word.lower()
    near: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    kept: list[Occurrence] = []
    for text in _read_units(sources, paragraphs, field):
        words = _WORD.findall(text)
        lower = [other.lower() for other in words]
        counts.update(lower)
        for position in [index for index, other in enumerate(lower) if other == wanted] if wanted in lower else ():
            before, after = slice(max(0, position - window), position), slice(position + 1, position + 1 + window)
            near.update(lower[before])
            near.update(lower[after])
            if not most or len(kept) < most:
                kept.append(Occurrence(tuple(words[before]), words[position], tuple(words[after])))
    if not counts[wanted]:
        raise _missing_word(word, counts, sources)
    return Concordance(word, window, counts[wanted], counts.total(), kept, near, counts)


def _read_units(sources: Sequence[Source] | Source, paragraphs: bool, field: str | None) -> Iterator[str]:
    """Yield the lines or paragraphs of a text, which windows do not cross."""
    rest = ""
    for piece in read_pieces(sources, field):
        text = rest + piece.text
        *whole, rest = _BLANK.split(text) if paragraphs else text.split("\n")
        yield from whole
        if piece.ends:
            yield rest
            rest = ""


def _missing_word(word: str, known: Counter[str], sources: Sequence[Source] | Source) -> InputError:
    """Return the error for a word that does not occur, suggesting similar words."""
    similar = [other for other in known if abs(len(other) - len(word)) < 4 and other[:1] == word[:1].lower()]
    near = difflib.get_close_matches(word.lower(), sorted(similar), n=3)
    where = ", ".join(str(source) for source in as_source_list(sources))
    hint = f"near it: {', '.join(near)}" if near else "give one word, without spaces or punctuation"
    return InputError(f"the text has no {word!r}", where=where, hint=hint)
