"""States of texts that were read, for texts that begin alike.

A conversation is sent as a whole at every turn, and many begin with the same instructions. What two texts share at
their beginning need not be read twice: the state after it is all that a model keeps of it.

    whole     a text that continues a stored one takes its state, for any model
    part      a text that leaves a stored one halfway takes the state of the shared tokens, where it can be cut
              (``State.first``): keys and values can, a recurrent state cannot
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, NamedTuple

LEAST_SHARED = 16
"""Tokens below which reading again is as fast."""
MAX_BYTES = 1 << 28
"""Memory of all stored states."""
MAX_TEXTS = 64
"""Stored texts: a new one is compared with each of them, and some models have states of a few bytes."""


class Prefix(NamedTuple):
    """The first tokens of a text, and the state after them."""

    tokens: Sequence[int]
    state: Any


def shared_prefix(stored: Prefix, tokens: Sequence[int]) -> Prefix | None:
    """Return the part of ``tokens`` that a stored text begins with, all but the last token at most, and its state.

    Some token has to be left to read, as the distribution of the next one is not stored.
    """
    most = min(len(stored.tokens), len(tokens) - 1)
    count = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(stored.tokens[:most], tokens)))
    if count < 1:
        return None
    whole = count == len(stored.tokens)
    state = stored.state if whole else stored.state.first(count, of=len(stored.tokens))
    return None if state is None else Prefix(tokens[:count], state)


class PrefixCache:
    """The newest texts and their states, up to a number and a size in memory."""

    def __init__(self, max_bytes: int = MAX_BYTES, least: int = LEAST_SHARED, max_texts: int = MAX_TEXTS) -> None:
        self.max_bytes, self.least, self.max_texts = max_bytes, least, max_texts
        self._stored: list[tuple[Prefix, int]] = []

    def __len__(self) -> int:
        return len(self._stored)

    def put(self, tokens: Sequence[int], state: Any) -> None:
        """Store the state of one row after ``tokens``; the oldest leave where there is no room."""
        size = sum(tensor.numel() * tensor.element_size() for _, tensor in state.tensors())
        if len(tokens) < self.least or size > self.max_bytes:
            return
        kept = [(one, its) for one, its in self._stored if list(tokens[: len(one.tokens)]) != list(one.tokens)]
        while kept and (len(kept) >= self.max_texts or sum(its for _, its in kept) + size > self.max_bytes):
            kept.pop(0)
        self._stored = [*kept, (Prefix(tuple(tokens), state), size)]

    def take(self, tokens: Sequence[int]) -> Prefix | None:
        """Return the longest stored beginning of ``tokens`` and a state of its own; None where there is none."""
        found = [
            (shared.tokens, at, shared)
            for at, (stored, _) in enumerate(self._stored)
            if (shared := shared_prefix(stored, tokens)) is not None and len(shared.tokens) >= self.least
        ]
        if not found:
            return None
        _, at, shared = max(found, key=lambda one: (len(one[0]), one[1]))
        self._stored.append(self._stored.pop(at))  # used last
        return Prefix(shared.tokens, shared.state.fork())
