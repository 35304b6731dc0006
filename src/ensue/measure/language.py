"""Evaluate a language model: perplexity per token, word and byte, and bits per byte.

    nll          = −1/N Σ_t log P(x_t | x_<t)            the mean, in nats per token (the sum is nll_total)
    perplexity   = ∏_t (1 / P(x_t | x_<t))^{1/N} = exp(nll)
    bits/byte    = (−Σ_t log2 P(x_t | x_<t) + surcharge) / bytes of the original text

Newlines and end tokens count. Information that a tokenizer loses (unknown words, white space) is charged in bits, so
that figures of different tokenizers can be compared. A uniform model over V tokens has a perplexity of exactly V.

A long text is read as several parallel streams. Each begins with the text's first token, the end token, and reads a
warm-up of preceding tokens before those that it scores. One stream reads the text from start to end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from ensue.core.errors import InputError
from ensue.core.events import Report, silent
from ensue.train.ranks import SINGLE, Ranks

CHUNK = 256
STREAM_TOKENS = 4096
MAX_STREAMS = 32
WARM_UP = 256
WINDOW, BATCH_WINDOWS = 128, 16


@dataclass(frozen=True, slots=True)
class LanguageScore:
    """Figures of a language model on a text."""

    bits_per_byte: float | None
    perplexity: dict[str, float]
    nll: float
    nll_total: float
    tokens: int
    words: int
    bytes: int
    unknown: int
    surcharge_bits: float
    streams: int
    pseudo: bool = False
    """True for bidirectional models: a pseudo-likelihood, without bits per byte."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def perplexity(log_probs: np.ndarray | list[float]) -> float:
    """exp of the mean negative log-probability (natural logarithms).

    >>> round(perplexity([math.log(1 / 7)] * 5), 12)
    7.0
    """
    return math.exp(-math.fsum(log_probs) / len(log_probs))


