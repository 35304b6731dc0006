"""Encode sentence pairs as tokens."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from ensue.core.errors import InputError
from ensue.core.wording import counted, line_numbers
from ensue.data.pairs import Pairs
from ensue.data.tokenizers.protocol import Tokenizer


@dataclass(frozen=True, eq=False)
class PairTokens:
    """Encoded sentence pairs: pair i is ``source[source_at[i] : source_at[i + 1]]``, likewise for the target.

    Each sentence ends with its tokenizer's end token.
    """

    source: np.ndarray = field(repr=False)
    """All source sentences, concatenated, int32."""
    source_at: np.ndarray = field(repr=False)
    """(n + 1,): where each sentence begins, and the end of the last, int64."""
    target: np.ndarray = field(repr=False)
    target_at: np.ndarray = field(repr=False)
    lines: np.ndarray = field(repr=False)
    """(n,): the line of each pair, int64."""
    unknown: tuple[int, int]
    """Number of unknown tokens in source and target."""
    bytes: int
    """Size of the target sentences in UTF-8, each with a newline."""
    words: int
    """Words of the target between white space, plus line ends."""
    surcharge: float
    """Bits of the target that its tokens do not encode."""
    tasks: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64), repr=False)
    """(n,): the task of each pair; empty: all are of one."""

    def __len__(self) -> int:
        return len(self.lines)

    def pair(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the tokens of a pair."""
        source, target = (slice(at[index], at[index + 1]) for at in (self.source_at, self.target_at))
        return self.source[source], self.target[target]

    def first(self, count: int) -> PairTokens:
        """Return the first ``count`` pairs; the counts of words and bytes stay those of all."""
        if count >= len(self):
            return self
        return replace(
            self,
            source=self.source[: self.source_at[count]],
            source_at=self.source_at[: count + 1],
            target=self.target[: self.target_at[count]],
            target_at=self.target_at[: count + 1],
            lines=self.lines[:count],
            tasks=self.tasks[:count],
        )

    @cached_property
    def hash(self) -> str:
        """SHA-256 of all arrays."""
        digest = hashlib.sha256()
        for array in (self.source, self.source_at, self.target, self.target_at, self.lines):
            digest.update(f"{array.dtype.str} {len(array)} ".encode())
            digest.update(array.tobytes())
        return digest.hexdigest()


def encode_pairs(
    pairs: Pairs, source_tokenizer: Tokenizer, target_tokenizer: Tokenizer, *, most: int, notes: list[str] | None = None
) -> PairTokens:
    """Encode pairs, without those that have more than ``most`` tokens on a side, end token included."""
    texts = ((pairs.source, source_tokenizer), (pairs.target, target_tokenizer))
    sides = [_encode(text, pairs.numbers, tokenizer) for text, tokenizer in texts]
    fits = [max(map(len, both)) <= most for both in zip(*sides)]
    kept = [index for index, fit in enumerate(fits) if fit]
    if len(kept) < len(pairs):
        long = [number for number, fit in zip(pairs.numbers, fits) if not fit]
        what = f"{counted(len(long), 'pair')} with more than {most:,} tokens on a side ({line_numbers(long)})"
        if not kept:
            raise InputError(f"there is nothing but {what}", hint="choose a larger context or a coarser tokenizer")
        if notes is not None:
            notes.append(f"left out {what}")
    (source, source_at), (target, target_at) = (_concatenate([side[index] for index in kept]) for side in sides)
    texts_kept = [pairs.target[index] for index in kept]
    return PairTokens(
        source,
        source_at,
        target,
        target_at,
        lines=np.array([pairs.numbers[index] for index in kept], dtype=np.int64),
        unknown=(_count(source, source_tokenizer.unknown), _count(target, target_tokenizer.unknown)),
        bytes=sum(len(text.encode()) + 1 for text in texts_kept),
        words=sum(len(text.split()) + 1 for text in texts_kept),
        surcharge=_surcharge(texts_kept, target_tokenizer),
        tasks=np.array([pairs.tasks[index] for index in kept] if pairs.tasks else [], dtype=np.int64),
    )


def _encode(texts: list[str], numbers: list[int], tokenizer: Tokenizer) -> list[np.ndarray]:
    """Encode each sentence with its end token."""
    end = np.array([tokenizer.end], dtype=np.int32)
    result = []
    for text, number in zip(texts, numbers):
        try:
            result.append(np.concatenate([tokenizer.encode(text), end], dtype=np.int32))
        except InputError as error:
            raise InputError(str(error), where=f"line {number}") from error
    return result


def _concatenate(parts: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Concatenate sentences, and return where each begins."""
    return np.concatenate(parts), np.cumsum([0, *map(len, parts)], dtype=np.int64)


def _count(tokens: np.ndarray, token: int | None) -> int:
    return 0 if token is None else int((tokens == token).sum())


def _surcharge(texts: list[str], tokenizer: Tokenizer) -> float:
    """Return the bits that tokens do not encode; if newlines are end tokens, line ends are included."""
    if tokenizer.lines:
        return tokenizer.surcharge("".join(text + "\n" for text in texts))[0]
    return sum(tokenizer.surcharge(text)[0] for text in texts)
