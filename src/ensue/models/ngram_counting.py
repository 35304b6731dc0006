"""Counting n-grams in passes over a stream, one an order, in memory for the table and one chunk.

Pass k makes level k of the trie. Each token's context is already a node of the levels below, found by one
search from the context before it; the pairs (context, word) are sorted, counted, and kept as sorted runs
that are merged when two have like sizes, so that every pair is moved O(log chunks) times.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ensue.core.errors import InputError
from ensue.models.ngram import NGram, NGramConfig
from ensue.models.ngram_estimates import (
    EPSILON,
    Estimate,
    kneser_ney,
    order_of,
    relative_frequencies,
    spread,
    stupid_backoff,
)
from ensue.models.ngram_lookup import Ints, Run, Trie, fill_suffixes, keys_of, merge

PIECE = 1 << 16
"""The fewest tokens worth a thread of their own."""


class NGramCounter:
    """Counts a stream of tokens and turns the counts into an ``NGram``.

    The stream is ``end w1 w2 end w3 … end``: it begins with the end mark, and every sentence or document
    closes with one. It is read once an order, in chunks of any size:

    >>> counter = NGramCounter(NGramConfig(vocabulary=4, order=2, end=0))
    >>> for _ in range(counter.passes):
    ...     counter.open()
    ...     counter.absorb(np.array([0, 1, 2, 0, 1, 3, 0]))
    ...     counter.close()
    >>> counter.finish().counts
    [4, 5]
    """

    def __init__(self, config: NGramConfig) -> None:
        self.config = config
        self.passes = config.order
        self.done = 0
        self.notes: list[str] = []
        empty = np.zeros(0, np.int32)
        self.trie = Trie(empty, empty, empty, np.zeros(1, np.int64), empty)
        self.open()

    def open(self) -> None:
        """Begin a pass; what an unfinished one has counted is dropped."""
        self._node = -1
        self._begun = False
        self._unigrams = np.zeros(self.config.vocabulary if self.done == 0 else 0, np.int64)
        self._runs: list[Run] = []

    def absorb(self, chunk: Ints) -> None:
        """Count the next tokens of the stream."""
        tokens = np.ascontiguousarray(chunk)
        if len(tokens) == 0:
            return
        if int(tokens.min()) < 0 or int(tokens.max()) >= self.config.vocabulary:
            wrong = int(tokens.min()) if int(tokens.min()) < 0 else int(tokens.max())
            raise InputError(f"token {wrong} is not in a vocabulary of {self.config.vocabulary}")
        tokens = tokens.astype(np.int32, copy=False)
        if self.done == 0:
            opening = not self._begun and tokens[0] == self.config.end
            self._unigrams += np.bincount(tokens[int(opening) :], minlength=self.config.vocabulary)
        else:
            self._absorb_pairs(tokens)
        self._begun = True

    def _absorb_pairs(self, tokens: Ints) -> None:
        """Each thread takes a piece; a piece's context is read from the ``done`` tokens before it."""
        size = max(-(-len(tokens) // torch.get_num_threads()), PIECE)
        places = range(0, len(tokens), size)
        nodes = [self._node, *(self._follow(tokens[at - self.done : at]) for at in places[1:])]
        pieces = [tokens[at : at + size] for at in places]
        with ThreadPoolExecutor(len(pieces)) as pool:
            for run, node in pool.map(self._run, pieces, nodes):
                self._runs.append(run)
                self._node = node
                while len(self._runs) > 1 and len(self._runs[-2][0]) < 2 * len(self._runs[-1][0]):
                    self._merge_two()

    def _follow(self, tokens: Ints) -> int:
        return keys_of(self.trie, tokens, -1, self.config.end, np.empty(len(tokens), np.int64))[1]

    def _run(self, tokens: Ints, node: int) -> tuple[Run, int]:
        """The sorted pairs of a piece that begins in context ``node``, and the context at its end."""
        keys = np.empty(len(tokens), np.int64)
        count, node = keys_of(self.trie, tokens, node, self.config.end, keys)
        keys = keys[:count]
        keys.sort()
        last = np.flatnonzero(np.append(keys[1:] != keys[:-1], count > 0))
        return (keys[last], np.diff(last, prepend=-1)), node

    def _merge_two(self) -> None:
        run, other = self._runs.pop(), self._runs.pop()
        room = len(run[0]) + len(other[0])
        keys, counts = np.empty(room, np.int64), np.empty(room, np.int64)
        size = merge(run, other, (keys, counts))
        self._runs.append((keys[:size].copy(), counts[:size].copy()))

    def close(self) -> None:
        """End a pass: its counts become a level of the trie."""
        size = self.config.vocabulary
        if self.done == 0:
            empty = narrow(np.full(size, -1), size)
            words, counts = np.arange(size, dtype=np.int32), narrow(self._unigrams, int(self._unigrams.sum()))
            self.trie = Trie(words, narrow(np.array([size]), size), empty, np.array([0, size]), counts)
        else:
            while len(self._runs) > 1:
                self._merge_two()
            keys, counts = self._runs.pop() if self._runs else (np.zeros(0, np.int64), np.zeros(0, np.int64))
            self.trie = grown(self.trie, keys, narrow(counts, int(self.trie.counts[:size].sum())))
        self.done += 1
        self.open()

    def tensors(self) -> dict[str, Tensor]:
        """All that is counted so far, for a checkpoint between two passes."""
        names = ("words", "offsets", "suffix", "starts", "counts")
        return {name: torch.from_numpy(np.ascontiguousarray(getattr(self.trie, name))) for name in names}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Go on from what ``tensors`` answered."""
        self.trie = Trie(**{name: tensor.numpy() for name, tensor in tensors.items()})
        self.done = order_of(self.trie)
        self.open()

    def finish(self) -> NGram:
        """The model of the orders counted so far."""
        notes = list(self.notes)
        if self.done == 0:
            notes.append("not even one pass was finished: only the words read so far are counted")
            self.close()
        elif self.done < self.passes:
            notes.append(f"only orders up to {self.done} of {self.passes} were counted: the model has that order")
        estimate = estimated(self.trie, self.config)
        tables = {
            "words": self.trie.words,
            "offsets": self.trie.offsets,
            "suffix": self.trie.suffix,
            "starts": self.trie.starts,
            "probability": estimate.probability,
            "backoff": estimate.backoff,
            "scale": np.array([estimate.scale], np.float32),
        }
        model = NGram(replace(self.config, order=self.done))
        model.adopt({name: torch.from_numpy(np.ascontiguousarray(table)) for name, table in tables.items()})
        model.notes = [*notes, *estimate.notes]
        return model


def estimated(trie: Trie, config: NGramConfig) -> Estimate:
    """The estimate that ``config.mode`` names."""
    if config.mode == "kneser-ney":
        return kneser_ney(trie, config.end)
    if config.mode == "backoff":
        return stupid_backoff(trie, config.alpha)
    if config.mode == "add":
        return relative_frequencies(trie, config.delta, 0.0)
    return relative_frequencies(trie, 0.0, EPSILON)


def grown(trie: Trie, keys: Ints, counts: Ints) -> Trie:
    """The trie with one more level, of n-grams with sorted keys ``context · V + last word``."""
    vocabulary, total = int(trie.starts[1]), len(trie.words) + len(keys)
    contexts, words = np.divmod(keys, vocabulary)
    first, last = (int(start) for start in trie.starts[-2:])
    fan = np.bincount(contexts - first, minlength=last - first)
    offsets = np.append(trie.offsets, narrow(np.cumsum(fan) + last, total))
    suffix = np.append(trie.suffix, narrow(np.full(len(keys), -1), total))
    longer = Trie(
        np.append(trie.words, words.astype(np.int32)),
        offsets,
        suffix,
        np.append(trie.starts, total),
        np.append(trie.counts, counts),
    )
    missing = max(spread(longer, order_of(longer), lambda low, high: fill_suffixes(longer, low, high)))
    if missing >= 0:
        raise InputError(f"n-gram {missing - last} of {order_of(longer)} words lacks the one without its first")
    return longer


def narrow(values: Ints, most: int) -> Ints:
    """The values in 32 bits if ``most`` fits, else in 64."""
    return values.astype(np.int32 if most < 2**31 else np.int64, copy=False)