def language_score(
    nll_total: float,
    *,
    tokens: int,
    words: int,
    size: int,
    unknown: int,
    surcharge: float,
    streams: int,
    pseudo: bool = False,
) -> LanguageScore:
    """All figures, from the sum of −log P over the tokens of a text."""
    whole = nll_total + surcharge * math.log(2)
    return LanguageScore(
        bits_per_byte=None if pseudo else whole / math.log(2) / size,
        perplexity={"token": _exp(nll_total / tokens), "word": _exp(whole / words), "byte": _exp(whole / size)},
        nll=nll_total / tokens,
        nll_total=nll_total,
        tokens=tokens,
        words=words,
        bytes=size,
        unknown=unknown,
        surcharge_bits=surcharge,
        streams=streams,
        pseudo=pseudo,
    )


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def stream_count(tokens: int) -> int:
    """The number of parallel streams for a text of this length."""
    return max(1, min(MAX_STREAMS, tokens // STREAM_TOKENS))


def log_probs(model: Any, tokens: np.ndarray, streams: int = 0, report: Report = silent) -> np.ndarray:
    """log P(x_t | x_<t) in nats for t = 1 … N of tokens x_0 … x_N, in float64; x_0 is only read."""
    result = np.zeros(len(tokens) - 1)
    for start, values in log_prob_pieces(model, tokens, streams, report):
        result[start : start + len(values)] = values
    return result


def total_log_prob(
    model: Any, tokens: np.ndarray, streams: int = 0, report: Report = silent, ranks: Ranks = SINGLE
) -> float:
    """Σ_t log P(x_t | x_<t) in nats, summed while the text is read, so that it may have any length.

    With several ranks, each reads some of the streams.
    """
    pieces = log_prob_pieces(model, tokens, streams, report, ranks)
    return ranks.total(math.fsum(float(values.sum()) for _, values in pieces))


def log_prob_pieces(
    model: Any, tokens: np.ndarray, streams: int = 0, report: Report = silent, ranks: Ranks = SINGLE
) -> Iterator[tuple[int, np.ndarray]]:
    """The log-probabilities in pieces, each with its start in the text: every token once, in any order.

    With several ranks, each yields its own pieces.
    """
    if model.traits.steps:
        return stream_pieces(model, tokens, streams or stream_count(len(tokens) - 1), report, ranks)
    return window_pieces(model, tokens, report, ranks)


@dataclass(frozen=True)
class RowStarts:
    """Start positions of rows in a text, which ranks share."""

    begins: np.ndarray

    def __len__(self) -> int:
        return len(self.begins)

    def select(self, rows: slice) -> RowStarts:
        """Some of the rows."""
        return RowStarts(self.begins[rows])


@torch.no_grad()
def stream_pieces(
    model: Any, tokens: np.ndarray, streams: int, report: Report = silent, ranks: Ranks = SINGLE
) -> Iterator[tuple[int, np.ndarray]]:
    """Pieces of log P(x_t | x_<t), one row per stream."""
    model.eval()
    count = len(tokens) - 1
    if streams < 0:
        raise InputError(f"--streams {streams} must be 0 or more")
    if streams > max(1, count):
        raise InputError(f"--streams {streams} is more than the text's {count} tokens")
    warm = 0 if streams == 1 else min(count // (streams + 1), max(_warm_up(model), model.traits.context or 0))
    share = -(-(count - warm) // streams)
    device, chunk = next((p.device for p in model.parameters()), torch.device("cpu")), getattr(model, "reads", CHUNK)
    # stream i reads warm + share tokens and scores the last share of them; the first stream scores all it reads
    local, reduction = ranks.local_batch(RowStarts(np.arange(streams) * share))
    begins, state = local.begins, model.start(len(local))
    for low in range(0, warm + share, chunk):
        high = min(low + chunk, warm + share)
        index = np.minimum(
            begins[:, None] + np.arange(low, high + 1), count
        )  # past the end, the last token is repeated
        read = torch.from_numpy(tokens[index].astype(np.int64)).to(device)
        x, y = read[:, :-1].contiguous(), read[:, 1:].contiguous()
        if low == 0 and warm:
            x[:, 0] = int(tokens[0])  # each stream begins like the text: some models do not recover
        values, state = model.log_prob(x, y, state)
        for begin, row in zip(begins.tolist(), values.cpu().double().numpy()):
            first, last = low if begin == 0 else max(low, warm), min(high, count - begin)
            if first < last and not reduction.idle:
                yield begin + first, row[first - low : last - low]
        report("progress", {"done": min(count, high * streams), "total": count})


def _warm_up(model: Any) -> int:
    """Tokens that a stream reads before those that it scores; a model with a memory fills it."""
    return max(WARM_UP, getattr(model, "warm_up", 0))


@torch.no_grad()
def most_probable(model: Any, tokens: np.ndarray, count: int) -> list[list[tuple[int, float]]]:
    """The most probable tokens at each position but the first, with their log P, best first."""
    model.eval()
    state, rows = model.start(1), []
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    for low in range(0, len(tokens) - 1 if count else 0, CHUNK):
        piece = torch.from_numpy(tokens[low : min(low + CHUNK, len(tokens) - 1)].astype(np.int64)).to(device)
        output = model(piece[None], state)
        best = output.logits[0].double().log_softmax(-1).topk(min(count, output.logits.shape[-1]))
        rows += [list(zip(*row)) for row in zip(best.indices.tolist(), best.values.tolist())]
        state = output.state
    return rows or [[] for _ in tokens[1:]]


@torch.no_grad()
def window_pieces(
    model: Any, tokens: np.ndarray, report: Report = silent, ranks: Ranks = SINGLE
) -> Iterator[tuple[int, np.ndarray]]:
    """Pieces of log P(x_t | all others in its window), in batches of windows."""
    model.eval()
    device = next(p.device for p in model.parameters())
    size, count = WINDOW * BATCH_WINDOWS, len(tokens) - 1
    for at in range(1, len(tokens), size):
        local, reduction = ranks.local_batch(RowStarts(np.arange(at, min(at + size, len(tokens)), WINDOW)))
        first, last = int(local.begins[0]), min(int(local.begins[-1]) + WINDOW, len(tokens))
        piece = torch.from_numpy(tokens[first:last].astype(np.int64)).to(device)
        rows = torch.nn.functional.pad(piece, (0, -len(piece) % WINDOW)).view(-1, WINDOW)
        lengths = (len(piece) - torch.arange(len(rows), device=device) * WINDOW).clamp(max=WINDOW)
        values = model.log_prob(rows, rows, None, lengths)[0]
        if not reduction.idle:
            yield first - 1, values.flatten()[: len(piece)].cpu().double().numpy()
        report("progress", {"done": min(count, at - 1 + size), "total": count})
