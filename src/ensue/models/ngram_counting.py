"""Counting n-grams: a stream of tokens becomes a trie, one order after the other.

The whole stream is in memory, and every order is sorted from the one before (``ngram_sorting``). What does not fit is
counted in parts on disk (``ngram_disk``), to the same trie.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.core.errors import InputError
from ensue.core.memory import trim_memory
from ensue.models.ngram_config import NGramConfig
from ensue.models.ngram_estimates import EPSILON, Estimate, kneser_ney, relative_frequencies, stupid_backoff
from ensue.models.ngram_lookup import Ints, Trie, fill_suffixes
from ensue.models.ngram_sorting import Groups, Longer, counted_from, first_places, lengthen, number
from ensue.models.ngram_trie import extended, narrow, order_of, roomy, spread

SHARD = 1 << 20
"""The places of about so many tokens are gathered at once by a thread."""
MOST_SHARDS = 64
"""Every shard reads the whole stream once."""
PIECE = 1 << 18
"""About so many of them are lengthened at once by a thread: what that takes in memory for a while is in proportion."""
MOST_TOKENS = 1 << 31
"""What is not less than this does not fit: places have 32 bits."""


class TrieCounter:
    """Counts the n-grams of a token stream, one order a pass."""

    def __init__(self, config: NGramConfig, before: int = 0) -> None:
        """``before``: so many tokens at the beginning of the stream are only read as contexts, and not counted."""
        self.config = config
        self.before = before
        self.passes = config.order
        self._reset()

    def _reset(self) -> None:
        self.done = 0
        empty = np.zeros(0, np.int32)
        self.trie = Trie(empty, empty, empty, np.zeros(1, np.int64), empty)

    def count(self, tokens: NDArray[Any]) -> Iterator[tuple[int, int]]:
        """Count the orders that are not done yet, and say now and then how many tokens are done of how many, over all
        orders. Whoever stops in between has the orders finished so far, and can begin again with the next."""
        stream = checked(tokens, self.config.vocabulary)
        size = len(stream)
        if self.done == 0:
            self.trie = first_level(stream[self.before :], self.config)
            self.done = 1
            yield size, self.passes * size
        self.trie = whole_levels(self.trie, self.done)
        if self.done < self.passes:
            yield from self._lengthened(stream)

    def _lengthened(self, stream: Ints) -> Iterator[tuple[int, int]]:
        """Orders 2 and up; those that are done are sorted again, but not put into the trie again."""
        size, shards, level = len(stream), [], 1
        trim_memory()  # what reading the text has left
        most = len(self.trie.words) + (self.passes - self.done) * size
        growing = ("words", "offsets", "suffix", "counts")
        self.trie = self.trie._replace(**{name: roomy(getattr(self.trie, name), most) for name in growing})
        nodes = stream.copy()
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            begin = partial(_begun, stream, self.config.vocabulary)
            for begun in pool.map(begin, *cut_by_word(stream, self.config.vocabulary)):
                shards.extend(split(begun, PIECE))
            while self.done < self.passes:
                closed = self.config.end if level > 1 else -1
                known, places = level < self.done, 0
                base = int(self.trie.starts[level])
                starts = []
                for at, longer in enumerate(pool.map(partial(_longer, stream, nodes, closed), shards)):
                    starts.append(base)
                    places += len(shards[at].places)
                    shards[at] = Groups(nodes[:0], nodes[:0], nodes[:0])
                    if not known:
                        times = counted_from(longer.groups, self.before) if self.before else longer.groups.sizes
                        self.trie = appended(self.trie, longer, times)
                    here = slice(base, base + len(longer.groups.words))
                    base = here.stop
                    if level + 1 < self.passes:  # words and counts lie in the trie already
                        sizes = longer.groups.sizes if self.before else self.trie.counts[here]
                        shards[at] = Groups(longer.groups.places, sizes, self.trie.words[here])
                    yield level * size + min(places, size), self.passes * size
                    del longer
                level += 1
                if not known:
                    self.trie = self.trie._replace(starts=np.append(self.trie.starts, len(self.trie.words)))
                    self.done = level
                if level < self.passes:
                    list(pool.map(partial(number, nodes), shards, starts))

    def tensors(self) -> dict[str, Tensor]:
        """All that is counted so far, for a checkpoint between two orders."""
        names = ("words", "offsets", "suffix", "starts", "counts")
        trie = whole_levels(self.trie, self.done)
        return {name: torch.from_numpy(getattr(trie, name).copy()) for name in names}  # the trie grows in place

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Go on from what ``tensors`` answered."""
        self.trie = Trie(**{name: tensor.numpy().copy() for name, tensor in tensors.items()})
        self.done = order_of(self.trie)

    def tables(self) -> tuple[NGramConfig, dict[str, Tensor], list[str]]:
        """Return the config, tables and notes of the model of the orders counted so far, and reset the counter."""
        notes = []
        if self.done == 0:
            self.trie, self.done = first_level(np.zeros(0, np.int32), self.config), 1
            notes.append("nothing was counted: the model gives every word the same probability")
        elif self.done < self.passes:
            notes.append(f"only orders up to {self.done} of {self.passes} were counted: the model has that order")
        trie, order = whole_levels(self.trie, self.done), self.done
        self._reset()
        trim_memory()
        estimate = estimated(trie, self.config)
        arrays = {name: getattr(trie, name) for name in ("words", "offsets", "suffix", "starts")}
        arrays |= {"probability": estimate.probability, "backoff": estimate.backoff}
        arrays["scale"] = np.array([estimate.scale], np.float32)
        tables = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
        return replace(self.config, order=order), tables, [*notes, *estimate.notes]


