"""Sentence vectors: a vector of each text, from the hidden states of an encoder or of any model that reads text.

    mean   v = 1/T Σ_t h_t        over the real tokens, special ones included (Reimers and Gurevych, 2019)
    cls    v = h_1                the first token

Vectors have unit length, so that a dot product is a cosine. Texts of similar lengths are in one batch; vectors come in
the order of the texts. With ``int8`` linear layers compute in int8; see ``ensue.kernels.int8``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ensue.core.errors import InputError
from ensue.core.events import Report, silent
from ensue.data.labelled_rows import evaluation_batches, make_batch, make_rows
from ensue.data.tokenizers.protocol import Tokenizer, encode_texts
from ensue.data.tokenizers.special_tokens import add_special_tokens, special_tokens_of
from ensue.kernels.int8 import quantise
from ensue.models.encoder import Encoder
from ensue.models.labelled import pool, width_of

POOLINGS = ("mean", "cls", "last", "max")
BATCH_TOKENS = 2048
"""Tokens in a batch: enough for fast matrix multiplications; more only takes memory."""


def max_length(body: Any) -> int | None:
    """The most tokens of a text that a model reads; None if it reads texts of any length."""
    if isinstance(body, Encoder):
        return body.config.context
    context: int | None = body.traits.context
    return context if getattr(body, "cuts", "") == "windows" else None


@torch.inference_mode()
def sentence_vectors(
    body: Any,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    pooling: str = "mean",
    normalise: bool = True,
    longest: int | None = None,
    int8: bool = False,
    report: Report = silent,
) -> np.ndarray:
    """A vector for each text, (N, D), float32; texts longer than the model reads are cut."""
    if pooling not in POOLINGS:
        raise InputError(f"there is no pooling {pooling!r}", hint=f"use {', '.join(POOLINGS)}")
    most, special = longest or max_length(body), special_tokens_of(tokenizer)
    ids = encode_texts(tokenizer, list(texts))
    rows = [add_special_tokens(special, one, None, most) for one in ids]
    cut = sum(len(one) + special.count(1) > most for one in ids) if most else 0
    if cut:
        report("note", {"text": f"{cut:,} of {len(rows):,} texts are longer than {most} tokens and were cut"})
    labelled_rows = make_rows(rows, np.zeros(len(rows), dtype=np.int64))
    result = np.zeros((len(rows), width_of(body)), dtype=np.float32)
    if int8:
        body = quantise(body)
    device = next(body.parameters()).device
    body.eval()
    done = 0
    for indices in evaluation_batches(labelled_rows, BATCH_TOKENS) if rows else ():
        batch = make_batch(labelled_rows, indices)
        tokens, lengths = batch.tokens.to(device), batch.lengths.to(device)
        if isinstance(body, Encoder):
            first = torch.zeros(len(tokens), 1, dtype=torch.long, device=device) if pooling == "cls" else None
            hidden = body(tokens, None, lengths, first).hidden
        else:
            hidden = body(tokens, None, lengths, want=("hidden",)).hidden
        vectors = pool(hidden, lengths, "first" if pooling == "cls" else pooling).float()
        if normalise:
            vectors = torch.nn.functional.normalize(vectors, dim=-1)
        result[indices] = vectors.cpu().numpy()
        done += len(indices)
        report("progress", {"done": done, "total": len(rows)})
    return result
