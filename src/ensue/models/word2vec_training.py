"""How word2vec goes through a text: in stretches, each shared out among threads.

Threads write to the same matrices without waiting for each other (Hogwild: Recht et al., 2011). Where two change a row
at once, one change can be lost; so what comes out of several threads is never twice the same. On one thread a stretch
is a function of the matrices and its number: a run can be repeated, and resumed, to the bit.
"""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ensue.core.seeds import derive
from ensue.models.word2vec import Word2Vec
from ensue.models.word2vec_loops import WHOLE, cbow, skipgram, softmax_cbow, softmax_skipgram

STRETCH = 1 << 17
"""Words of a stretch: some hundredths of a second, so that a stop is soon heeded."""


@dataclass(frozen=True, kw_only=True)
class Learning:
    """How a text is learnt from."""

    lr: float = 0.025
    """The rate at the beginning; it falls in a straight line."""
    floor: float = 0.004
    """What is left of it at the end, as a share."""
    subsample: float = 1e-3
    dynamic: bool = True
    threads: int = 1
    seed: int = 0


class Word2VecTrainer:
    """A model, a stream of words (−1 where a window may not reach on) and how often each word occurs in it."""

    def __init__(self, model: Word2Vec, words: NDArray[np.int32], counts: NDArray[np.int64], how: Learning) -> None:
        self.model, self.words, self.how = model, words, how
        self.V, self.U = model.embed.weight.detach().numpy(), model.head.weight.detach().numpy()
        self.keep = thresholds(counts, how.subsample)
        self.table = alias_table(counts, model.config.power) if model.config.objective == "negative" else None
        self.steps_per_epoch = max(1, -(-len(words) // STRETCH))

    def trial(self) -> Self:
        """The same on matrices of its own, to see how fast it is."""
        other = copy.copy(self)
        other.V, other.U = self.V.copy(), self.U.copy()
        return other

    def rate(self, step: int, steps: int) -> float:
        """η before a step."""
        return self.how.lr * max(self.how.floor, 1 - step / steps)

    def update(self, step: int, steps: int) -> tuple[float, int]:
        """Go through one stretch; the mean loss of what was looked at, and how many words it had."""
        at = step % self.steps_per_epoch * STRETCH
        words = self.words[at : at + STRETCH]
        rate, after = self.rate(step, steps), self.rate(step + 1, steps)
        parts = np.array_split(words, self.how.threads)
        work = [(part, rate, rate - after, derive(self.how.seed, step, number)) for number, part in enumerate(parts)]
        if len(work) == 1:
            told = [self._part(*work[0])]
        else:
            with ThreadPoolExecutor(len(work)) as pool:
                told = list(pool.map(lambda one: self._part(*one), work))
        loss, count = np.sum(told, axis=0)
        return float(loss / max(count, 1)), int((words >= 0).sum())

    def _part(self, words: NDArray[np.int32], rate: float, fall: float, seed: int) -> NDArray[np.float64]:
        """One thread's share of a stretch."""
        config, how, told = self.model.config, self.how, np.zeros(2)
        random = np.array([seed | 1], np.uint64)
        if self.table is None:
            exact: Any = softmax_skipgram if config.mode == "skipgram" else softmax_cbow
            exact(words, self.V, self.U, self.keep, config.window, how.dynamic, rate, fall, random, told)
            return told
        sampled: Any = skipgram if config.mode == "skipgram" else cbow
        room = (config.window, how.dynamic, config.negative)
        sampled(words, self.V, self.U, self.keep, self.table, *room, rate, fall, random, told)
        return told


def thresholds(counts: NDArray[np.int64], subsample: float) -> NDArray[np.int64]:
    """√(s/f) + s/f of 2³¹ for words with share f of a text, at most all; all where s is 0.

    >>> (thresholds(np.array([900, 100]), 0.1) / WHOLE).round(3).tolist()
    [0.444, 1.0]
    """
    if not subsample:
        return np.full(len(counts), WHOLE, np.int64)
    share = subsample / (np.maximum(counts, 1) / counts.sum())
    found: NDArray[np.int64] = (np.minimum(np.sqrt(share) + share, 1.0) * WHOLE).astype(np.int64)
    return found


def alias_table(counts: NDArray[np.int64], power: float) -> NDArray[np.int64]:
    """What draws words in proportion to count^power in one step: for each place a threshold below 2³¹ and, in the lower
    half, the word to take above it (Walker 1977, Vose 1991). Words that never occur are never drawn.
    """
    weight = np.where(counts > 0, np.maximum(counts, 1).astype(np.float64) ** power, 0.0)
    full = weight * (len(counts) / weight.sum())
    threshold, other = np.full(len(counts), WHOLE - 1, np.int64), np.arange(len(counts))
    small, large = list(np.flatnonzero(full < 1)), list(np.flatnonzero(full >= 1))
    while small and large:
        short, long = small.pop(), large[-1]
        threshold[short], other[short] = int(full[short] * WHOLE), long
        full[long] -= 1 - full[short]
        if full[long] < 1:
            small.append(large.pop())
    never = np.asarray(small, np.int64)[weight[small] == 0]  # left over where sums were rounded
    threshold[never], other[never] = 0, int(weight.argmax())
    return (threshold << 32) | other
