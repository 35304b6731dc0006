"""Sampling: each token is drawn from the model's distribution and fed back.

    temperature τ   p ∝ p^{1/τ}; 0 takes the most probable token every time (greedy search)
    top-k           keeps the k most probable tokens
    top-p           keeps the smallest set of most probable tokens with mass ≥ p (Holtzman et al., 2020)

All samples are drawn in one batch and returned with their scores. The score of a text is the model's own
log P(y) = Σ_t log P(y_t | y_<t), whatever the temperature.

Legend: N sentences, n samples of each, R rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ensue.core.errors import InputError, InvalidDistribution
from ensue.search.hypotheses import Hypothesis, SearchResult
from ensue.search.model_step import SearchModel, StepOutput, expand_start, model_step, select_rows, set_eval
from ensue.search.topk import fast_topk
from ensue.search.trace import Trace, ending

NUCLEUS_SIZES = (512, 4096)
"""Numbers of most probable tokens that are tried for a nucleus, before all tokens are sorted."""
MAX_SAMPLES = 10_000
"""Samples that are drawn at once, in rows of one batch."""
ALTERNATIVES = 3
"""The number of most probable tokens that a trace shows beside each drawn one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """Settings of sampling."""

    tokens: int = 100
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    n: int = 1

    def __post_init__(self) -> None:
        for name, value, valid, allowed in (
            ("max-tokens", self.tokens, self.tokens >= 1, "at least 1"),
            ("temperature", self.temperature, 0 <= self.temperature < float("inf"), "0 or more"),
            ("top-k", self.top_k, self.top_k >= 0, "0 (all) or more"),
            ("top-p", self.top_p, 0 < self.top_p <= 1, "above 0 and at most 1"),
            ("num-samples", self.n, 1 <= self.n <= MAX_SAMPLES, f"from 1 to {MAX_SAMPLES:,}"),
            ("seed", self.seed, 0 <= self.seed < 2**63, "a number from 0 to 2^63 - 1"),
        ):
            if not valid:
                raise InputError(f"--{name} {value} must be {allowed}")


@dataclass(frozen=True, slots=True)
class Sample:
    """A sampled continuation: its tokens, their log-probabilities, and whether the last one is an end token."""

    tokens: list[int]
    log_probs: list[float]
    ended: bool

    @property
    def log_prob(self) -> float:
        """log P of the whole continuation, in nats."""
        return sum(self.log_probs)

    @property
    def mean_log_prob(self) -> float:
        """1/t Σ log P, which does not favour short texts."""
        return self.log_prob / max(1, len(self.log_probs))


def filtered(log_probs: Tensor, how: Sampling) -> Tensor:
    """The distribution (B, V) to draw from, after temperature, top-k and top-p, normalised."""
    if how.temperature == 0:
        return torch.nn.functional.one_hot(log_probs.argmax(-1), log_probs.shape[-1]).to(log_probs.dtype)
    top = log_probs.amax(-1, keepdim=True)  # subtracted first: a tiny temperature would overflow
    p = ((log_probs - top) / how.temperature).softmax(-1)
    if 0 < how.top_k < p.shape[-1]:
        values, index = fast_topk(p, how.top_k)
        p = torch.zeros_like(p).scatter(-1, index, values)
        p = p / p.sum(-1, keepdim=True)
    if how.top_p < 1:
        p = torch.cat([_nucleus(row[None], how.top_p) for row in p])
    return p / p.sum(-1, keepdim=True)


def _nucleus(p: Tensor, mass: float) -> Tensor:
    """p (1, V) with 0 outside the smallest set of most probable tokens that has the mass."""
    ordered, index = _most_probable(p, mass)
    beyond = ordered.cumsum(-1) - ordered >= mass  # the tokens before it already have the mass
    return torch.zeros_like(p).scatter(-1, index, ordered.masked_fill(beyond, 0.0))


