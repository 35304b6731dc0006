"""The cost of spelling out strings that a tokenizer loses, in bits.

An n-gram model of bytes with Witten–Bell smoothing (Chen and Goodman 1998, section 2.5), from the longest context h
down to the uniform distribution over the 256 bytes and the end of the string:

    P(b | h) = (c(h b) + T(h) · P(b | h')) / (c(h) + T(h))        T(h): how many different bytes follow h

Every conditional distribution sums to one and every string ends, so the strings' probabilities sum to at most one, and
none is zero.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from ensue.core.errors import InputError
from ensue.core.schema import Fields, Table, Text, Whole

NGRAM_ORDER = 4
MAX_CACHED = 1 << 18
"""Maximum number of cached strings and of cached n-grams."""
STRING_END, STRING_START, SYMBOLS = 256, 257, 258
"""Symbols after the 256 bytes: the end of a string, its start, and the number of symbols."""
MAX_EXPANSION, MIN_UNPACKED = 32, 1 << 16
"""N-grams in a file may take this multiple of their packed size, and this many bytes in any case: a real text's take
five to seven times as much."""
MAX_COUNT = 1 << 50
SPELLINGS_SCHEMA = Fields(
    {"known": Table(Whole(1)), "escapes": Whole(0), "rest": Fields({"grams": Text(), "counts": Text()})}
)
"""What ``Spellings.restore`` reads."""
COUNT_BITS = 29
"""Of 63 bits; a key, which is less than 258 ** 4, takes 33."""


class SpellingModel:
    """P(string) under an n-gram model of bytes."""

    def __init__(self, grams: np.ndarray, counts: np.ndarray) -> None:
        """``grams``: sorted n-grams of ``NGRAM_ORDER`` symbols as base-258 numbers; ``counts``: their counts."""
        self._grams, self._seen = grams, counts
        self._bits: dict[str, float] = {}
        self._costs: dict[int, float] = {}

    @cached_property
    def _tables(self) -> tuple[list[Counter[int]], list[Counter[int]], list[Counter[int]]]:
        """Counts of n-grams, and counts and numbers of successors of contexts, by order; needed for costs only."""
        counts, totals, kinds = ([Counter[int]() for _ in range(NGRAM_ORDER)] for _ in range(3))
        for gram, count in zip(self._grams.tolist(), self._seen.tolist(), strict=True):
            for order in range(NGRAM_ORDER):
                counts[order][gram % SYMBOLS ** (order + 1)] += count
        for order in range(NGRAM_ORDER):
            for gram, count in counts[order].items():
                totals[order][gram // SYMBOLS] += count
                kinds[order][gram // SYMBOLS] += 1
        return counts, totals, kinds

    @classmethod
    def fit(cls, *groups: Mapping[str, int]) -> SpellingModel:
        """Count the n-grams of strings, weighted by the strings' counts."""
        texts = [string.encode() for group in groups for string in group]
        times = np.array([count for group in groups for count in group.values()], np.int64)
        sizes = np.fromiter(map(len, texts), np.int64, len(texts))
        # each string is padded at its start and has an end symbol: NGRAM_ORDER symbols more than its bytes
        last = np.cumsum(sizes + NGRAM_ORDER) - 1
        inside = np.ones(int(last[-1]) + 1 if texts else 0, bool)
        for before in range(NGRAM_ORDER - 1):
            inside[last - sizes - before - 1] = False
        inside[last] = False
        symbols = np.full(len(inside), STRING_START, np.int16)
        symbols[inside] = np.frombuffer(b"".join(texts), np.uint8)
        symbols[last] = STRING_END
        grams = np.zeros(max(0, len(symbols) - NGRAM_ORDER + 1), np.int64)
        for offset in range(NGRAM_ORDER):
            grams *= SYMBOLS
            grams += symbols[offset : offset + len(grams)]
        in_one_string = symbols[NGRAM_ORDER - 1 :] != STRING_START  # such an n-gram ends with a byte or the end symbol
        return cls(*_sum_counts(grams[in_one_string], np.repeat(times, sizes + 1)))

    def bits(self, string: str) -> float:
        """−log2 P(string).

        >>> round(SpellingModel.fit({}).bits("a"), 2)  # two symbols of 257
        16.01
        """
        known = self._bits.get(string)
        if known is None:
            gram, known = STRING_START * (SYMBOLS**NGRAM_ORDER - 1) // (SYMBOLS - 1), 0.0
            for symbol in (*string.encode(), STRING_END):
                gram = (gram * SYMBOLS + symbol) % SYMBOLS**NGRAM_ORDER
                known += self._cost(gram)
            if len(self._bits) < MAX_CACHED:
                self._bits[string] = known
        return known

    def _cost(self, gram: int) -> float:
        """−log2 P(last symbol | the ones before it)."""
        known = self._costs.get(gram)
        if known is None:
            known = -math.log2(self._probability(gram))
            if len(self._costs) < MAX_CACHED:
                self._costs[gram] = known
        return known

    def _probability(self, gram: int) -> float:
        """P(last symbol | the ones before it)."""
        result = 1 / (STRING_END + 1)
        for order, (counts, totals, successors) in enumerate(zip(*self._tables, strict=True)):
            part = gram % SYMBOLS ** (order + 1)
            total = totals[part // SYMBOLS]
            if not total:
                break
            kinds = successors[part // SYMBOLS]
            result = (counts[part] + kinds * result) / (total + kinds)
        return result

    def state(self) -> dict[str, Any]:
        """Return the sorted n-grams as compressed differences."""
        return {"order": NGRAM_ORDER, "grams": _pack(np.diff(self._grams, prepend=0)), "counts": _pack(self._seen)}

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> SpellingModel:
        """Return the model with this ``state``; raise InputError if it is damaged."""
        grams = _unpack(state["grams"], MAX_EXPANSION * len(state["grams"]) + MIN_UNPACKED)
        counts = _unpack(state["counts"], grams.nbytes)
        grams = np.cumsum(grams)
        sorted_ = len(grams) == 0 or (grams[0] >= 0 and grams[-1] < SYMBOLS**NGRAM_ORDER and (np.diff(grams) > 0).all())
        if len(grams) != len(counts) or not sorted_ or (counts < 1).any() or (counts > MAX_COUNT).any():
            raise InputError("the counts of spellings are damaged")
        return cls(grams, counts)


def _sum_counts(keys: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sorted unique keys and the sum of the counts of each."""
    if not len(keys):
        return keys, times
    if times.max() >> COUNT_BITS:  # too large to pack with the keys
        order = np.argsort(keys)
        keys, times = keys[order], times[order]
    else:  # sorting packed integers is much faster than argsort
        both = keys << COUNT_BITS | times
        both.sort()
        keys, times = both >> COUNT_BITS, both & (1 << COUNT_BITS) - 1
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    return keys[first], np.add.reduceat(times, first)


def _pack(numbers: np.ndarray) -> str:
    """Encode integers as text: byte planes, most of which are zero, compressed."""
    planes = numbers.astype("<i8").view(np.uint8).reshape(-1, 8).T.tobytes()
    return base64.b64encode(zlib.compress(planes, 9)).decode()


def _unpack(text: str, most: int) -> np.ndarray:
    """Decode integers; raise InputError if they are damaged or take more than ``most`` bytes."""
    try:
        stream = zlib.decompressobj()
        data = stream.decompress(base64.b64decode(text), most + 1)
    except (ValueError, zlib.error) as error:
        raise InputError("the counts of spellings are damaged") from error
    if len(data) > most or len(data) % 8 or not stream.eof:
        raise InputError("the counts of spellings are damaged, or larger than their file allows")
    return np.frombuffer(data, dtype=np.uint8).reshape(8, -1).T.copy().view("<i8").ravel()


class Spellings:
    """P(string) with a table of frequent strings and a spelling model for the rest.

    A known string costs its share of what was seen; any other costs an escape and its spelling.
    """

    def __init__(self, known: Mapping[str, int], escapes: int, rest: SpellingModel) -> None:
        self.known = dict(known)
        self.escapes = max(1, escapes)
        self.rest = rest
        self._total = sum(self.known.values()) + self.escapes

    @classmethod
    def of_words(cls, words: Mapping[str, int], spare: Mapping[str, int], literal: str) -> Spellings:
        """Fit the spelling of unknown words; ``literal`` is kept as a whole, if it occurs.

        ``spare`` are strings that only help to learn the spelling: the vocabulary.
        """
        rest = {word: count for word, count in words.items() if word != literal}
        known = {literal: words[literal]} if literal in words else {}
        return cls(known, sum(rest.values()), SpellingModel.fit(spare, rest))

    @classmethod
    def of_gaps(cls, gaps: Mapping[str, int], most: int = 10_000) -> Spellings:
        """Fit the spelling of white space; the most frequent gaps are kept as a whole (Witten–Bell smoothing)."""
        order = sorted(gaps.items(), key=lambda item: (-item[1], item[0]))
        late = sum(count for _, count in order[most:])
        return cls(dict(order[:most]), len(gaps) + late, SpellingModel.fit(dict.fromkeys(gaps, 1)))

    def bits(self, string: str) -> float:
        """−log2 P(string).

        >>> Spellings.of_gaps({" ": 1023}).bits(" ") < 0.01
        True
        """
        count = self.known.get(string)
        if count is not None:
            return math.log2(self._total / count)
        return math.log2(self._total / self.escapes) + self.rest.bits(string)

    def state(self) -> dict[str, Any]:
        """Return what ``restore`` needs."""
        return {"known": self.known, "escapes": self.escapes, "rest": self.rest.state()}

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> Spellings:
        """Return the spellings with this ``state``."""
        return cls(state["known"], state["escapes"], SpellingModel.restore(state["rest"]))
