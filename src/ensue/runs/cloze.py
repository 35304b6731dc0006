"""Which words fit into a gap, as models of words in context say.

A gap is read as the unknown word. What a model says of a place does not depend on what stands there, so one gap may
hold anything; others are unknown words to it.
"""

from __future__ import annotations

from typing import Any

import torch

from ensue.core.errors import InputError
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.data.tokenizers.special_tokens import add_special_tokens, special_tokens_of
from ensue.runs.mask_filling import GAP, Filled


@torch.inference_mode()
def filled_gaps(model: Any, tokenizer: Tokenizer, text: str, top: int = 5) -> Filled:
    """A text with every [MASK] filled in by the word that is likeliest there, and the ``top`` likeliest of each gap."""
    parts = GAP.split(text)
    if len(parts) < 2:
        raise InputError("there is nothing to fill in", hint='write [MASK] where a word is missing: "milk is [MASK]"')
    ids: list[int] = []
    places = []
    for number, part in enumerate(parts):
        if number:
            places.append(len(ids) + 1)  # after the mark before the first word
            ids.append(0)
        ids += tokenizer.encode(" ".join(part.split())).tolist()
    row, _ = add_special_tokens(special_tokens_of(tokenizer), ids)
    logits = model(torch.from_numpy(row.astype("int64"))[None]).logits[0, places, : tokenizer.size].float()
    logits[:, [0, tokenizer.end]] = float("-inf")  # neither the unknown word nor a mark is an answer
    best = logits.softmax(-1).topk(min(top, tokenizer.size - 2))
    gaps = [
        [(tokenizer.name(int(token)), float(p)) for token, p in zip(tokens, values)]
        for tokens, values in zip(best.indices, best.values)
    ]
    chosen = [gap[0][0] for gap in gaps]
    whole = "".join(f"{part}{word}" for part, word in zip(parts, [*chosen, ""], strict=True))
    return Filled(whole, gaps, chosen, [])
