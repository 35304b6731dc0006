"""Perplexity of models of words in context (ELMo, context2vec), per direction.

    perplexity = exp(−1/N Σ_k log P(w_k | …))          N words, and the end token where a direction predicts it

forward    from the words before, and the end token after the last
backward   from the words after, and the end token before the first
gap        from all other words: a pseudo-perplexity, since the product is no distribution over sentences

Words outside the vocabulary are predicted as the unknown token; ``unknown`` counts them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from ensue.core.errors import InputError
from ensue.nn.eval_mode import eval_mode
from ensue.train.ranks import SINGLE, Ranks


@dataclass(frozen=True)
class ContextScore:
    """Figures of a model of words in context."""

    loss: float
    """The sum over directions, in nats per word."""
    perplexity: dict[str, float]
    """Per word: forward and backward, or gap."""
    words: int
    sentences: int
    unknown: int
    """Words outside the vocabulary."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@torch.no_grad()
def context_score(model: Any, batches: Iterable[Any], ranks: Ranks = SINGLE) -> ContextScore:
    """Evaluate a model over batches of sentences with end tokens on both sides; ranks share the rows of each."""
    device = next(model.parameters()).device
    sums: dict[str, float] = {}
    counts: dict[str, float] = {}
    words = sentences = unknown = 0.0
    with eval_mode(model):
        for whole in batches:
            batch, reduction = ranks.local_batch(whole)
            tokens, lengths = batch.tokens.to(device), batch.lengths.to(device)
            for name, losses in model.word_losses(tokens, lengths).items():
                sums[name] = sums.get(name, 0.0) + reduction.total(losses.double().sum())
                counts[name] = counts.get(name, 0.0) + reduction.total(len(losses))
            real = torch.arange(tokens.shape[1], device=device) < lengths[:, None]
            unknown += reduction.total((real & ((tokens >= model.config.vocabulary) | (tokens == 0))).sum())
            words += reduction.total(lengths.sum() - 2 * len(lengths))
            sentences += reduction.total(len(lengths))
    if not words:
        raise InputError("there is no word to score", hint="give some sentences")
    means = {name: total / counts[name] for name, total in sums.items()}
    return ContextScore(
        loss=sum(means.values()),
        perplexity={name: math.exp(min(mean, 700.0)) for name, mean in means.items()},
        words=int(words),
        sentences=int(sentences),
        unknown=int(unknown),
    )
