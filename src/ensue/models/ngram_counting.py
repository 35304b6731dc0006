"""Counting n-grams: a stream of tokens becomes a trie, one order after the other.

The whole stream is in memory, and every order is sorted from the one before (``ngram_sorting``). A larger stream is
counted in parts on disk (``ensue.runs.disk_counting``), with the same result.
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
from ensue.models.ngram_estimates import estimate
from ensue.models.ngram_lookup import Ints, Trie, fill_suffixes
from ensue.models.ngram_sorting import Extension, Groups, counts_from, extend_groups, first_positions, set_nodes
from ensue.models.ngram_trie import appended, narrow, run_in_threads, with_capacity

SHARD_TOKENS = 1 << 20
"""Approximate number of tokens whose positions a thread collects at once."""
MAX_SHARDS = 64
"""Every shard reads the whole stream once."""
PIECE = 1 << 18
"""Approximate number of positions that a thread extends at once; temporary memory is proportional to it."""
MAX_TOKENS = 1 << 31
"""Positions have 32 bits."""


class TrieCounter:
    """Counts the n-grams of a token stream, one order per pass."""

    def __init__(self, config: NGramConfig, context_tokens: int = 0) -> None:
        """The first ``context_tokens`` of the stream are only read as contexts and not counted."""
        self.config = config
        self.context_tokens = context_tokens
        self.passes = config.order
        self._reset()

    def _reset(self) -> None:
        self.done = 0
        empty = np.zeros(0, np.int32)
        self.trie = Trie(empty, empty, empty, np.zeros(1, np.int64), empty)

    def count(self, tokens: NDArray[Any]) -> Iterator[tuple[int, int]]:
        """Count the remaining orders, and yield now and then how many tokens of how many are done, over all orders.

        Counting may stop at any yield; the orders finished so far are kept, and a new call continues with the next.
        """
        stream = check_tokens(tokens, self.config.vocabulary)
        size = len(stream)
        if self.done == 0:
            self.trie = first_level(stream[self.context_tokens :], self.config)
            self.done = 1
            yield size, self.passes * size
        self.trie = complete_levels(self.trie, self.done)
        if self.done < self.passes:
            yield from self._count_longer(stream)

    def _count_longer(self, stream: Ints) -> Iterator[tuple[int, int]]:
        """Count orders 2 and up; orders that are done are sorted again, but not added to the trie again."""
        size, level = len(stream), 1
        trim_memory()  # frees what reading the text left behind
        capacity = len(self.trie.words) + (self.passes - self.done) * size
        growing = ("words", "offsets", "suffix", "counts")
        self.trie = self.trie._replace(**{name: with_capacity(getattr(self.trie, name), capacity) for name in growing})
        nodes = stream.copy()
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            first = pool.map(partial(_first_groups, stream, self.config.vocabulary), *shard_spans(stream, self.config))
            pieces = [piece for groups in first for piece in split_groups(groups, PIECE)]
            while self.done < self.passes:
                closed = self.config.end if level > 1 else -1
                known, positions = level < self.done, 0
                base = int(self.trie.starts[level])
                starts = []
                for i, extension in enumerate(pool.map(partial(_extended, stream, nodes, closed), pieces)):
                    groups = extension.groups
                    starts.append(base)
                    positions += len(pieces[i].positions)
                    pieces[i] = Groups(nodes[:0], nodes[:0], nodes[:0])
                    if not known:
                        counted = counts_from(groups, self.context_tokens) if self.context_tokens else groups.sizes
                        self.trie = with_extension(self.trie, extension, counted)
                    here = slice(base, base + len(groups.words))
                    base = here.stop
                    if level + 1 < self.passes:  # words and counts are views of the trie
                        sizes = groups.sizes if self.context_tokens else self.trie.counts[here]
                        pieces[i] = Groups(groups.positions, sizes, self.trie.words[here])
                    yield level * size + min(positions, size), self.passes * size
                    del groups, extension
                level += 1
                if not known:
                    self.trie = self.trie._replace(starts=np.append(self.trie.starts, len(self.trie.words)))
                    self.done = level
                if level < self.passes:
                    list(pool.map(partial(set_nodes, nodes), pieces, starts))

    def tensors(self) -> dict[str, Tensor]:
        """Return all counts so far, for a checkpoint between two orders."""
        trie = complete_levels(self.trie, self.done)
        return {name: torch.from_numpy(array.copy()) for name, array in trie._asdict().items()}  # it grows in place

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Continue from what ``tensors`` returned."""
        self.trie = Trie(**{name: tensor.numpy().copy() for name, tensor in tensors.items()})
        self.done = self.trie.order

    def tables(self) -> tuple[NGramConfig, dict[str, Tensor], list[str]]:
        """Return the config, tables and notes of the model of the orders counted so far, and reset the counter."""
        notes = []
        if self.done == 0:
            self.trie, self.done = first_level(np.zeros(0, np.int32), self.config), 1
            notes.append("nothing was counted: the model gives every word the same probability")
        elif self.done < self.passes:
            notes.append(f"only orders up to {self.done} of {self.passes} were counted: the model has that order")
        trie, order = complete_levels(self.trie, self.done), self.done
        self._reset()
        trim_memory()
        result = estimate(trie, self.config)
        arrays = {name: array for name, array in trie._asdict().items() if name != "counts"}
        arrays |= {"probability": result.probability, "backoff": result.backoff}
        arrays["scale"] = np.array([result.scale], np.float32)
        tables = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
        return replace(self.config, order=order), tables, [*notes, *result.notes]


