"""Pseudo-log-likelihoods of an encoder, which gives a text no probability.

    score(S) = Σ_{u ∈ U} log P(u | S without u)        (Nangia et al., 2020, equation 1)

Each token is masked alone and predicted from all others. Of two sentences that differ in a few words, U are the tokens
that both have: so the words that differ are read, but their frequency does not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from ensue.core.errors import InputError
from ensue.core.events import Report, silent
from ensue.data.length_grouping import batch_boundaries
from ensue.data.tokenizers.encoder_tokenizer import EncoderTokenizer
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.data.tokenizers.special_tokens import add_special_tokens
from ensue.nn.eval_mode import eval_mode

BATCH_TOKENS = 4096


def shared_positions(first: Sequence[int], second: Sequence[int]) -> tuple[list[int], list[int]]:
    """The positions of the tokens that two rows have in common, in either row.

    >>> shared_positions([5, 1, 6], [5, 2, 3, 6])
    ([0, 2], [0, 3])
    """
    blocks = SequenceMatcher(None, list(first), list(second), autojunk=False).get_matching_blocks()
    ours = [block.a + i for block in blocks for i in range(block.size)]
    return ours, [block.b + i for block in blocks for i in range(block.size)]


def pair_log_probs(
    model: Any, tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]], report: Report = silent
) -> tuple[np.ndarray, np.ndarray]:
    """The pseudo-log-likelihood of both texts of each pair, (N,) each, over the tokens that they share."""
    encoder = with_mask(tokenizer)
    rows: list[np.ndarray] = []
    positions: list[int] = []
    owners: list[int] = []
    for number, pair in enumerate(pairs):
        ids = [encoder.encode(text) for text in pair]
        for side, shared in enumerate(shared_positions(ids[0].tolist(), ids[1].tolist())):
            row = add_special_tokens(encoder.special_tokens, ids[side])[0]
            rows += [row] * len(shared)
            positions += [position + encoder.special_tokens.n_start for position in shared]
            owners += [2 * number + side] * len(shared)
    true = np.array([[row[position]] for row, position in zip(rows, positions)], np.int64)
    totals = np.zeros(2 * len(pairs))
    np.add.at(totals, owners, masked_log_probs(model, encoder, rows, positions, true, report)[:, 0])
    return totals[::2], totals[1::2]


def word_log_probs(
    model: Any, tokenizer: Tokenizer, frames: Sequence[tuple[str, str]], words: Sequence[str], report: Report = silent
) -> np.ndarray:
    """log P of each word in the gap between the two parts of each frame: (N, words). Each must be a token."""
    encoder = with_mask(tokenizer)
    ids = [encoder.encode(f" {word}" if encoder.spaced else word) for word in words]
    for word, one in zip(words, ids):
        if len(one) != 1 or one[0] == encoder.unknown:
            raise InputError(f"{word!r} is not one of this encoder's tokens")
    rows, positions = [], []
    for before, after in frames:
        start = encoder.encode(before)
        end = encoder.encode(f" {after}" if encoder.spaced else after)
        positions.append(encoder.special_tokens.n_start + len(start))
        rows.append(add_special_tokens(encoder.special_tokens, [*start, encoder.special_tokens.mask or 0, *end])[0])
    targets = np.tile(np.concatenate(ids).astype(np.int64), (len(rows), 1))
    return masked_log_probs(model, encoder, rows, positions, targets, report)


@torch.inference_mode()
def masked_log_probs(
    model: Any,
    encoder: EncoderTokenizer,
    rows: Sequence[np.ndarray],
    positions: Sequence[int],
    targets: np.ndarray,
    report: Report = silent,
) -> np.ndarray:
    """log P of the target tokens (N, K) at one position of each row, which is masked: (N, K)."""
    sizes = np.array([len(row) for row in rows], np.int64)
    order, result, done = np.argsort(sizes, kind="stable"), np.zeros(targets.shape), 0
    longest = model.config.context
    if len(sizes) and sizes.max() > longest:
        raise InputError(f"a text of {sizes.max()} tokens", hint=f"the model reads at most {longest}")
    with eval_mode(model):
        for chosen in np.split(order, batch_boundaries(sizes[order].tolist(), BATCH_TOKENS)) if rows else ():
            tokens = [torch.from_numpy(rows[row].astype(np.int64)) for row in chosen]
            block = pad_sequence(tokens, batch_first=True, padding_value=encoder.special_tokens.pad)
            at = torch.tensor([[positions[row]] for row in chosen])
            block.scatter_(1, at, int(encoder.special_tokens.mask or 0))
            hidden = model.encode(block, None, torch.from_numpy(sizes[chosen]), at).hidden[:, 1]
            log_p = model.head(hidden).double().log_softmax(-1)
            result[chosen] = log_p.gather(1, torch.from_numpy(targets[chosen])).numpy()
            done += len(chosen)
            report("progress", {"done": done, "total": len(rows)})
    return result


def with_mask(tokenizer: Tokenizer) -> EncoderTokenizer:
    """The tokenizer, checked to have a mask."""
    if not isinstance(tokenizer, EncoderTokenizer) or tokenizer.special_tokens.mask is None:
        raise InputError("this run's tokenizer has no mask", hint="use a run of bert or roberta")
    return tokenizer
