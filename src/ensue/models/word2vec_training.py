"""Training of word2vec: the text is processed in chunks, each divided among threads.

Threads write to the same matrices without locks (Hogwild: Recht et al., 2011). If two change a row at once, one change
may be lost, so results with several threads are not reproducible. With one thread a chunk's update is a function of
the matrices and its number: a run can be repeated and resumed exactly.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensue.core.seeds import derive
from ensue.models.word2vec import Word2Vec
from ensue.models.word2vec_loops import WHOLE, Chunk, cbow, skipgram, softmax_cbow, softmax_skipgram

CHUNK_WORDS = 1 << 17
"""Words of a chunk: some hundredths of a second, so that training stops soon when it is asked to."""


class Word2VecTrainer:
    """Trains a model on a stream of words (−1 between sentences), given how often each word occurs in it.

    The rate falls linearly from ``lr`` to ``floor`` · ``lr``. ``dynamic`` samples the size of each window.
    """

    def __init__(
        self,
        model: Word2Vec,
        words: NDArray[np.int32],
        counts: NDArray[np.int64],
        *,
        lr: float = 0.025,
        floor: float = 0.004,
        subsample: float = 1e-3,
        dynamic: bool = True,
        threads: int = 1,
        seed: int = 0,
    ) -> None:
        self.model, self.words = model, words
        self.lr, self.floor, self.dynamic, self.threads, self.seed = lr, floor, dynamic, threads, seed
        self.V, self.U = model.embed.weight.detach().numpy(), model.head.weight.detach().numpy()
        self.keep = thresholds(counts, subsample)
        self.table = alias_table(counts, model.config.power) if model.config.objective == "negative" else None
        self.steps_per_epoch = max(1, -(-len(words) // CHUNK_WORDS))

    def rate(self, position: float) -> float:
        """Return the learning rate when a share of the training is done."""
        return self.lr * max(self.floor, 1 - position)

    def update(self, step: int, position: float, after: float) -> tuple[float, int]:
        """Train on one chunk, at the rates of two positions; return the mean loss of the windows that were measured,
        and the number of words."""
        start = step % self.steps_per_epoch * CHUNK_WORDS
        words = self.words[start : start + CHUNK_WORDS]
        rate, decay = self.rate(position), self.rate(position) - self.rate(after)
        parts = np.array_split(words, self.threads)
        seeds = [derive(self.seed, step, number) for number in range(len(parts))]
        train = partial(self._train_part, rate, decay)
        with ThreadPoolExecutor(len(parts)) as pool:
            loss, count = np.sum(list(pool.map(train, parts, seeds)), axis=0)
        return float(loss / max(count, 1)), int((words >= 0).sum())

    def _train_part(self, rate: float, decay: float, words: NDArray[np.int32], seed: int) -> NDArray[np.float64]:
        """Train on one thread's part of a chunk; return the sum of losses and their number."""
        config, loss = self.model.config, np.zeros(2)
        random = np.array([seed | 1], np.uint64)
        vectors = (self.V, self.U, self.keep)
        chunk = Chunk(words, *vectors, config.window, self.dynamic, rate, decay, random, loss)
        train: Any
        if self.table is None:
            train = softmax_skipgram if config.mode == "skipgram" else softmax_cbow
            train(chunk)
        else:
            train = skipgram if config.mode == "skipgram" else cbow
            train(chunk, config.negative, self.table)
        return loss


def thresholds(counts: NDArray[np.int64], subsample: float) -> NDArray[np.int64]:
    """Return 2³¹ times the probability that subsampling keeps each word, √(s/f) + s/f for a word of frequency f.

    >>> (thresholds(np.array([900, 100]), 0.1) / WHOLE).round(3).tolist()
    [0.444, 1.0]
    """
    if not subsample:
        return np.full(len(counts), WHOLE, np.int64)
    share = subsample / (np.maximum(counts, 1) / counts.sum())
    return np.asarray(np.minimum(np.sqrt(share) + share, 1.0) * WHOLE, np.int64)


def alias_table(counts: NDArray[np.int64], power: float) -> NDArray[np.int64]:
    """Return the alias table that samples words in proportion to count^power in one step (Walker 1977, Vose 1991).

    An entry is a threshold below 2³¹ and, in the lower half, the word to take above it. Words that never occur are
    never sampled.
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
    never = np.asarray(small, np.int64)[weight[small] == 0]  # left over from rounding
    threshold[never], other[never] = 0, int(weight.argmax())
    return (threshold << 32) | other