def checked(tokens: NDArray[Any], vocabulary: int) -> Ints:
    """The tokens in 32 bits; one outside the vocabulary is an error for people."""
    if len(tokens) >= MOST_TOKENS:
        hint = "count it in parts on disk: --memory 4G"
        raise InputError(f"a text of {len(tokens):,} tokens is too long to be counted in memory", hint=hint)
    if len(tokens):
        low, high = int(tokens.min()), int(tokens.max())
        if low < 0 or high >= vocabulary:
            raise InputError(f"token {low if low < 0 else high} is not in a vocabulary of {vocabulary}")
    return np.ascontiguousarray(tokens, np.int32)


def first_level(stream: Ints, config: NGramConfig) -> Trie:
    """The words, seen or not, and how often; the end mark that opens the stream is only a context."""
    size = config.vocabulary
    counts = np.bincount(stream, minlength=size)
    if len(stream) and stream[0] == config.end:
        counts[config.end] -= 1
    words, empty = np.arange(size, dtype=np.int32), np.full(size, -1, np.int32)
    return Trie(words, np.array([size], np.int32), empty, np.array([0, size]), counts.astype(np.int32))


def cut_by_word(stream: Ints, vocabulary: int) -> tuple[list[tuple[int, int]], list[Ints]]:
    """Spans of first words with about as many places each, and how often each of their words is in the stream."""
    sizes = np.bincount(stream, minlength=vocabulary)
    shards = min(max(torch.get_num_threads(), len(stream) // SHARD), MOST_SHARDS)
    found = np.searchsorted(np.cumsum(sizes), np.linspace(0, len(stream), shards + 1)[1:-1]).tolist()
    cuts = sorted({0, *found, vocabulary})
    spans = list(pairwise(cuts))
    return spans, [sizes[low:high].astype(np.int32) for low, high in spans]


def split(groups: Groups, size: int) -> list[Groups]:
    """Groups in parts of about ``size`` places, or of one group that has more."""
    ends = np.cumsum(groups.sizes, dtype=np.int64)
    found = np.searchsorted(ends, np.arange(size, len(groups.places), size)) + 1
    cuts = sorted({0, *found.tolist(), len(groups.sizes)})
    places = [0, *(int(ends[cut - 1]) for cut in cuts[1:])]
    return [
        Groups(groups.places[first:last], groups.sizes[low:high], groups.words[low:high])
        for (low, high), (first, last) in zip(pairwise(cuts), pairwise(places), strict=True)
    ]


def _begun(stream: Ints, vocabulary: int, span: tuple[int, int], sizes: Ints) -> Groups:
    places = first_places(stream, span, vocabulary, int(sizes.sum()))
    return Groups(places, sizes, np.arange(*span, dtype=np.int32))


def _longer(stream: Ints, nodes: Ints, closed: int, groups: Groups) -> Longer:
    room = len(groups.places)
    words, sizes, suffix = (np.empty(room, np.int32) for _ in range(3))
    fan = np.empty(len(groups.sizes), np.int32)
    longer = Longer(Groups(groups.places, sizes, words), suffix, fan)
    found, kept = lengthen(stream, nodes, groups, closed, longer)
    for array in (words, sizes, suffix):
        array.resize(found, refcheck=False)  # gives the rest back without a copy
    return Longer(Groups(groups.places[:kept], sizes, words), suffix, fan)


def appended(trie: Trie, longer: Longer, counts: Ints) -> Trie:
    """The trie with the n-grams of one more shard in its last level, which is not complete before the last shard."""
    total = len(trie.words) + len(longer.suffix)
    offsets = narrow(np.cumsum(longer.fan, dtype=np.int64) + len(trie.words), total)
    return Trie(
        extended(trie.words, longer.groups.words),
        extended(trie.offsets, offsets),
        extended(trie.suffix, narrow(longer.suffix, total)),
        trie.starts,
        extended(trie.counts, counts),
    )


def whole_levels(trie: Trie, levels: int) -> Trie:
    """The trie without a level that was not finished."""
    total, contexts = int(trie.starts[levels]), int(trie.starts[levels - 1])
    if total == len(trie.words) and contexts + 1 == len(trie.offsets):
        return trie
    words, offsets, suffix, starts, counts = trie
    return Trie(words[:total], offsets[: contexts + 1], suffix[:total], starts, counts[:total])


def estimated(trie: Trie, config: NGramConfig) -> Estimate:
    """The estimate that ``config.mode`` names."""
    if config.mode == "kneser-ney":
        return kneser_ney(trie)
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
