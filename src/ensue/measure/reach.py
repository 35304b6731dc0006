"""The loss of a language model against its reach: how many tokens back it may look.

    loss(r) = mean over targets t of −log2 P(x_t | x_{t−r} … x_{t−1})          bits per token

Every reach is measured on the same targets, and the model starts from its empty state each time, so it cannot know more
than the last r tokens. Bits per byte are loss(r) times the tokens per byte of the whole text, and what its tokenizer
loses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ensue.core.errors import InputError
from ensue.core.events import Report, silent

LONGEST, TARGETS = 512, 256
"""Defaults: the longest reach, and the number of targets."""
TOKENS_AT_ONCE = 1 << 13
"""Tokens of a batch, unless one row has more."""
MARGIN = 0.01
"""The share of its lowest loss by which a model may be above it within its effective context."""


def reaches_up_to(longest: int) -> list[int]:
    """Powers of two, and the longest.

    >>> reaches_up_to(12)
    [1, 2, 4, 8, 12]
    """
    return sorted({*(1 << n for n in range(longest.bit_length())), longest})


def choose_targets(tokens: int, longest: int, count: int, seed: int) -> np.ndarray:
    """Random positions of a text of x_0 … x_N, at most ``count``, each with ``longest`` tokens before it."""
    places = np.arange(longest, tokens)
    if not len(places):
        what = f"a text of {tokens - 1:,} tokens has no token with {longest:,} before it"
        raise InputError(what, hint=f"give a longer text, or --length {max(1, (tokens - 1) // 2)}")
    return np.sort(np.random.default_rng(seed).choice(places, min(count, len(places)), replace=False))


@torch.no_grad()
def losses_by_reach(
    model: Any, tokens: np.ndarray, targets: np.ndarray, reaches: Sequence[int], report: Report = silent
) -> np.ndarray:
    """−log2 P of each target given only the last r tokens, (R, N), in bits."""
    model.eval()
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    found, done, total = np.zeros((len(reaches), len(targets))), 0, sum(reaches) * len(targets)
    for number, reach in enumerate(reaches):
        rows = max(1, TOKENS_AT_ONCE // reach)
        for at in range(0, len(targets), rows):
            ends = targets[at : at + rows]
            read = torch.from_numpy(tokens[ends[:, None] + np.arange(-reach, 0)].astype(np.int64)).to(device)
            wanted = torch.from_numpy(tokens[ends].astype(np.int64)).to(device)
            logits = model(read, model.start(len(read)), want=("last",)).logits[:, -1].double()
            log_prob = logits.log_softmax(-1).gather(1, wanted[:, None])[:, 0]
            found[number, at : at + rows] = -log_prob.cpu().numpy() / np.log(2)
            done += reach * len(ends)
            report("progress", {"done": done, "total": total})
    return found


def effective_context(reaches: Sequence[int], losses: Sequence[float]) -> int:
    """The shortest reach at which the loss is at most 1 % above the lowest of any reach.

    It describes one model on its own. The relative effective context length of Dai et al. (2019) instead compares each
    model of a group with the best of the group, on the tokens that are hardest for it.

    >>> effective_context([1, 2, 4, 8], [4.0, 3.0, 2.01, 2.0])
    4
    """
    enough = min(losses) * (1 + MARGIN)
    return next(reach for reach, loss in zip(reaches, losses, strict=True) if loss <= enough)
