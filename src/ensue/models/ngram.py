"""n-gram language models: each word is predicted from the n-1 words before it.

    P(x_t | x_1 … x_{t-1}) ≈ P(x_t | c),   c = x_{t-n+1} … x_{t-1}           (the Markov assumption)

    P(w | c) = p(cw)               if the n-gram cw was seen
             = b(c) · P(w | c')    else, where c' is c without its first word   (kneser-ney, backoff)
             = b(c)                else, a constant                             (add, mle)

``ngram_estimates`` computes p and b from counts: interpolated modified Kneser–Ney (Kneser and Ney 1995, Chen and
Goodman 1998), stupid backoff (Brants et al. 2007) divided by its sum, add-δ (Lidstone 1920) and relative frequencies.
No context crosses the end token, which is <s> in a context and </s> as the next word.

The state is the last n-1 tokens. There are no parameters and no gradient; the tables are buffers of any length, stay in
main memory, and can be memory-mapped.

Legend: B rows, T time, V vocabulary, n order, N nodes (n-grams of all orders), C contexts (nodes below order n).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any, Self, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from ensue.core.errors import InputError
from ensue.core.forks import in_forked_process
from ensue.models.language import LanguageModel
from ensue.models.ngram_config import LOOKUP_KINDS, Mode, NGramConfig
from ensue.models.ngram_counting import TrieCounter
from ensue.models.ngram_lookup import ADD, BACKOFF, Contexts, Ints, Tables, distributions, level_of, look_up, read
from ensue.models.ngram_scoring import score_interleaved, sizes_after
from ensue.models.ngram_tables import TABLES, find_mismatch
from ensue.nn.protocol import Output, Traits, Wants
from ensue.nn.recent import RecentTokens
from ensue.nn.state import State

__all__ = ["Mode", "NGram", "NGramConfig", "NGramCounter", "ngrams"]

MIN_THREAD_WORDS = 1 << 11
"""The fewest words to look up that are worth a thread of their own."""
Item = TypeVar("Item")


class NGram(LanguageModel):
    """A trie of n-grams with log probabilities and log back-off weights.

    A new model gives every word 1/V; ``counter`` returns what builds one from data.

    words, suffix, probability   (N,)     last word, node of the n-gram without its first word, log p
    offsets                      (C+1,)   where the children of each context begin (n-grams one word longer)
    backoff                      (C,)     log b
    starts                       (n+1,)   where each order begins
    scale                        (1,)     log Z of the empty context in mode ``backoff``
    """

    Config = NGramConfig
    reads = 1 << 13
    config: NGramConfig
    words: Tensor
    offsets: Tensor
    suffix: Tensor
    starts: Tensor
    probability: Tensor
    backoff: Tensor
    scale: Tensor

    def __init__(self, config: NGramConfig) -> None:
        super().__init__()
        self.config = config
        self.notes: list[str] = []
        size, contexts = config.vocabulary, config.vocabulary if config.order > 1 else 0
        constant = -math.log(size) if LOOKUP_KINDS[config.mode] == ADD else 0.0
        self.register_buffer("words", torch.arange(size, dtype=torch.int32))
        self.register_buffer("offsets", torch.full((contexts + 1,), size, dtype=torch.int32))
        self.register_buffer("suffix", torch.full((size,), -1, dtype=torch.int32))
        self.register_buffer("starts", torch.tensor([0] + [size] * config.order))
        self.register_buffer("probability", torch.full((size,), -math.log(size)))
        self.register_buffer("backoff", torch.full((contexts,), constant))
        self.register_buffer("scale", torch.zeros(1))

    @property
    def traits(self) -> Traits:
        """Context of n-1 tokens."""
        return Traits(context=self.config.order - 1)

    @property
    def counts(self) -> list[int]:
        """The number of different n-grams of each order; of order 1, all words of the vocabulary."""
        return [int(size) for size in self.starts.diff()]

    def counter(self) -> NGramCounter:
        """Return a counter that fits a model with this configuration."""
        return NGramCounter(self.config)

    def start(self, rows: int) -> RecentTokens:
        """Return the state at the beginning of a sentence: the end token, if there is one, is the context."""
        state = RecentTokens.empty(rows, self.config.order - 1)
        if self.config.end >= 0 and self.config.order > 1:
            state.tokens[:, -1] = self.config.end
        return state

    def forward(
        self, tokens: Tensor, state: State | None = None, lengths: Tensor | None = None, want: Wants = ("logits",)
    ) -> Output:
        """Return log P of every next word, (B, T, V); with "last" only after each row's last token, (B, 1, V)."""
        contexts, after = self._read(tokens, state, lengths)
        logits = None
        if "logits" in want or "last" in want:
            steps = slice(1, None) if "logits" in want else slice(-1, None)
            logits = self._distributions(contexts, steps).to(tokens.device)
        return Output(logits=logits, state=after)

    def log_prob(
        self, tokens: Tensor, targets: Tensor, state: State | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Return log P(targets_t | state, tokens_1…t), in nats (B, T), and the next state; padding is 0."""
        words = self._check(targets, lengths)
        if LOOKUP_KINDS[self.config.mode] == BACKOFF:
            return self._backoff_log_prob(tokens, words, state, lengths)
        (nodes, sizes), after = self._read(tokens, state, lengths)
        contexts = (nodes[:, 1:].ravel(), sizes[:, 1:].ravel())
        values = look_up(self._tables(), LOOKUP_KINDS[self.config.mode], contexts, words.ravel())
        result = torch.from_numpy(values).view(targets.shape).to(tokens.device)
        if lengths is not None:
            padding = torch.arange(tokens.shape[1], device=tokens.device) >= lengths[:, None]
            result = result.masked_fill(padding, 0.0)
        return result, after

    def _backoff_log_prob(
        self, tokens: Tensor, targets: Ints, state: State | None, lengths: Tensor | None
    ) -> tuple[Tensor, RecentTokens]:
        """``log_prob`` of modes that back off, with rows divided among threads."""
        values, real, past, after = self._inputs(tokens, state, lengths)
        result, sizes = np.zeros(values.shape, np.float32), np.zeros(len(values), np.int64)
        tables, end, steps = self._tables(), self.config.end, real.contiguous().numpy()

        def work(own: slice) -> None:
            before, known = (part[own] for part in past)
            nodes, _ = read(tables, end, (before, known), values[own, :0], steps[own])
            score_interleaved(tables, end, nodes[:, 0], values[own], targets[own], steps[own], result[own])
            sizes[own] = sizes_after(end, known, values[own], steps[own], before.shape[1])

        threads = min(torch.get_num_threads(), len(values), 1 + values.size // MIN_THREAD_WORDS)
        cuts = np.linspace(0, len(values), threads + 1).astype(int).tolist()
        parts = [slice(low, high) for low, high in pairwise(cuts)]
        if threads > 1:
            list(_pool(threads).map(work, parts))
        else:
            work(parts[0])
        return torch.from_numpy(result).to(tokens.device), self._next_state(after, sizes, tokens.device)

    def backoff_scores(self, context: Sequence[int], words: Sequence[int]) -> Tensor:
        """Return log S(w | context) of stupid backoff itself, which does not sum to one, for each of ``words``.

        S(w|c) = P(w|c) Z(c), and Z(c) = α Z(c') / b(c) up to the empty context.
        """
        if self.config.mode != "backoff":
            raise InputError(f"mode is {self.config.mode!r}", hint="only mode 'backoff' has these scores")
        most = self.config.order - 1
        tokens = torch.tensor([list(context)[max(len(context) - most, 0) :]], dtype=torch.int64)
        (nodes, sizes), _ = self._read(tokens, RecentTokens.empty(1, most), None)
        node, size = int(nodes[0, -1]), int(sizes[0, -1])
        targets = self._check(torch.tensor([list(words)], dtype=torch.int64), None).ravel()
        contexts = (np.full(len(targets), node), np.full(len(targets), size))
        log_prob = look_up(self._tables(), BACKOFF, contexts, targets)
        step = math.log(self.config.alpha)
        mass = float(self.scale) + step * (size - level_of(self.starts.numpy(), node))
        while node >= 0:
            mass += step - float(self.backoff[node])
            node = int(self.suffix[node])
        return torch.from_numpy(log_prob) + mass

    def adopt(self, tables: dict[str, Tensor]) -> Self:
        """Use these tables as they are, of any length; memory-mapped tables stay mapped."""
        wrong = find_mismatch(self.config, tables)
        if wrong:
            raise InputError(wrong, hint="the file may be cut short or belong to other settings")
        for name in TABLES:
            setattr(self, name, tables[name])
        return self

    def _read(self, tokens: Tensor, state: State | None, lengths: Tensor | None) -> tuple[Contexts, RecentTokens]:
        """Return the contexts (B, T+1) before the first token and after each token, and the next state."""
        values, real, past, after = self._inputs(tokens, state, lengths)
        contexts = read(self._tables(), self.config.end, past, values, real.contiguous().numpy())
        return contexts, self._next_state(after, contexts[1][:, -1].copy(), tokens.device)

    def _inputs(
        self, tokens: Tensor, state: State | None, lengths: Tensor | None
    ) -> tuple[Ints, Tensor, Contexts, RecentTokens]:
        """Return the tokens, the lengths of rows, the words before them and how many are known, and the words after."""
        rows, steps = tokens.shape
        before = self.start(rows) if state is None else cast(RecentTokens, state)
        values = self._check(tokens, lengths)
        real = torch.full((rows,), steps) if lengths is None else lengths.cpu().to(torch.int64)
        past = before.tokens.cpu()
        first = max(0, steps - past.shape[1]) if lengths is None else 0  # without padding the last tokens suffice
        _, after = RecentTokens(past).extend(torch.from_numpy(values[:, first:]), real - first)
        return values, real, (past.clamp(min=0).contiguous().numpy(), (past >= 0).sum(1).numpy()), after

    def _next_state(self, after: RecentTokens, sizes: Ints, device: torch.device) -> RecentTokens:
        """Return the next state, with as many words as each context has: none crosses the end token."""
        most = self.config.order - 1
        beyond = torch.arange(most) < (most - torch.from_numpy(sizes))[:, None]
        return RecentTokens(after.tokens.masked_fill(beyond, -1).to(device))

    def _check(self, tokens: Tensor, lengths: Tensor | None) -> Ints:
        """Return the tokens as an array, with 0 at padding; raise InputError for a token outside the vocabulary."""
        values = tokens.detach().cpu().to(torch.int64)
        if lengths is not None:
            values = values.masked_fill(torch.arange(tokens.shape[1]) >= lengths.cpu()[:, None], 0)
        for extreme in values.aminmax() if values.numel() else ():
            if not 0 <= int(extreme) < self.config.vocabulary:
                raise InputError(f"token {int(extreme)} is not in a vocabulary of {self.config.vocabulary}")
        return values.contiguous().numpy()

    def _tables(self) -> Tables:
        return Tables(*(getattr(self, name).numpy() for name in Tables._fields))

    def _distributions(self, contexts: Contexts, steps: slice) -> Tensor:
        nodes, sizes = (part[:, steps] for part in contexts)
        result = np.empty((nodes.size, self.config.vocabulary), np.float32)
        distributions(self._tables(), LOOKUP_KINDS[self.config.mode], (nodes.ravel(), sizes.ravel()), result)
        return torch.from_numpy(result).view(*nodes.shape, self.config.vocabulary)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Do nothing: the tables stay in main memory, in their own types, when a model is moved or cast."""
        return self

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Load tables of any length; with ``assign=True`` without copying them."""
        tables = {name: state_dict[prefix + name] for name in TABLES if prefix + name in state_dict}
        missing_keys.extend(prefix + name for name in TABLES if name not in tables)
        unexpected_keys.extend(key for key in state_dict if key.startswith(prefix) and key[len(prefix) :] not in TABLES)
        if len(tables) < len(TABLES):
            return
        wrong = find_mismatch(self.config, tables)
        if wrong:
            error_msgs.append(wrong)
            return
        assign = bool(local_metadata.get("assign_to_params_buffers", False))
        self.adopt({name: table if assign else table.detach().cpu().clone() for name, table in tables.items()})


class NGramCounter(TrieCounter):
    """Counts a token stream and builds an ``NGram`` from the counts.

    The stream is ``end w1 w2 end w3 … end``: it begins with the end token, and every sentence or document closes with
    one.

    >>> counter = NGramCounter(NGramConfig(vocabulary=4, order=2, end=0))
    >>> for done, total in counter.count(np.array([0, 1, 2, 0, 1, 3, 0])):
    ...     pass
    >>> counter.finish().counts
    [4, 5]
    """

    def finish(self) -> NGram:
        """Build the model of the orders counted so far and reset the counter."""
        config, tables, notes = self.tables()
        model = NGram(config).adopt(tables)
        model.notes = notes
        return model


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Return threads that are kept for the next call: a call may take less than a millisecond."""
    return ThreadPoolExecutor(threads)


in_forked_process(_pool.cache_clear)  # the threads are not there


def ngrams(tokens: Sequence[Item], order: int) -> list[tuple[Item, ...]]:
    """Return all n-grams of ``order`` tokens, in the order in which they begin.

    >>> ngrams("the students opened their".split(), 3)
    [('the', 'students', 'opened'), ('students', 'opened', 'their')]
    """
    if order < 1:
        raise InputError(f"order is {order}", hint="at least 1 is needed")
    return [tuple(tokens[i : i + order]) for i in range(len(tokens) - order + 1)]
