"""Generation by sampling: each token is drawn from the model's distribution and fed back.

    temperature τ   p ∝ p^{1/τ}; 0 takes the likeliest token every time
    top-k           only the k likeliest tokens stay
    top-p           only the smallest set of likeliest tokens whose mass reaches p stays (Holtzman et al., 2020)

All samples are drawn side by side and all are kept, with their scores: whoever picks one can say out of how many. The
score of a text is the model's own log P(y) = Σ_t log P(y_t | y_<t), whatever the temperature.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ensue.core.errors import InputError


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
        for name, right, allowed in (
            ("tokens", self.tokens >= 1, "at least 1"),
            ("temperature", 0 <= self.temperature < float("inf"), "0 or more"),
            ("top_k", self.top_k >= 0, "0 (all) or more"),
            ("top_p", 0 < self.top_p <= 1, "above 0 and at most 1"),
            ("n", self.n >= 1, "at least 1"),
            ("seed", 0 <= self.seed < 2**63, "a number from 0 to 2^63 - 1"),
        ):
            if not right:
                raise InputError(f"--{name.replace('_', '-')} {getattr(self, name)} must be {allowed}")


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
    p = (log_probs / how.temperature).softmax(-1)
    if 0 < how.top_k < p.shape[-1]:
        kept = p.topk(how.top_k)
        p = torch.zeros_like(p).scatter(-1, kept.indices, kept.values)
        p = p / p.sum(-1, keepdim=True)
    if how.top_p < 1:
        ordered, index = p.sort(-1, descending=True)
        beyond = ordered.cumsum(-1) - ordered >= how.top_p  # the mass before a token already reaches p
        p = p.scatter(-1, index, ordered.masked_fill(beyond, 0.0))
    return p / p.sum(-1, keepdim=True)


@torch.no_grad()
def sample(model: Any, prompt: Tensor, how: Sampling, end: int | None = None) -> list[Sample]:
    """Draw ``how.n`` continuations of the tokens ``prompt`` (T,); a drawn ``end`` ends its row."""
    model.eval()
    device = prompt.device
    generator = torch.Generator().manual_seed(how.seed)
    output = model(prompt[None], model.start(1), want=("last",))
    first = torch.zeros(how.n, dtype=torch.long, device=device)
    logits, state = output.logits[:, -1].index_select(0, first), output.state.rows(first)
    drawn: list[list[int]] = [[] for _ in range(how.n)]
    scores: list[list[float]] = [[] for _ in range(how.n)]
    ended = [False] * how.n
    for _ in range(how.tokens):
        log_probs = logits.cpu().double().log_softmax(-1)
        chosen = torch.multinomial(narrowed(log_probs, how), 1, generator=generator)  # (n, 1)
        values = log_probs.gather(-1, chosen)[:, 0].tolist()
        for row, token in enumerate(chosen[:, 0].tolist()):
            if not ended[row]:
                ended[row] = token == end
                drawn[row].append(token)
                scores[row].append(values[row])
        if all(ended):
            break
        output = model(chosen.to(device), state, want=("last",))
        logits, state = output.logits[:, -1], output.state
    return [Sample(*parts) for parts in zip(drawn, scores, ended)]


@torch.no_grad()
def next_distribution(model: Any, prompt: Tensor) -> Tensor:
    """P(next token | prompt) (V,)."""
    model.eval()
    logits: Tensor = model(prompt[None], model.start(1), want=("last",)).logits
    return logits[0, -1].cpu().double().softmax(-1)