def next_tokens(log_probs: Tensor, how: Sampling, generator: torch.Generator, p: Tensor | None = None) -> Tensor:
    """A token for each row of log P (n, V), as (n, 1): the most probable, or drawn from the filtered ``p``."""
    if how.temperature > 0:
        return draw_from(filtered(log_probs, how) if p is None else p, generator)
    chosen = log_probs.argmax(-1, keepdim=True)
    if bool(log_probs.gather(-1, chosen).isnan().any()):  # argmax takes NaN for the largest
        raise InvalidDistribution
    return chosen


def draw_from(p: Tensor, generator: torch.Generator) -> Tensor:
    """Draw a token from each distribution (n, V), as (n, 1), by inverting its cumulative sum.

    A token of probability 0 is never drawn.
    """
    mass = p.cumsum(-1)
    if not bool(mass[:, -1].isfinite().all()):
        raise InvalidDistribution
    drawn = torch.rand(len(p), 1, dtype=p.dtype, generator=generator) * mass[:, -1:]
    return torch.searchsorted(mass, drawn, right=True).clamp_(max=p.shape[-1] - 1)


def _most_probable(p: Tensor, mass: float) -> tuple[Tensor, Tensor]:
    """The largest values of p (1, V) that together have at least the mass, largest first, and their indices.

    A few are mostly enough; finding them takes a tenth of the time of sorting all.
    """
    for count in NUCLEUS_SIZES:
        if count < p.shape[-1]:
            values, index = fast_topk(p, count)
            if float(values.sum()) >= mass:
                return values, index
    ordered = p.sort(-1, descending=True)
    return ordered.values, ordered.indices


def sample(model: Any, prompt: Tensor, how: Sampling, ends: Collection[int] = ()) -> list[Sample]:
    """Draw ``how.n`` continuations of the tokens ``prompt`` (T,) with a language model; each of ``ends`` ends one."""
    set_eval(model)
    sampler = _Sampler(how, ends, [how.tokens], trace=False)
    with torch.no_grad():
        sampler.run(model, model_step(model, prompt[None], model.start(1)))
    return [Sample(row.tokens, row.log_probs, not sampler.open(row)) for row in sampler.rows[0]]


def draw(
    model: SearchModel,
    state: Any,
    begin: int | Tensor,
    *,
    ends: Collection[int],
    longest: int | Tensor | None = None,
    how: Sampling,
    trace: bool = False,
) -> list[SearchResult]:
    """Draw ``how.n`` continuations of every row of ``state`` after it reads ``begin``, in the order of drawing.

    The samples of a sentence depend only on its index in the batch. ``longest`` defaults to ``how.tokens``.
    """
    set_eval(model)
    first, most = expand_start(begin, how.tokens if longest is None else longest, state)
    with torch.no_grad():
        return _Sampler(how, ends, most.tolist(), trace).run(model, model_step(model, first[:, None], state))


class _Row(NamedTuple):
    """A sample in progress: its tokens (the end token included), their log-probabilities, and its trace nodes."""

    tokens: list[int]
    log_probs: list[float]
    nodes: list[int]


