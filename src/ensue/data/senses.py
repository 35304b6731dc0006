"""The built-in corpus ``bank``: sentences with ambiguous words, each in one of two senses.

    a nice walk by the river bank        walk to the bank and get cash

Static word vectors have one vector for *bank* in both sentences; a contextual model can tell them apart. A
nearest-neighbour test measures how well: half of the contexts of each sense are known, the other half are queries, and
a query should be nearest to known contexts of its own sense.

Both senses have equally many sentences with varied words. In both senses *play* is sometimes a noun and sometimes a
verb, so that grammar alone does not tell them apart. Words and punctuation are separated by spaces, as in the corpora
that word models are trained on. Some sentences are from the lectures.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

from ensue.core.errors import unknown_name

WORD_MARKER = "*"
"""Comes before the ambiguous word of a sentence."""

PARTS = ("known", "asked")
"""The halves of the contexts: those to search, and the queries."""


@dataclass(frozen=True, slots=True)
class Context:
    """A word in a sentence, and its sense.

    >>> Context.parse("a nice walk by the river *bank", "river")
    Context(words=('a', 'nice', 'walk', 'by', 'the', 'river', 'bank'), position=6, sense='river')
    """

    words: tuple[str, ...]
    """The words and punctuation of the sentence."""
    position: int
    """Index of the ambiguous word."""
    sense: str
    """A name for the meaning; empty if it is not known."""

    @property
    def word(self) -> str:
        """The ambiguous word, as in the sentence."""
        return self.words[self.position]

    @property
    def text(self) -> str:
        """The sentence, with a space between its words."""
        return " ".join(self.words)

    @staticmethod
    def parse(line: str, sense: str = "") -> Context:
        """Parse a sentence with ``WORD_MARKER`` before the ambiguous word."""
        words = line.split()
        position = next(index for index, word in enumerate(words) if word.startswith(WORD_MARKER))
        words[position] = words[position].removeprefix(WORD_MARKER)
        return Context(tuple(words), position, sense)


def _read_senses() -> dict[str, dict[str, list[str]]]:
    """Read the sentences of each sense of each word; a line ``= word sense =`` starts a section."""
    senses: dict[str, dict[str, list[str]]] = {}
    for line in files("ensue.data").joinpath("senses.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("= "):
            _, word, sense, _ = line.split()
            sentences = senses.setdefault(word, {}).setdefault(sense, [])
        else:
            sentences.append(line)
    return senses


SENSES = _read_senses()
"""Word → sense → sentences, the known half first."""


def contexts(word: str, part: str = "") -> list[Context]:
    """Return the sentences with *bank* or *play*, sense by sense: of one part, ``known`` or ``asked``, or of both.

    >>> sorted({context.sense for context in contexts("bank")}), len(contexts("play")), len(contexts("play", "asked"))
    (['money', 'river'], 88, 44)
    """
    if word not in SENSES:
        raise unknown_name("word with senses", word, SENSES)
    if part and part not in PARTS:
        raise unknown_name("part of the contexts", part, PARTS)
    chosen = []
    for sense, lines in SENSES[word].items():
        parsed = [Context.parse(line, sense) for line in lines]
        half = len(parsed) // 2
        chosen += {"known": parsed[:half], "asked": parsed[half:]}.get(part, parsed)
    return chosen


def sense_text() -> str:
    """Return the text of the corpus: all sentences, one per line."""
    return "".join(f"{context.text}\n" for word in SENSES for context in contexts(word))
