"""A plain list of words, as word vectors have one: what is not in it is passed over.

It has no end mark and no unknown word, so no model of texts can be trained with it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ensue.core.errors import InputError
from ensue.data.tokenizers.protocol import Ids, as_list

SPLITS = {"letters": re.compile(r"\n|[^\W_]+(?:'[^\W_]+)*"), "space": re.compile(r"\n|\S+")}
"""Words as runs of letters and digits, with apostrophes inside; or as what stands between white space."""
SENTENCE_BREAK = -1
"""Stands between sentences: no window reaches over it."""
_PASSED = -2


class Vocabulary:
    """Words by number.

    >>> Vocabulary(["the", "cat"]).encode("The cat sat.\\nThe end").tolist()
    [0, 1, -1, 0]
    """

    kind = "words"
    lines = True
    unknown = None

    def __init__(self, words: Iterable[str], split: str = "letters", lowercase: bool = True) -> None:
        """``split``: letters or space; ``lowercase``: whether capitals are read as small letters."""
        self.words = list(words)
        self.split, self.lowercase = split, lowercase
        self.size = len(self.words)
        self._numbers = {word: number for number, word in enumerate(self.words)}
        self._numbers["\n"] = SENTENCE_BREAK

    @property
    def end(self) -> int:
        """There is none, which is said to whoever wants to train a model of texts with it."""
        hint = "use --tokenizer word, or start from its vectors with --embeddings"
        raise InputError("a list of words has no end mark, so it cannot be a model's tokenizer", hint=hint)

    def encode(self, text: str) -> np.ndarray:
        """The words that are known, and one break for all line ends that follow each other."""
        found = words_and_lines(text, self.split, self.lowercase)
        numbers = self._numbers
        ids = np.fromiter((numbers.get(word, _PASSED) for word in found), np.int32, len(found))
        ids = ids[ids != _PASSED]
        return np.asarray(ids[(ids != SENTENCE_BREAK) | (np.append(0, ids[:-1]) != SENTENCE_BREAK)])

    def decode(self, ids: Ids) -> str:
        """The words with spaces between them, newlines for breaks."""
        lines: list[list[str]] = [[]]
        for token in as_list(ids):
            if token == SENTENCE_BREAK:
                lines.append([])
            else:
                lines[-1].append(self.words[token])
        return "\n".join(map(" ".join, lines))

    def name(self, token: int) -> str:
        """The word."""
        return self.words[token]

    def surcharge(self, text: str, opens: bool = True, closes: bool = True) -> tuple[float, int]:
        """What the words do not say of a text has no price here; how many are not known."""
        counts = count_split_words(text, self.split, self.lowercase)
        return float("nan"), sum(count for word, count in counts.items() if word not in self._numbers)

    def state(self) -> dict[str, Any]:
        """The words in order, and how a text is split into words."""
        return {"kind": self.kind, "split": self.split, "lowercase": self.lowercase, "words": self.words}

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> Vocabulary:
        """The vocabulary that gave this ``state``."""
        return cls(state["words"], state["split"], state["lowercase"])


def words_and_lines(text: str, split: str, lowercase: bool) -> list[str]:
    """The words of a text, and its line ends."""
    text = text.replace("’", "'") if split == "letters" else text
    return SPLITS[split].findall(text.lower() if lowercase else text)


def count_split_words(text: str, split: str, lowercase: bool) -> Counter[str]:
    """How often each word occurs.

    >>> sorted(count_split_words("Don't stop, don't!", "letters", True).items())
    [("don't", 2), ('stop', 1)]
    """
    counts = Counter(words_and_lines(text, split, lowercase))
    counts.pop("\n", None)
    return counts


def frequent_words(counts: Mapping[str, int], min_count: int, most: int = 0) -> Sequence[str]:
    """The words that occur often enough, the commonest first, then by alphabet; at most ``most`` where it is not 0."""
    order = sorted((word for word in counts if counts[word] >= min_count), key=lambda word: (-counts[word], word))
    return order[:most] if most else order
