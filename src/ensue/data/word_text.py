"""A text as a stream of words, for their vectors: only those that are common enough, with breaks between sentences."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ensue.core.errors import InputError
from ensue.core.wording import counted
from ensue.data.reading import read_pieces
from ensue.data.sources import Source
from ensue.data.tokenizers.vocabulary import Vocabulary, count_split_words, frequent_words

_INNER = re.compile(r"(?<!\n)\n(?![ \t]*\n)")
"""A line end inside a paragraph."""


@dataclass(frozen=True)
class WordText:
    """A text as words."""

    vocabulary: Vocabulary
    words: np.ndarray = field(repr=False)
    """Numbers of words, int32, and breaks; what is not in the vocabulary has been passed over."""
    counts: np.ndarray = field(repr=False)
    """How often each word occurs in the text, (V,)."""
    total: int
    """Words of the text, those that were passed over among them."""
    bytes: int

    @property
    def tokenizer(self) -> Vocabulary:
        """What made numbers of the words."""
        return self.vocabulary

    @property
    def hash(self) -> str:
        """Of all words and their numbers."""
        digest = hashlib.sha256("\n".join(self.vocabulary.words).encode())
        digest.update(np.ascontiguousarray(self.words).data)
        return digest.hexdigest()


def read_word_text(
    sources: Sequence[Source],
    *,
    known: Vocabulary | None = None,
    split: str = "letters",
    lowercase: bool = True,
    unit: str = "line",
    min_count: int = 5,
    most: int = 0,
    field: str | None = None,
    notes: list[str] | None = None,
) -> WordText:
    """Read a text twice: for its vocabulary, unless one is ``known`` already, and as words.

    ``unit``: windows end at the end of a line, or of a paragraph (at blank lines).
    """
    where = ", ".join(map(str, sources))
    if known is not None:
        split, lowercase = known.split, known.lowercase
    counts: Counter[str] = Counter()
    size = 0
    for piece in read_pieces(sources, field, notes):
        counts.update(count_split_words(piece.text, split, lowercase))
        size += len(piece.text.encode())
    vocabulary = known or Vocabulary(_checked(counts, min_count, most, where), split, lowercase)
    stream = [vocabulary.encode(text) for text in _units(sources, field, unit)]
    words = np.concatenate([part for part in stream if len(part)] or [np.zeros(0, np.int32)])
    occurring = np.array([counts[word] for word in vocabulary.words], np.int64)
    if known is not None and np.count_nonzero(occurring) < 2:
        raise InputError("has fewer than two of the words that the run knows", where=where, hint="give another text")
    return WordText(vocabulary, words, occurring, counts.total(), size)


def _checked(counts: Counter[str], min_count: int, most: int, where: str) -> Sequence[str]:
    """The words to learn; a text with fewer than two of them cannot be learnt from."""
    if not counts:
        raise InputError("there are no words in this text", where=where, hint="give a text with words in it")
    words = frequent_words(counts, min_count, most)
    (common, times), *rest = counts.most_common(2)
    if not words:
        what = f"no word occurs {min_count} times or more (the commonest, {common!r}, {counted(times, 'time')})"
        hint = f"give more text, or --set tokenizer.min_count={max(1, times // 2)}"
        raise InputError(what, where=where, hint=hint)
    if not rest:
        raise InputError(f"the text has only one word, {common!r}", where=where, hint="give a text with more words")
    if len(words) < 2:
        what = f"only {words[0]!r} occurs {min_count} times or more, and one word has no neighbours"
        raise InputError(what, where=where, hint="lower tokenizer.min_count, or give more text")
    return words


def _units(sources: Sequence[Source], field: str | None, unit: str) -> Iterator[str]:
    """The text in pieces, each with a break at its end where a document, a line or a paragraph ends there."""
    for piece in read_pieces(sources, field):
        text = piece.text if unit == "line" else _INNER.sub(" ", piece.text)
        yield text + "\n" if piece.ends else text
