"""Encode sentence pairs as tokens."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
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

    def __len__(self) -> int:
        return len(self.lines)

    def pair(self, place: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the tokens of a pair."""
        source, target = (slice(at[place], at[place + 1]) for at in (self.source_at, self.target_at))
        return self.source[source], self.target[target]

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
    sides = [_encoded(text, pairs.numbers, tokenizer) for text, tokenizer in texts]
    kept = [place for place, both in enumerate(zip(*sides)) if max(map(len, both)) <= most]
    if len(kept) < len(pairs):
        fits = set(kept)
        long = [number for place, number in enumerate(pairs.numbers) if place not in fits]
        what = f"{counted(len(long), 'pair')} with more than {most:,} tokens on a side ({line_numbers(long)})"
        if not kept:
            raise InputError(f"all there is are {what}", hint="choose a larger context or a coarser tokenizer")
        if notes is not None:
            notes.append(f"left out {what}")
    (source, source_at), (target, target_at) = (_joined([side[place] for place in kept]) for side in sides)
    said = [pairs.target[place] for place in kept]
    return PairTokens(
        source,
        source_at,
        target,
        target_at,
        lines=np.array([pairs.numbers[place] for place in kept], dtype=np.int64),
        unknown=(_count(source, source_tokenizer.unknown), _count(target, target_tokenizer.unknown)),
        bytes=sum(len(text.encode()) + 1 for text in said),
        words=sum(len(text.split()) + 1 for text in said),
        surcharge=_surcharge(said, target_tokenizer),
    )


def _encoded(texts: list[str], numbers: list[int], tokenizer: Tokenizer) -> list[np.ndarray]:
    """Encode each sentence with its end token."""
    end = np.array([tokenizer.end], dtype=np.int32)
    result = []
    for text, number in zip(texts, numbers):
        try:
            result.append(np.concatenate([tokenizer.encode(text), end], dtype=np.int32))
        except InputError as error:
            raise InputError(str(error), where=f"line {number}") from error
    return result


def _joined(parts: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Concatenate sentences, and return where each begins."""
    at = np.zeros(len(parts) + 1, dtype=np.int64)
    np.cumsum([len(part) for part in parts], out=at[1:])
    return np.concatenate(parts), at


def _count(tokens: np.ndarray, mark: int | None) -> int:
    return 0 if mark is None else int((tokens == mark).sum())


def _surcharge(texts: list[str], tokenizer: Tokenizer) -> float:
    """Return the bits that tokens do not encode; if newlines are end tokens, line ends are included."""
    if tokenizer.lines:
        return tokenizer.surcharge("".join(text + "\n" for text in texts))[0]
    return sum(tokenizer.surcharge(text)[0] for text in texts)
