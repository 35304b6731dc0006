"""Log-likelihoods of continuations: log P(continuation | context) = Σ_t log P(y_t | context, y_<t).

What requests share is read once: a prefix that all contexts of a group begin with (their shots), then each context, of
which every continuation gets a copy of the state. Contexts of similar length are read in one batch.

A context longer than the model's is cut on the left. A continuation longer than the model's context is scored in pieces
of half of it, each after as many tokens before it as fit.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ensue.core.events import Report, silent
from ensue.data.length_grouping import batch_boundaries
from ensue.models.model import LOGITS_AT_ONCE, Model
from ensue.search.model_step import select_rows

BATCH_TOKENS = 6144
"""Maximum number of tokens of a batch, contexts included. It bounds the memory of key–value caches."""
MIN_SHARED = 16
"""A prefix of fewer tokens is read again with each context."""

Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """A continuation to score after a context of one or more tokens."""

    context: Tokens
    continuation: Tokens
    group: Hashable = None
    """Requests of a group may begin with the same tokens."""


@dataclass(frozen=True, slots=True)
class ContinuationScore:
    """The log-likelihood of a continuation in nats, and whether each of its tokens is the most probable one."""

    log_prob: float
    greedy: bool | None = None
    cut: bool = False
    """True if the context was cut."""


def pieces(context: Tokens, continuation: Tokens, size: int | None) -> list[tuple[Tokens, Tokens]]:
    """Split a request for a model that sees ``size`` tokens; the input of each piece is all but its last token.

    >>> pieces((1, 2, 3), (4, 5), None), pieces((1, 2, 3), (4, 5), 3)
    ([((1, 2, 3), (4, 5))], [((2, 3), (4, 5))])
    >>> pieces((1, 2), (3, 4, 5, 6, 7), 4)
    [((1, 2), (3, 4)), ((2, 3, 4), (5, 6)), ((3, 4, 5, 6), (7,))]
    """
    if size is None:
        return [(context, continuation)]
    whole, step = context + continuation, len(continuation) if len(continuation) <= size else max(1, size // 2)
    found = []
    for start in range(len(context), len(whole), step):
        piece = whole[start : start + step]
        found.append((whole[max(0, start + len(piece) - size - 1) : start], piece))
    return found


def window_size(model: Any) -> int | None:
    """Return how many tokens a model with a sliding window reads at once; None if it carries its state on."""
    size: int | None = model.traits.context if getattr(model, "slides", False) else None
    return size


def continuation_scores(
    model: Any, requests: Sequence[Request], *, greedy: bool = False, report: Report = silent
) -> list[ContinuationScore]:
    """Score all requests; with ``greedy`` also compare with the most probable tokens."""
    model.eval()
    size = window_size(model)
    split = [pieces(one.context, one.continuation, size) for one in requests]
    groups: dict[Hashable, dict[Tokens, dict[Tokens, tuple[float, bool]]]] = {}
    for one, parts in zip(requests, split):
        for context, continuation in parts:
            groups.setdefault(one.group, {}).setdefault(context, {})[continuation] = (0.0, False)
    total, done = sum(len(some) for contexts in groups.values() for some in contexts.values()), 0
    for contexts in groups.values():
        for batch in _score_group(model, contexts, greedy):
            done += batch
            report("progress", {"done": done, "total": total})
    scores = []
    for one, parts in zip(requests, split):
        found = [groups[one.group][context][continuation] for context, continuation in parts]
        most_probable = all(right for _, right in found) if greedy else None
        cut = parts[0][0] != one.context
        scores.append(ContinuationScore(sum(value for value, _ in found), most_probable, cut))
    return scores


def shared_prefix(contexts: Sequence[Tokens]) -> Tokens:
    """Return the tokens that all contexts begin with, at least two before the end of the shortest.

    >>> shared_prefix([(1, 2, 3, 4, 5), (1, 2, 3, 4, 6), (1, 2, 3, 4)])
    (1, 2)
    """
    low, high = min(contexts), max(contexts)
    same = next((n for n, (a, b) in enumerate(zip(low, high)) if a != b), min(len(low), len(high)))
    return low[: max(0, min(same, min(map(len, contexts)) - 2))]


@torch.no_grad()
def _score_group(model: Any, contexts: dict[Tokens, dict[Tokens, tuple[float, bool]]], greedy: bool) -> Iterator[int]:
    """Score the continuations of all contexts of a group; yield the number of continuations of each batch."""
    for batch, state in _read_contexts(model, contexts):
        rows = [(n, continuation) for n, context in enumerate(batch) for continuation in contexts[context]]
        rows.sort(key=lambda row: len(row[1]))
        sizes = [len(batch[n]) + len(continuation) for n, continuation in rows]
        cuts = [0, *batch_boundaries(sizes, BATCH_TOKENS), len(rows)]
        for part in (rows[low:high] for low, high in pairwise(cuts)):
            index = torch.tensor([n for n, _ in part])
            read = [(batch[n][-1], *continuation[:-1]) for n, continuation in part]
            x, y = _padded(read), _padded([continuation for _, continuation in part])
            lengths = torch.tensor([len(continuation) for _, continuation in part])
            forked = state.fork() if len(cuts) > 2 else state
            values, right = _log_probs(model, x, y, select_rows(forked, index, len(batch)), lengths, greedy)
            for (n, continuation), value, one in zip(part, values, right):
                contexts[batch[n]][continuation] = (value, one)
            yield len(part)


def _log_probs(
    model: Any, x: Tensor, y: Tensor, state: Any, lengths: Tensor, greedy: bool
) -> tuple[list[float], list[bool]]:
    """log P of each row's targets, and whether all of them are the most probable tokens."""
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    x, y = x.to(device), y.to(device)
    padding = None if bool((lengths == x.shape[1]).all()) else lengths.to(device)
    if not greedy:
        return _sums(model, x, y, state, padding), [False] * len(x)
    log_p = model(x, state, padding, want=("logits", "hidden")).logits.double().log_softmax(-1)
    real = torch.arange(x.shape[1], device=device) < lengths.to(device)[:, None]
    values = log_p.gather(-1, y[..., None])[..., 0].masked_fill(~real, 0.0)
    right = ((log_p.argmax(-1) == y) | ~real).all(1)
    return values.sum(1).tolist(), right.tolist()


