"""Generation by sampling: each token is drawn from the model's distribution and fed back.

    temperature τ   p ∝ p^{1/τ}; 0 takes the likeliest token every time: greedy search
    top-k           only the k likeliest tokens stay
    top-p           only the smallest set of likeliest tokens whose mass reaches p stays (Holtzman et al., 2020)

All samples are drawn side by side and all are kept, with their scores: whoever picks one can say out of how many. The
score of a text is the model's own log P(y) = Σ_t log P(y_t | y_<t), whatever the temperature.

Legend: N sentences, n samples of each, R rows, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, overload

import torch
from torch import Tensor

from ensue.core.errors import InputError, NoDistribution
from ensue.search.hypotheses import Found, Hypothesis
from ensue.search.model_step import Model, Reading, lined_up, picked, quiet, read
from ensue.search.topk import best
from ensue.search.trace import Trace, ending

FEW = (512, 4096)
"""How many of the likeliest tokens are looked at for a nucleus, before all are."""
ALTERNATIVES = 3
"""How many of the likeliest tokens a trace shows beside each drawn one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """How to draw."""

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
            ("num-samples", self.n, self.n >= 1, "at least 1"),
            ("seed", self.seed, 0 <= self.seed < 2**63, "a number from 0 to 2^63 - 1"),
        ):
            if not valid:
                raise InputError(f"--{name} {value} must be {allowed}")


@dataclass(frozen=True, slots=True)
class Sample:
    """One drawn continuation: its tokens, the log-probability of each, and whether the model ended it."""

    tokens: list[int]
    log_probs: list[float]
    ended: bool

    @property
    def log_prob(self) -> float:
        """log P of the whole continuation, in nats."""
        return sum(self.log_probs)

    @property
    def mean_log_prob(self) -> float:
        """1/t Σ log P: so that a longer one can win."""
        return self.log_prob / max(1, len(self.log_probs))


def narrowed(log_probs: Tensor, how: Sampling) -> Tensor:
    """The distribution (B, V) to draw from, after temperature, top-k and top-p; it sums to one."""
    if how.temperature == 0:
        return torch.nn.functional.one_hot(log_probs.argmax(-1), log_probs.shape[-1]).to(log_probs.dtype)
    top = log_probs.amax(-1, keepdim=True)  # taken away first: what is divided by next to nothing stays a number
    p = ((log_probs - top) / how.temperature).softmax(-1)
    if 0 < how.top_k < p.shape[-1]:
        values, index = best(p, how.top_k)
        p = torch.zeros_like(p).scatter(-1, index, values)
        p = p / p.sum(-1, keepdim=True)
    if how.top_p < 1:
        p = torch.cat([_nucleus(row[None], how.top_p) for row in p])
    return p / p.sum(-1, keepdim=True)


def _nucleus(p: Tensor, mass: float) -> Tensor:
    """p (1, V) without what is beyond the smallest set of likeliest tokens that make up a mass."""
    ordered, index = _likeliest(p, mass)
    beyond = ordered.cumsum(-1) - ordered >= mass  # the mass before a token already reaches it
    return torch.zeros_like(p).scatter(-1, index, ordered.masked_fill(beyond, 0.0))


def next_tokens(log_probs: Tensor, how: Sampling, generator: torch.Generator, p: Tensor | None = None) -> Tensor:
    """A token of each log P (n, V), (n, 1): the likeliest, or drawn from ``p``, which is what is left of it."""
    if how.temperature > 0:
        return chosen_from(narrowed(log_probs, how) if p is None else p, generator)
    chosen = log_probs.argmax(-1, keepdim=True)
    if bool(log_probs.gather(-1, chosen).isnan().any()):  # it would be taken for the largest
        raise NoDistribution
    return chosen


def chosen_from(p: Tensor, generator: torch.Generator) -> Tensor:
    """A token of each distribution (n, V), (n, 1): the first up to which there is more mass than a number drawn from
    [0, 1). Of a token without any there is never.
    """
    mass = p.cumsum(-1)
    if not bool(mass[:, -1].isfinite().all()):
        raise NoDistribution
    drawn = torch.rand(len(p), 1, dtype=p.dtype, generator=generator) * mass[:, -1:]
    return torch.searchsorted(mass, drawn, right=True).clamp_(max=p.shape[-1] - 1)


def _likeliest(p: Tensor, mass: float) -> tuple[Tensor, Tensor]:
    """The largest of p (1, V), largest first, and where they are: so many that they make up a mass.

    Mostly a few do, and to find them takes a tenth of the time that it takes to sort all.
    """
    for count in FEW:
        if count < p.shape[-1]:
            values, index = best(p, count)
            if float(values.sum()) >= mass:
                return values, index
    found = p.sort(-1, descending=True)
    return found.values, found.indices


@overload
def sample(model: Any, prompt: Tensor, how: Sampling, end: int | None = None) -> list[Sample]: ...
@overload
def sample(
    model: Any, prompt: Tensor, how: Sampling, end: int | None = None, *, trace: Literal[True]
) -> tuple[list[Sample], Trace]: ...
def sample(
    model: Any, prompt: Tensor, how: Sampling, end: int | None = None, *, trace: bool = False
) -> list[Sample] | tuple[list[Sample], Trace]:
    """Draw ``how.n`` continuations of the tokens ``prompt`` (T,) with a language model; a drawn ``end`` ends its row.

    With ``trace`` also answer what was drawn and what was not.
    """
    quiet(model)
    with torch.no_grad():
        reading = read(model, prompt[None], model.start(1))
        found = _Drawing(how, end, [how.tokens], trace).run(model, reading)[0]
    ends = [] if end is None else [end]
    samples = [Sample(one.tokens + ends * one.ended, one.log_probs, one.ended) for one in found.hypotheses]
    return (samples, found.trace) if found.trace is not None else samples


