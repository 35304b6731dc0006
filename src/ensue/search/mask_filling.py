"""Filling in hidden tokens: one by one by their own probabilities, or all together in rounds.

Mask-predict (Ghazvininejad et al., 2019) makes an encoder write. All hidden places are filled at once with their
likeliest tokens; then the least certain of them are hidden again and filled anew, fewer in every round:

    round r of R:  hide the n_r = ⌊N (R − r) / R⌋ fillings of lowest probability, r = 1 … R − 1

Every round is kept, so it can be shown what was changed and how sure the model was.
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
    """One round: what stands at the hidden places, how sure the model was, and what it will hide again."""

    tokens: tuple[int, ...]
    probabilities: tuple[float, ...]
    hidden: tuple[bool, ...]
    """Which of these places are hidden again for the next round."""


@dataclass(frozen=True)
class Filling:
    """What was filled in."""

    tokens: tuple[int, ...]
    """The whole row."""
    places: tuple[int, ...]
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
    """Fill in every ``mask`` of a row of tokens, never with a token of ``never``; with a temperature by chance."""
    if rounds < 1:
        raise InputError(f"{rounds} rounds", hint="use at least 1")
    places = [place for place, token in enumerate(tokens) if token == mask]
    if not places:
        raise InputError("there is nothing to fill in", hint="write [MASK] where a word is missing")
    row, at = torch.tensor([list(tokens)]), torch.tensor([places])
    kinds = None if segments is None else torch.tensor([list(segments)])
    sure = torch.zeros(len(places))
    hidden = torch.ones(len(places), dtype=torch.bool)
    kept: list[Round] = []
    for number in range(1, rounds + 1):
        p = distributions(model, row, at, never, kinds)
        chosen = p.argmax(-1)
        if temperature > 0:
            chosen = torch.multinomial((p.log() / temperature).softmax(-1), 1, generator=generator)[:, 0]
        row[0, at[0][hidden]] = chosen[hidden]
        sure[hidden] = p.gather(1, chosen[:, None])[:, 0][hidden]
        again = len(places) * (rounds - number) // rounds
        hidden = torch.zeros(len(places), dtype=torch.bool)
        if again:
            hidden[sure.argsort()[:again]] = True
        kept.append(Round(tuple(row[0, at[0]].tolist()), tuple(sure.tolist()), tuple(hidden.tolist())))
        if not again:
            break
        row[0, at[0][hidden]] = mask
    return Filling(tuple(row[0].tolist()), tuple(places), tuple(kept))


@torch.inference_mode()
def distributions(
    model: Any, row: Tensor, places: Tensor, never: Sequence[int] = (), segments: Tensor | None = None
) -> Tensor:
    """P(x_i | the rest) at places (1, K) of a row (1, T): (K, V); tokens of ``never`` have none."""
    found = model.encode(row, segments, None, places).hidden[0, 1:]
    logits = model.head(found).float()
    if len(never):
        logits[:, list(never)] = float("-inf")
    p: Tensor = logits.softmax(-1)
    return p
