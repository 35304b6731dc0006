"""Fill in the masked tokens of a text, with a masked language model or with a model of words in context."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ensue.core.errors import InputError
from ensue.data.tokenizers.encoder_tokenizer import EncoderTokenizer
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.data.tokenizers.special_tokens import add_special_tokens, special_tokens_of
from ensue.search.mask_filling import Filling, distributions, fill_in

MASK = re.compile(r"\[MASK\]|<mask>")
"""How people write a mask, whatever the tokenizer calls its own."""


@dataclass(frozen=True)
class Filled:
    """A text with its masks filled in."""

    text: str
    gaps: list[list[tuple[str, float]]]
    """The most likely tokens of each mask while the others are masked, with their probabilities."""
    chosen: list[str]
    """The token that each mask was replaced with."""
    steps: list[dict[str, Any]]
    """Every round of mask-predict: the text, the token and probability of each mask, and which are masked again."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        gaps = [[{"token": name, "probability": p} for name, p in gap] for gap in self.gaps]
        return {"text": self.text, "chosen": self.chosen, "gaps": gaps, "steps": self.steps}


def fill_masks(
    model: Any,
    tokenizer: Tokenizer,
    text: str,
    *,
    top: int = 5,
    rounds: int = 0,
    seed: int = 0,
    temperature: float = 0.0,
) -> Filled:
    """Fill in every [MASK] of a text with a masked language model.

    Several are filled in together, in ``rounds`` rounds; 0 means one for each mask, at most 10. With a temperature
    tokens are sampled.
    """
    if not isinstance(tokenizer, EncoderTokenizer) or tokenizer.special_tokens.mask is None:
        raise InputError("this run's tokenizer has no mask", hint="use a run of bert or roberta")
    mask, ids = tokenizer.special_tokens.mask, masked_row(tokenizer, text)
    positions = np.flatnonzero(ids == mask)
    if not len(positions):
        raise _no_mask()
    if len(ids) > model.config.context:
        raise InputError(f"a text of {len(ids)} tokens", hint=f"the model reads at most {model.config.context}")
    never = [token for token in {*special_ids(tokenizer)} if token is not None]
    never += range(tokenizer.size, model.config.vocabulary)  # tokens without a name
    p = distributions(model, torch.from_numpy(ids[None].astype(np.int64)), torch.from_numpy(positions)[None], never)
    filling = fill_in(
        model,
        ids.tolist(),
        mask,
        never=never,
        rounds=rounds or min(len(positions), 10),
        temperature=temperature,
        generator=torch.Generator().manual_seed(seed),
    )
    chosen = [tokenizer.name(filling.tokens[position]) for position in filling.positions]
    whole = tokenizer.decode(filling.tokens).strip()
    return Filled(whole, _candidates(tokenizer, p, min(top, p.shape[1])), chosen, _steps(tokenizer, filling))


@torch.inference_mode()
def fill_words(model: Any, tokenizer: Tokenizer, text: str, top: int = 5) -> Filled:
    """Fill in every [MASK] of a text with the most likely word of a model of words in context.

    A mask is read as the unknown word. The model's prediction at a position does not depend on the word there.
    """
    parts = MASK.split(text)
    if len(parts) < 2:
        raise _no_mask()
    ids: list[int] = []
    positions = []
    for number, part in enumerate(parts):
        if number:
            positions.append(len(ids) + 1)  # after the special token before the first word
            ids.append(0)
        ids += tokenizer.encode(" ".join(part.split())).tolist()
    row, _ = add_special_tokens(special_tokens_of(tokenizer), ids)
    logits = model(torch.from_numpy(row.astype("int64"))[None]).logits[0, positions, : tokenizer.size].float()
    logits[:, [0, tokenizer.end]] = float("-inf")  # neither the unknown word nor the end token is an answer
    gaps = _candidates(tokenizer, logits.softmax(-1), min(top, tokenizer.size - 2))
    chosen = [gap[0][0] for gap in gaps]
    whole = "".join(f"{part}{word}" for part, word in zip(parts, [*chosen, ""], strict=True))
    return Filled(whole, gaps, chosen, [])


def masked_row(tokenizer: EncoderTokenizer, text: str) -> np.ndarray:
    """The tokens of a text with its masks, and special tokens around it."""
    return add_special_tokens(tokenizer.special_tokens, encode_masks(tokenizer, text))[0]


def encode_masks(tokenizer: Tokenizer, text: str) -> np.ndarray:
    """The tokens of a text with its masks, if the tokenizer has a mask."""
    if not isinstance(tokenizer, EncoderTokenizer) or tokenizer.special_tokens.mask is None:
        return tokenizer.encode(text)
    parts: list[np.ndarray] = []
    for number, piece in enumerate(MASK.split(text)):
        if number:
            parts.append(np.array([tokenizer.special_tokens.mask], dtype=np.int32))
        parts.append(tokenizer.encode(piece.rstrip() if tokenizer.spaced else piece))
    return np.concatenate(parts)


def special_ids(tokenizer: EncoderTokenizer) -> tuple[int | None, ...]:
    """Special tokens, which are never filled in."""
    special = tokenizer.special_tokens
    return special.start, special.separator, special.end, special.mask, special.pad, tokenizer.unknown


def _no_mask() -> InputError:
    return InputError("there is nothing to fill in", hint='write [MASK] where a word is missing: "milk is [MASK]"')


def _candidates(tokenizer: Tokenizer, p: Tensor, count: int) -> list[list[tuple[str, float]]]:
    """The most likely tokens of each row of ``p`` (N, V), with their probabilities."""
    best = p.topk(count)
    return [
        [(tokenizer.name(token), value) for token, value in zip(tokens, values)]
        for tokens, values in zip(best.indices.tolist(), best.values.tolist())
    ]


def _steps(tokenizer: EncoderTokenizer, filling: Filling) -> list[dict[str, Any]]:
    """The rounds with tokens by name."""
    steps, row = [], list(filling.tokens)
    for one in filling.rounds:
        for position, token in zip(filling.positions, one.tokens):
            row[position] = token
        steps.append(
            {
                "text": tokenizer.decode(tuple(row)).strip(),
                "tokens": [tokenizer.name(token) for token in one.tokens],
                "probabilities": list(one.probabilities),
                "hidden_again": list(one.masked_again),
            }
        )
    return steps