class _Sampler:
    """Samples for a batch of N sentences, n rows each; a sentence leaves when all its rows have ended."""

    def __init__(self, how: Sampling, ends: Collection[int], longest: list[int], trace: bool) -> None:
        self.how, self.ends, self.longest = how, frozenset(ends), longest
        self.rows = [[_Row([], [], []) for _ in range(how.n)] for _ in longest]
        self.traces = [Trace("greedy" if how.temperature == 0 else "sampling") for _ in longest] if trace else None
        self.generators = [torch.Generator().manual_seed((how.seed + number) % 2**63) for number in range(len(longest))]

    def run(self, model: SearchModel, first: StepOutput) -> list[SearchResult]:
        """Draw token after token, beginning with the logits of each sentence (N, V)."""
        n, device = self.how.n, first.logits.device
        active = list(range(len(self.longest)))
        index = torch.arange(len(active), device=device).repeat_interleave(n)
        logits, state = first.logits.index_select(0, index), select_rows(first.state, index, len(active))
        while active:
            chosen = self._draw(logits, active)
            stay = [i for i, sentence in enumerate(active) if not self._done(sentence)]
            if len(stay) < len(active):
                index = torch.tensor([i * n + row for i in stay for row in range(n)], dtype=torch.long)
                active, chosen = [active[i] for i in stay], chosen[index]
                state = state.rows(index.to(device)) if active else state
            if active:
                logits, _, state = model_step(model, chosen.to(device), state)
        return [self._result(sentence) for sentence in range(len(self.longest))]

    def _draw(self, logits: Tensor, active: list[int]) -> Tensor:
        """The next token of every row, (R, 1), recorded if the row has not ended."""
        n = self.how.n
        log_probs = logits.cpu().double().log_softmax(-1)
        p = filtered(log_probs, self.how)
        by_sentence = zip(active, log_probs.view(len(active), n, -1), p.view(len(active), n, -1))
        chosen = torch.cat([next_tokens(rows, self.how, self.generators[i], kept) for i, rows, kept in by_sentence])
        values = log_probs.gather(-1, chosen)[:, 0].tolist()
        for at, token in enumerate(chosen[:, 0].tolist()):
            sentence = active[at // n]
            row = self.rows[sentence][at % n]
            if self.open(row):
                if self.traces is not None:
                    self._record(self.traces[sentence], row, token, log_probs[at], p[at])
                row.tokens.append(token)
                row.log_probs.append(values[at])
        return chosen

    def open(self, row: _Row) -> bool:
        """True if the row has not drawn an end token."""
        return not row.tokens or row.tokens[-1] not in self.ends

    def _done(self, sentence: int) -> bool:
        rows = self.rows[sentence]
        return len(max((row.tokens for row in rows), key=len)) == self.longest[sentence] or not any(
            map(self.open, rows)
        )

    def _record(self, trace: Trace, row: _Row, token: int, log_probs: Tensor, p: Tensor) -> None:
        """Add the drawn token to the trace, and the most probable of the others."""
        parent = row.nodes[-1] if row.nodes else None
        before = trace.nodes[parent].total if parent is not None else 0.0
        greedy = self.how.temperature == 0
        value = float(log_probs[token])
        row.nodes.append(trace.add(parent, token, value, before + value, "kept", "the best" if greedy else "drawn"))
        for other in log_probs.topk(min(ALTERNATIVES, len(log_probs))).indices.tolist():
            value = float(log_probs[other])
            if other != token and value > float("-inf"):
                cut = "not the best" if greedy else "outside top-k or top-p"
                trace.add(parent, other, value, before + value, "pruned", "not drawn" if p[other] > 0 else cut)

    def _result(self, sentence: int) -> SearchResult:
        """The samples of a sentence, and on request their trace."""
        drawn = []
        for row in self.rows[sentence]:
            ended, total = not self.open(row), sum(row.log_probs)
            drawn.append(Hypothesis(row.tokens[: len(row.tokens) - ended], row.log_probs, total, total, ended))
        if self.traces is None:
            return SearchResult(drawn)
        trace, best = self.traces[sentence], max(range(len(drawn)), key=lambda at: drawn[at].score)
        for at, (row, hypothesis) in enumerate(zip(self.rows[sentence], drawn)):
            why = ending(hypothesis.score, hypothesis.ended)
            of = f", the best of {len(drawn)}" if len(drawn) > 1 else ""
            trace.change(row.nodes[-1], "best" if at == best else "ended", why + of * (at == best))
            trace.paths.append(hypothesis.path(row.nodes))
        return SearchResult(drawn, trace)


@torch.no_grad()
def next_distribution(model: Any, prompt: Tensor) -> Tensor:
    """P(next token | prompt) (V,)."""
    model.eval()
    logits: Tensor = model(prompt[None], model.start(1), want=("last",)).logits
    return logits[0, -1].cpu().double().softmax(-1)