def _sums(model: Any, x: Tensor, y: Tensor, state: Any, lengths: Tensor | None) -> list[float]:
    """Σ log P of each row's targets, with a softmax in float64: long sums show the rounding of float32."""
    if type(model).log_prob is not Model.log_prob:  # an n-gram has no logits, and float64 already
        sums: list[float] = model.log_prob(x, y, state, lengths)[0].double().sum(1).tolist()
        return sums
    hidden = model(x, state, lengths, want=("hidden",)).hidden
    real = torch.ones_like(y, dtype=torch.bool)
    if lengths is not None:
        real = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
    step, found = max(1, LOGITS_AT_ONCE // 4 // model.config.vocabulary), []
    for h, targets in zip(torch.split(hidden[real], step), torch.split(y[real], step)):
        found.append(model.logits(h).double().log_softmax(-1).gather(-1, targets[:, None])[:, 0])
    values = torch.zeros(y.shape, dtype=torch.float64, device=y.device).masked_scatter(real, torch.cat(found))
    result: list[float] = values.sum(1).tolist()
    return result


def _read_contexts(model: Any, groups: Mapping[Tokens, Collection[Tokens]]) -> Iterator[tuple[list[Tokens], Any]]:
    """Yield batches of contexts with the state after all of their tokens but the last.

    A batch has as many contexts as have room together with their continuations. Hidden states are asked for, so that
    one token runs through the layers too: a decode program of 4-bit weights rounds to about 1e-3.
    """
    contexts = list(groups)
    prefix = shared_prefix(contexts) if len(contexts) > 1 else ()
    prefix = prefix if len(prefix) >= MIN_SHARED else ()
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    start = model.start(1)
    if prefix:
        start = model(torch.tensor([prefix], device=device), start, want=("hidden",)).state
    order = sorted(contexts, key=lambda context: (len(context) == 1, len(context)))
    widths = [sum(len(context) + len(one) for one in groups[context]) for context in order]
    cuts = batch_boundaries(widths, BATCH_TOKENS)
    first_single = next((n for n, context in enumerate(order) if len(context) == 1), len(order))
    for rows in np.split(np.arange(len(order)), sorted({*cuts, first_single} - {0, len(order)})):
        batch = [order[row] for row in rows]
        state = start.fork().rows(torch.zeros(len(batch), dtype=torch.long, device=device))
        rest = [context[len(prefix) : -1] for context in batch]
        if rest[0]:
            lengths = torch.tensor([len(one) for one in rest], device=device)
            padding = None if bool((lengths == lengths.max()).all()) else lengths
            state = model(_padded(rest).to(device), state, padding, want=("hidden",)).state
        yield batch, state


def _padded(rows: Sequence[Tokens]) -> Tensor:
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
