"""Read a text as a stream of frequent words with breaks between sentences, for training word vectors."""

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
    """A text as word ids."""

    vocabulary: Vocabulary
    words: np.ndarray = field(repr=False)
    """Word ids, int32, and sentence breaks; words outside the vocabulary are dropped."""
    counts: np.ndarray = field(repr=False)
    """Count of each word in the text, (V,)."""
    total: int
    """Number of words in the text, including dropped ones."""
    bytes: int

    @property
    def tokenizer(self) -> Vocabulary:
        """The vocabulary, under the name that other corpora use."""
        return self.vocabulary

    @property
    def hash(self) -> str:
        """SHA-256 of the vocabulary and the ids."""
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
    """Read a text twice: for its vocabulary, unless one is ``known``, and as word ids.

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
    vocabulary = known or Vocabulary(_choose_words(counts, min_count, most, where), split, lowercase)
    stream = [vocabulary.encode(text) for text in _units(sources, field, unit)]
    words = np.concatenate([part for part in stream if len(part)] or [np.zeros(0, np.int32)])
    occurring = np.array([counts[word] for word in vocabulary.words], np.int64)
    if known is not None and np.count_nonzero(occurring) < 2:
        raise InputError("has fewer than two words of the run's vocabulary", where=where, hint="give another text")
    return WordText(vocabulary, words, occurring, counts.total(), size)


def _choose_words(counts: Counter[str], min_count: int, most: int, where: str) -> Sequence[str]:
    """Return the vocabulary; raise an error if it has fewer than two words."""
    if not counts:
        raise InputError("there are no words in this text", where=where, hint="give a text with words in it")
    words = frequent_words(counts, min_count, most)
    (common, times), *rest = counts.most_common(2)
    if not words:
        what = f"no word occurs {min_count} times or more (the most frequent, {common!r}, {counted(times, 'time')})"
        hint = f"give more text, or --set tokenizer.min_count={max(1, times // 2)}"
        raise InputError(what, where=where, hint=hint)
    if not rest:
        raise InputError(f"the text has only one word, {common!r}", where=where, hint="give a text with more words")
    if len(words) < 2:
        what = f"only {words[0]!r} occurs {min_count} times or more, and one word has no neighbours"
        raise InputError(what, where=where, hint="lower tokenizer.min_count, or give more text")
    return words


def _units(sources: Sequence[Source], field: str | None, unit: str) -> Iterator[str]:
    """Yield the text in pieces, with a break at the end of each document, line or paragraph."""
    for piece in read_pieces(sources, field):
        text = piece.text if unit == "line" else _INNER.sub(" ", piece.text)
        yield text + "\n" if piece.ends else text
