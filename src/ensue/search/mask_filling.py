"""Fill masked tokens, in one pass or with mask-predict.

Mask-predict (Ghazvininejad et al., 2019) generates with an encoder. All masked positions are filled at once with their
most probable tokens; then the least probable ones are masked again and refilled, fewer in every round:

    round r of R:  mask the n_r = ⌊N (R − r) / R⌋ tokens of lowest probability, r = 1 … R − 1

Every round is kept, with its probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ensue.core.errors import InputError


@dataclass(frozen=True)
class Round:
    """One round: the tokens at the masked positions, their probabilities, and which are masked again."""

    tokens: tuple[int, ...]
    probabilities: tuple[float, ...]
    masked_again: tuple[bool, ...]
    """True for tokens that the next round replaces."""


@dataclass(frozen=True)
class Filling:
    """The result of ``fill_in``."""

    tokens: tuple[int, ...]
    """The whole row."""
    positions: tuple[int, ...]
    """Of the masked tokens."""
    rounds: tuple[Round, ...]


@torch.inference_mode()
def fill_in(
    model: Any,
    tokens: Sequence[int],
    mask: int,
    *,
    never: Sequence[int] = (),
    rounds: int = 1,
    temperature: float = 0.0,
    generator: torch.Generator | None = None,
    segments: Sequence[int] | None = None,
) -> Filling:
    """Fill every ``mask`` in a row of tokens, except with tokens of ``never``. A temperature samples."""
    if rounds < 1:
        raise InputError(f"{rounds} rounds", hint="use at least 1")
    positions = [i for i, token in enumerate(tokens) if token == mask]
    if not positions:
        raise InputError("there is nothing to fill in", hint="write [MASK] where a word is missing")
    row, at = torch.tensor([list(tokens)]), torch.tensor([positions])
    segment_ids = None if segments is None else torch.tensor([list(segments)])
    probabilities = torch.zeros(len(positions))
    masked = torch.ones(len(positions), dtype=torch.bool)
    kept: list[Round] = []
    for number in range(1, rounds + 1):
        p = distributions(model, row, at, never, segment_ids)
        chosen = p.argmax(-1)
        if temperature > 0:
            chosen = torch.multinomial((p.log() / temperature).softmax(-1), 1, generator=generator)[:, 0]
        row[0, at[0][masked]] = chosen[masked]
        probabilities[masked] = p.gather(1, chosen[:, None])[:, 0][masked]
        again = len(positions) * (rounds - number) // rounds
        masked = torch.zeros(len(positions), dtype=torch.bool)
        if again:
            masked[probabilities.argsort()[:again]] = True
        kept.append(Round(tuple(row[0, at[0]].tolist()), tuple(probabilities.tolist()), tuple(masked.tolist())))
        if not again:
            break
        row[0, at[0][masked]] = mask
    return Filling(tuple(row[0].tolist()), tuple(positions), tuple(kept))


@torch.inference_mode()
def distributions(
    model: Any, row: Tensor, positions: Tensor, never: Sequence[int] = (), segments: Tensor | None = None
) -> Tensor:
    """P(x_i | the rest) at positions (1, K) of a row (1, T): (K, V), with 0 for tokens of ``never``."""
    hidden = model.encode(row, segments, None, positions).hidden[0, 1:]
    logits = model.head(hidden).float()
    if len(never):
        logits[:, list(never)] = float("-inf")
    p: Tensor = logits.softmax(-1)
    return p
