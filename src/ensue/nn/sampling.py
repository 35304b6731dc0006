"""Sampled softmax and negative sampling: losses against a few sampled words instead of the whole vocabulary.

    Q(v) = log((v + 2) / (v + 1)) / log(V + 1)                    words by frequency: about Zipf's law
    P(v is drawn) = 1 − (1 − Q(v))^S                              each word for itself, so that about S are
    s_v = W_v · h + b_v − log P(v is drawn)
    J = −log softmax over w and the draws of s, at w              sampled softmax (Jean et al., 2015)

Its value differs from the exact softmax's, which it approaches as all words are sampled; its optimum is the same.

    J = −log σ(u_w · c) − Σ_{v drawn from P^α} log σ(−u_v · c)    negative sampling (Mikolov et al., 2013)

In a sampled softmax all words of a batch share their samples, so scores are one matrix multiplication; in negative
sampling each word has its own few. Sampling uses torch's random state.

    x = min {v : P(x ≤ v) > u},  u uniform in [0, 1)                              inverse transform: x ~ P

Legend: M words, S samples, D size, V vocabulary.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def log_uniform(vocabulary: int, device: torch.device | None = None) -> Tensor:
    """Q (V,), in double precision."""
    v = torch.arange(vocabulary, dtype=torch.float64, device=device)
    return torch.log((v + 2) / (v + 1)) / math.log(vocabulary + 1)


def chances(samples: int, vocabulary: int, device: torch.device | None = None) -> Tensor:
    """Return P (V,): the probability that each word is among about ``samples`` samples from Q."""
    return -torch.expm1(samples * torch.log1p(-log_uniform(vocabulary, device)))


def sampled_cross_entropy(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, samples: int) -> Tensor:
    """The mean of −log P(target | target and draws), (M, D), (V, D), (V,), (M,) → a scalar.

    Words are numbered by frequency. A sampled word that equals the target is not counted twice.
    """
    chance = chances(samples, len(weight), hidden.device)
    drawn = torch.nonzero(torch.rand_like(chance) < chance)[:, 0]
    often = chance.log().to(hidden.dtype)
    true = (hidden * weight[targets]).sum(-1) + bias[targets] - often[targets]
    others = hidden @ weight[drawn].T + (bias[drawn] - often[drawn])
    others = others.masked_fill(drawn == targets[:, None], float("-inf"))
    scores = torch.cat([true[:, None], others], dim=1)
    return F.cross_entropy(scores, torch.zeros_like(targets))


def negative_sampling(context: Tensor, words: Tensor, targets: Tensor, drawn: Tensor) -> Tensor:
    """The mean over contexts c (M, D) of −log σ(u_w · c) − Σ_v log σ(−u_v · c), v = the draws (M, S) of each.

    A sample that equals the target does not count.
    """
    right = F.logsigmoid((context * words[targets]).sum(-1))
    wrong = F.logsigmoid(-torch.einsum("md,msd->ms", context, words[drawn]))
    return -(right + wrong.masked_fill(drawn == targets[:, None], 0.0).sum(-1)).mean()


def inverse_transform(logits: Tensor, noise: Tensor) -> Tensor:
    """Draw from softmax(logits) (M, V), given a uniform random number in [0, 1) for each row (M,) → (M,).

    The same numbers draw the same tokens, in whatever batch a row is.

    >>> inverse_transform(torch.tensor([[0.0, 0.0]] * 3), torch.tensor([0.1, 0.49, 0.6])).tolist()
    [0, 0, 1]
    """
    weights = (logits - logits.amax(-1, keepdim=True)).float().exp_().cumsum_(-1)
    at = noise.to(weights.dtype) * weights[:, -1]
    return torch.searchsorted(weights, at[:, None], right=True)[:, 0].clamp(max=logits.shape[1] - 1)