def check_tokens(tokens: NDArray[Any], vocabulary: int) -> Ints:
    """Return the tokens in 32 bits; raise InputError for one outside the vocabulary."""
    if len(tokens) >= MAX_TOKENS:
        hint = "count it in parts on disk: --memory 4G"
        raise InputError(f"a text of {len(tokens):,} tokens is too long to be counted in memory", hint=hint)
    if len(tokens):
        low, high = int(tokens.min()), int(tokens.max())
        if low < 0 or high >= vocabulary:
            raise InputError(f"token {low if low < 0 else high} is not in a vocabulary of {vocabulary}")
    return np.ascontiguousarray(tokens, np.int32)


def first_level(stream: Ints, config: NGramConfig) -> Trie:
    """Return a trie of all words with their counts; an end token at the beginning of the stream is not counted."""
    size = config.vocabulary
    counts = np.bincount(stream, minlength=size)
    if len(stream) and stream[0] == config.end:
        counts[config.end] -= 1
    words, empty = np.arange(size, dtype=np.int32), np.full(size, -1, np.int32)
    return Trie(words, np.array([size], np.int32), empty, np.array([0, size]), counts.astype(np.int32))


def shard_spans(stream: Ints, config: NGramConfig) -> tuple[list[tuple[int, int]], list[Ints]]:
    """Return spans of first words with about equally many positions, and the counts of the words of each span."""
    counts = np.bincount(stream, minlength=config.vocabulary)
    shards = min(max(torch.get_num_threads(), len(stream) // SHARD_TOKENS), MAX_SHARDS)
    inner_cuts = np.searchsorted(np.cumsum(counts), np.linspace(0, len(stream), shards + 1)[1:-1]).tolist()
    spans = list(pairwise(sorted({0, *inner_cuts, config.vocabulary})))
    return spans, [counts[low:high].astype(np.int32) for low, high in spans]


def split_groups(groups: Groups, size: int) -> list[Groups]:
    """Split groups into parts of about ``size`` positions; a larger group is a part of its own."""
    ends = np.cumsum(groups.sizes, dtype=np.int64)
    inner_cuts = np.searchsorted(ends, np.arange(size, len(groups.positions), size)) + 1
    cuts = sorted({0, *inner_cuts.tolist(), len(groups.sizes)})
    positions = [0, *(int(ends[cut - 1]) for cut in cuts[1:])]
    return [
        Groups(groups.positions[first:last], groups.sizes[low:high], groups.words[low:high])
        for (low, high), (first, last) in zip(pairwise(cuts), pairwise(positions), strict=True)
    ]


def _first_groups(stream: Ints, vocabulary: int, span: tuple[int, int], sizes: Ints) -> Groups:
    positions = first_positions(stream, span, vocabulary, int(sizes.sum()))
    return Groups(positions, sizes, np.arange(*span, dtype=np.int32))


def _extended(stream: Ints, nodes: Ints, closed: int, groups: Groups) -> Extension:
    """Return the n-grams one word longer than ``groups``, whose positions are overwritten."""
    words, sizes, suffix = (np.empty(len(groups.positions), np.int32) for _ in range(3))
    child_counts = np.empty(len(groups.sizes), np.int32)
    result = Extension(Groups(groups.positions, sizes, words), suffix, child_counts)
    found, kept = extend_groups(stream, nodes, groups, closed, result)
    for array in (words, sizes, suffix):
        array.resize(found, refcheck=False)  # frees the rest without a copy
    return Extension(Groups(groups.positions[:kept], sizes, words), suffix, child_counts)


def with_extension(trie: Trie, extension: Extension, counts: Ints) -> Trie:
    """Return the trie with more n-grams in its last level, which is complete after the last piece."""
    total = len(trie.words) + len(extension.suffix)
    offsets = narrow(np.cumsum(extension.child_counts, dtype=np.int64) + len(trie.words), total)
    return Trie(
        appended(trie.words, extension.groups.words),
        appended(trie.offsets, offsets),
        appended(trie.suffix, narrow(extension.suffix, total)),
        trie.starts,
        appended(trie.counts, counts),
    )


def complete_levels(trie: Trie, levels: int) -> Trie:
    """Return the trie without a level that was not finished."""
    total, contexts = int(trie.starts[levels]), int(trie.starts[levels - 1])
    if total == len(trie.words) and contexts + 1 == len(trie.offsets):
        return trie
    words, offsets, suffix, starts, counts = trie
    return Trie(words[:total], offsets[: contexts + 1], suffix[:total], starts, counts[:total])


def with_level(trie: Trie, keys: Ints, counts: Ints) -> Trie:
    """Return the trie with one more level, of n-grams with sorted keys ``context · V + last word``."""
    vocabulary, total = int(trie.starts[1]), len(trie.words) + len(keys)
    contexts, words = np.divmod(keys, vocabulary)
    first, last = (int(start) for start in trie.starts[-2:])
    child_counts = np.bincount(contexts - first, minlength=last - first)
    longer = Trie(
        np.append(trie.words, words.astype(np.int32)),
        np.append(trie.offsets, narrow(np.cumsum(child_counts) + last, total)),
        np.append(trie.suffix, narrow(np.full(len(keys), -1), total)),
        np.append(trie.starts, total),
        np.append(trie.counts, counts),
    )
    missing = max(run_in_threads(longer, longer.order, partial(fill_suffixes, longer)))
    if missing >= 0:
        raise InputError(f"n-gram {missing - last} of {longer.order} words lacks the one without its first")
    return longer
