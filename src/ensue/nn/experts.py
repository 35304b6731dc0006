"""A mixture of experts in place of a block's feed-forward network: each token goes to a few of many networks.

    p = softmax(W_g x)                                      the gate, over E experts
    g_i = p_i / Σ_{j ∈ top-k} p_j  for i among the k largest of p, else 0          (k > 1; for k = 1 g_i = p_i)
    y = Σ_i g_i FFN_i(x)                                    only k of E are computed

    balance = E Σ_i f_i P_i                                 f_i the share of tokens sent to i, P_i the mean of p_i

Sparse gates are from Shazeer et al. (2017), top-k that is renormalised from GShard (Lepikhin et al., 2020) and Mixtral,
k = 1 with g_i = p_i and the form of the balance from Switch (Fedus et al., 2021): with g_i = 1 no gate would learn.
The balance is 1 if all experts get the same number of tokens and E if one gets all; training adds it, times a weight,
to its loss. With several ranks f is counted over all of them; no gradient passes through a count, and the ranks' means
of p add up to the balance of the whole batch.
A noisy gate (Shazeer et al., equation 4) has W_g x + ε ∘ softplus(W_n x), ε ~ N(0, 1), during training.

There is no capacity limit: an expert takes all tokens that are sent to it, so the output of a token does not depend on
the other tokens of its batch, and the laws hold.

Legend: M tokens, D width, E experts, k experts of each token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.kernels.experts import mix_experts

_balances: ContextVar[list[Tensor] | None] = ContextVar("balances", default=None)


@contextmanager
def balances() -> Iterator[list[Tensor]]:
    """Collect the balance of every mixture in training mode, in order.

    >>> from ensue.nn.feed_forward import FeedForward
    >>> mixture = Experts(Gate(8, 4), [FeedForward(8, 16) for _ in range(4)], active=2)
    >>> with balances() as found:
    ...     y = mixture(torch.randn(3, 5, 8))
    >>> y.shape, len(found), bool(found[0] >= 0.5)
    (torch.Size([3, 5, 8]), 1, True)
    """
    found: list[Tensor] = []
    token = _balances.set(found)
    try:
        yield found
    finally:
        _balances.reset(token)


class Gate(nn.Module):
    """W_g x: a score for each expert."""

    def __init__(self, width: int, experts: int) -> None:
        super().__init__()
        self.want = nn.Linear(width, experts, bias=False)  # W_g

    def forward(self, x: Tensor) -> Tensor:
        """(M, D) → (M, E)."""
        scores: Tensor = self.want(x)
        return scores


class NoisyGate(Gate):
    """W_g x + ε ∘ softplus(W_n x) during training."""

    def __init__(self, width: int, experts: int) -> None:
        super().__init__(width, experts)
        self.noise = nn.Linear(width, experts, bias=False)  # W_n

    def forward(self, x: Tensor) -> Tensor:
        """(M, D) → (M, E)."""
        scores: Tensor = self.want(x)
        return scores + torch.randn_like(scores) * F.softplus(self.noise(x)) if self.training else scores


GATES: dict[str, type[Gate]] = {"plain": Gate, "noisy": NoisyGate}
Added = Callable[[Tensor], Tensor]
"""Sums how often each expert was chosen (E,) over all ranks that have rows of the batch."""


def balance_of(probabilities: Tensor, chosen: Tensor, added: Added | None = None) -> Tensor:
    """E Σ_i f_i P_i of p (M, E) and the chosen experts (M, k); ``added`` sums counts over ranks."""
    experts = probabilities.shape[1]
    counts = torch.zeros_like(probabilities[0]).index_add(0, chosen.flatten(), probabilities.new_ones(chosen.numel()))
    counts = counts if added is None else added(counts)
    return experts * (counts / counts.sum() * probabilities.mean(0)).sum()


class Experts(nn.Module):
    """y = Σ_i g_i FFN_i(x), the same at every position."""

    def __init__(self, gate: Gate, experts: Sequence[nn.Module], active: int) -> None:
        super().__init__()
        assert 0 < active <= len(experts)
        self.gate, self.active = gate, active
        self.experts = nn.ModuleList(experts)
        self.added: Added | None = None
        """Sums the counts of all ranks that have rows of the batch; None for one rank."""

    def extra_repr(self) -> str:
        """The text that ``print(model)`` shows."""
        return f"active={self.active}"

    @property
    def idle(self) -> int:
        """The number of parameters that a token does not use."""
        each = sum(p.numel() for p in self.experts[0].parameters())
        return (len(self.experts) - self.active) * each

    def route(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """g (M, k) of x (M, D), the experts that are chosen (M, k), and p (M, E)."""
        scores = self.gate(x)
        probabilities = (scores if scores.dtype == torch.float64 else scores.float()).softmax(-1)
        weights, chosen = probabilities.topk(self.active, dim=-1)
        if self.active > 1:
            weights = weights / weights.sum(-1, keepdim=True)
        return weights, chosen, probabilities

    def forward(self, x: Tensor) -> Tensor:
        """(…, D) → (…, D)."""
        flat = x.reshape(-1, x.shape[-1])
        weights, chosen, probabilities = self.route(flat)
        if self.training and torch.is_grad_enabled() and len(flat):
            balance, found = balance_of(probabilities, chosen, self.added), _balances.get()
            if found is not None:
                found.append(balance)
        return mix_experts(flat, list(self.experts), weights.to(x.dtype), chosen).view(x.shape)