def draw(
    model: Model,
    state: Any,
    begin: int | Tensor,
    *,
    end: int | None,
    longest: int | Tensor | None = None,
    how: Sampling,
    trace: bool = False,
) -> list[Found]:
    """Draw ``how.n`` continuations of every row of ``state`` after it reads ``begin``, in the order of drawing.

    What is drawn for a sentence depends on its own place in the batch alone. ``longest`` is ``how.tokens`` unless it
    is given.
    """
    quiet(model)
    first, most = lined_up(begin, how.tokens if longest is None else longest, state)
    with torch.no_grad():
        return _Drawing(how, end, most.tolist(), trace).run(model, read(model, first[:, None], state))


class _Row(NamedTuple):
    """A sample as it grows: its tokens (the end mark included), their log-probabilities, and its nodes in a trace."""

    tokens: list[int]
    log_probs: list[float]
    nodes: list[int]


class _Drawing:
    """Draws for N sentences side by side, n rows of each; a sentence whose rows have all ended leaves."""

    def __init__(self, how: Sampling, end: int | None, longest: list[int], trace: bool) -> None:
        self.how, self.end, self.longest = how, end, longest
        self.rows = [[_Row([], [], []) for _ in range(how.n)] for _ in longest]
        self.traces = [Trace("greedy" if how.temperature == 0 else "sampling") for _ in longest] if trace else None
        self.generators = [torch.Generator().manual_seed((how.seed + number) % 2**63) for number in range(len(longest))]

    def run(self, model: Model, reading: Reading) -> list[Found]:
        """Draw token after token, from what the model says of each sentence (N, V)."""
        n, device = self.how.n, reading.logits.device
        here = list(range(len(self.longest)))
        index = torch.arange(len(here), device=device).repeat_interleave(n)
        logits, state = reading.logits.index_select(0, index), picked(reading.state, index, len(here))
        while here:
            chosen = self._draw(logits, here)
            stay = [place for place, sentence in enumerate(here) if not self._done(sentence)]
            if len(stay) < len(here):
                index = torch.tensor([place * n + i for place in stay for i in range(n)], dtype=torch.long)
                here, chosen = [here[place] for place in stay], chosen[index]
                state = state.rows(index.to(device)) if here else state
            if here:
                logits, _, state = read(model, chosen.to(device), state)
        return [self._found(sentence) for sentence in range(len(self.longest))]

    def _draw(self, logits: Tensor, here: list[int]) -> Tensor:
        """The next token of every row, (R, 1), noted where the row has not ended."""
        n = self.how.n
        log_probs = logits.cpu().double().log_softmax(-1)
        p = narrowed(log_probs, self.how)
        own = zip(here, log_probs.view(len(here), n, -1), p.view(len(here), n, -1))
        chosen = torch.cat([next_tokens(rows, self.how, self.generators[one], left) for one, rows, left in own])
        values = log_probs.gather(-1, chosen)[:, 0].tolist()
        for at, token in enumerate(chosen[:, 0].tolist()):
            sentence = here[at // n]
            row = self.rows[sentence][at % n]
            if self._open(row):
                if self.traces is not None:
                    self._note(self.traces[sentence], row, token, log_probs[at], p[at])
                row.tokens.append(token)
                row.log_probs.append(values[at])
        return chosen

    def _open(self, row: _Row) -> bool:
        return not row.tokens or row.tokens[-1] != self.end

    def _done(self, sentence: int) -> bool:
        rows = self.rows[sentence]
        return len(max((row.tokens for row in rows), key=len)) == self.longest[sentence] or not any(
            map(self._open, rows)
        )

    def _note(self, trace: Trace, row: _Row, token: int, log_probs: Tensor, p: Tensor) -> None:
        """Write down what was drawn, and the likeliest of what was not."""
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

    def _found(self, sentence: int) -> Found:
        """The samples of a sentence, and how they were drawn."""
        drawn = []
        for row in self.rows[sentence]:
            ended, total = not self._open(row), sum(row.log_probs)
            drawn.append(Hypothesis(row.tokens[: len(row.tokens) - ended], row.log_probs, total, total, ended))
        if self.traces is None:
            return Found(drawn)
        trace, best = self.traces[sentence], max(range(len(drawn)), key=lambda at: drawn[at].score)
        for at, (row, one) in enumerate(zip(self.rows[sentence], drawn)):
            why = ending(one.score, one.ended)
            of = f", the best of {len(drawn)}" if len(drawn) > 1 else ""
            trace.change(row.nodes[-1], "best" if at == best else "ended", why + of * (at == best))
            trace.paths.append(one.path(row.nodes))
        return Found(drawn, trace)


@torch.no_grad()
def next_distribution(model: Any, prompt: Tensor) -> Tensor:
    """P(next token | prompt) (V,)."""
    model.eval()
    logits: Tensor = model(prompt[None], model.start(1), want=("last",)).logits
    return logits[0, -1].cpu().double().softmax(-1)
