"""Text with gaps in, text without gaps out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ensue.core.errors import InputError
from ensue.data.tokenizers.encoder_tokenizer import EncoderTokenizer
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.data.tokenizers.special_tokens import add_special_tokens
from ensue.search.mask_filling import Filling, distributions, fill_in

GAP = re.compile(r"\[MASK\]|<mask>")
"""How people write a gap, whatever the tokenizer calls its mask."""


@dataclass(frozen=True)
class Filled:
    """A text with its gaps filled in."""

    text: str
    gaps: list[list[tuple[str, float]]]
    """For each gap its likeliest tokens, the others still hidden, with their probabilities."""
    chosen: list[str]
    """What was filled in, gap by gap."""
    steps: list[dict[str, Any]]
    """Every round of filling in: the text, what each gap holds, how sure the model was, and what is hidden again."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        gaps = [[{"token": name, "probability": p} for name, p in gap] for gap in self.gaps]
        return {"text": self.text, "chosen": self.chosen, "gaps": gaps, "steps": self.steps}


def filled(
    model: Any,
    tokenizer: Tokenizer,
    text: str,
    *,
    top: int = 5,
    rounds: int = 0,
    seed: int = 0,
    temperature: float = 0.0,
) -> Filled:
    """Fill in every [MASK] of a text; several are filled together, in as many rounds as there are gaps (at most 10)
    unless ``rounds`` says how many. With a temperature tokens are drawn."""
    if not isinstance(tokenizer, EncoderTokenizer) or tokenizer.special_tokens.mask is None:
        raise InputError("this run's tokenizer has no mask", hint="use a run of bert or roberta")
    ids = gapped(tokenizer, text)
    count = int((ids == tokenizer.special_tokens.mask).sum())
    if not count:
        raise InputError("there is nothing to fill in", hint='write [MASK] where a word is missing: "milk is [MASK]"')
    if len(ids) > model.config.context:
        raise InputError(f"a text of {len(ids)} tokens", hint=f"the model reads at most {model.config.context}")
    never = [token for token in {*special(tokenizer)} if token is not None]
    never += range(tokenizer.size, model.config.vocabulary)  # tokens that nobody has a name for
    places = np.flatnonzero(ids == tokenizer.special_tokens.mask)
    p = distributions(model, torch.from_numpy(ids[None].astype(np.int64)), torch.from_numpy(places)[None], never)
    best = p.topk(min(top, p.shape[1]))
    gaps = [
        [(tokenizer.name(int(token)), float(value)) for token, value in zip(tokens, values)]
        for tokens, values in zip(best.indices, best.values)
    ]
    found = fill_in(
        model,
        ids.tolist(),
        tokenizer.special_tokens.mask,
        never=never,
        rounds=rounds or min(count, 10),
        temperature=temperature,
        generator=torch.Generator().manual_seed(seed),
    )
    return Filled(_written(tokenizer, found.tokens), gaps, _names(tokenizer, found), _steps(tokenizer, found))


def gapped(tokenizer: EncoderTokenizer, text: str) -> np.ndarray:
    """The tokens of a text with marks around it and the mask in its gaps."""
    return add_special_tokens(tokenizer.special_tokens, with_masks(tokenizer, text))[0]


def with_masks(tokenizer: Tokenizer, text: str) -> np.ndarray:
    """The tokens of a text, the mask in its gaps where the tokenizer has one."""
    if not isinstance(tokenizer, EncoderTokenizer) or tokenizer.special_tokens.mask is None:
        return tokenizer.encode(text)
    parts: list[np.ndarray] = []
    for number, piece in enumerate(GAP.split(text)):
        if number:
            parts.append(np.array([tokenizer.special_tokens.mask], dtype=np.int32))
        parts.append(tokenizer.encode(piece.rstrip() if tokenizer.spaced else piece))
    return np.concatenate(parts)


def special(tokenizer: EncoderTokenizer) -> tuple[int | None, ...]:
    """Tokens that are never filled in."""
    marks = tokenizer.special_tokens
    return marks.start, marks.separator, marks.end, marks.mask, marks.pad, tokenizer.unknown


def _written(tokenizer: EncoderTokenizer, tokens: tuple[int, ...]) -> str:
    return tokenizer.decode(tokens).strip()


def _names(tokenizer: EncoderTokenizer, found: Filling) -> list[str]:
    return [tokenizer.name(found.tokens[place]) for place in found.positions]


def _steps(tokenizer: EncoderTokenizer, found: Filling) -> list[dict[str, Any]]:
    """The rounds as people can read them."""
    steps, row = [], list(found.tokens)
    for one in found.rounds:
        for place, token in zip(found.positions, one.tokens):
            row[place] = token
        steps.append(
            {
                "text": _written(tokenizer, tuple(row)),
                "tokens": [tokenizer.name(token) for token in one.tokens],
                "probabilities": list(one.probabilities),
                "hidden_again": list(one.masked_again),
            }
        )
    return steps
