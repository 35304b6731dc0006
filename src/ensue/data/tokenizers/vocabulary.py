"""A list of words, for word vectors: words outside it are dropped.

It has no end token and no unknown token, so language models cannot be trained with it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ensue.core.errors import InputError
from ensue.core.schema import Fields, Flag, Items, Shape, Text
from ensue.data.tokenizers.protocol import Ids, join_words

SPLITS = {"letters": re.compile(r"\n|[^\W_]+(?:'[^\W_]+)*"), "space": re.compile(r"\n|\S+")}
"""Words as runs of letters and digits with apostrophes inside, or as anything between white space."""
SENTENCE_BREAK = -1
"""Id between sentences, which windows do not cross."""
_DROPPED = -2


class Vocabulary:
    """Words and their ids.

    >>> Vocabulary(["the", "cat"]).encode("The cat sat.\\nThe end").tolist()
    [0, 1, -1, 0]
    """

    kind = "words"
    lines = True
    unknown = None
    schema: Shape = Fields({"words": Items(Text()), "split": Text(tuple(SPLITS)), "lowercase": Flag()})
    """What ``restore`` reads."""

    def __init__(self, words: Iterable[str], split: str = "letters", lowercase: bool = True) -> None:
        """``split``: letters or space; ``lowercase``: convert text to lower case."""
        self.words = list(words)
        self.split, self.lowercase = split, lowercase
        self.size = len(self.words)
        self._numbers = {word: number for number, word in enumerate(self.words)}
        self._numbers["\n"] = SENTENCE_BREAK

    @property
    def end(self) -> int:
        """Raise an error: there is no end token, so it cannot be used for language models."""
        hint = "use --tokenizer word, or start from its vectors with --embeddings"
        raise InputError("a list of words has no end token, so it cannot be a model's tokenizer", hint=hint)

    def encode(self, text: str) -> np.ndarray:
        """Return the ids of known words, and one break for consecutive line ends."""
        words, numbers = words_and_lines(text, self.split, self.lowercase), self._numbers
        ids = np.fromiter((numbers.get(word, _DROPPED) for word in words), np.int32, len(words))
        ids = ids[ids != _DROPPED]
        return np.asarray(ids[(ids != SENTENCE_BREAK) | (np.append(0, ids[:-1]) != SENTENCE_BREAK)])

    def decode(self, ids: Ids) -> str:
        """Return the words with spaces between them, newlines for breaks."""
        return join_words(ids, SENTENCE_BREAK, self.name)

    def name(self, token: int) -> str:
        """Return the word; a model may have more tokens than its tokenizer."""
        return self.words[token] if token < self.size else f"<{token}>"

    def surcharge(self, text: str, opens: bool = True, closes: bool = True) -> tuple[float, int]:
        """Return NaN, as the lost text has no cost here, and the number of unknown words."""
        counts = count_split_words(text, self.split, self.lowercase)
        return float("nan"), sum(count for word, count in counts.items() if word not in self._numbers)

    def state(self) -> dict[str, Any]:
        """Return the words in order, and how text is split into words."""
        return {"kind": self.kind, "split": self.split, "lowercase": self.lowercase, "words": self.words}

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> Vocabulary:
        """Return the vocabulary with this ``state``."""
        return cls(state["words"], state["split"], state["lowercase"])


def words_and_lines(text: str, split: str, lowercase: bool) -> list[str]:
    """Return the words of a text and its line ends."""
    text = text.replace("’", "'") if split == "letters" else text
    return SPLITS[split].findall(text.lower() if lowercase else text)


def count_split_words(text: str, split: str, lowercase: bool) -> Counter[str]:
    """Count the words of a text.

    >>> sorted(count_split_words("Don't stop, don't!", "letters", True).items())
    [("don't", 2), ('stop', 1)]
    """
    counts = Counter(words_and_lines(text, split, lowercase))
    counts.pop("\n", None)
    return counts


def frequent_words(counts: Mapping[str, int], min_count: int, most: int = 0) -> Sequence[str]:
    """Return frequent words, most frequent first, then alphabetically; at most ``most`` if it is not 0."""
    order = sorted((word for word in counts if counts[word] >= min_count), key=lambda word: (-counts[word], word))
    return order[:most] if most else order
