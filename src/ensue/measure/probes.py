"""Minimal pairs: how often a language model gives the right text a higher probability than the wrong one.

    right  ⇔  log P(good) > log P(bad)

log P is of the text's tokens, plus the surcharge of unknown words as in bits per byte. The end token does not count, so
a text may be a sentence prefix: if both differ in their last word only, this compares P(is | the writer of the books)
with P(are | the writer of the books).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from ensue.core.errors import InputError
from ensue.core.events import Report, silent
from ensue.data.length_grouping import batch_boundaries
from ensue.data.minimal_pairs import MinimalPair
from ensue.data.tokenizers.protocol import Tokenizer, first_token

BATCH_TOKENS = 8192


@torch.no_grad()
def text_log_probs(
    model: Any, tokenizer: Tokenizer, texts: Sequence[str], *, backward: bool = False, report: Report = silent
) -> np.ndarray:
    """log P of each text, in nats, (N,); a backward model reads from the end."""
    if not model.traits.steps:
        raise InputError("a bidirectional model gives a text no probability", hint="use lstm or gpt")
    model.eval()
    ids = [tokenizer.encode(text)[:: -1 if backward else 1].astype(np.int64) for text in texts]
    surcharge = np.array([tokenizer.surcharge(text, True, False)[0] for text in texts]) * math.log(2)
    totals, done = np.zeros(len(texts)), 0
    sizes = np.array([len(tokens) + 1 for tokens in ids], np.int64)
    order = np.argsort(sizes, kind="stable")
    for rows in np.split(order, batch_boundaries(sizes[order].tolist(), BATCH_TOKENS)) if texts else ():
        tokens = [torch.from_numpy(np.append(first_token(tokenizer), ids[row])) for row in rows]
        block = pad_sequence(tokens, batch_first=True, padding_value=tokenizer.end)
        lengths = torch.from_numpy(sizes[rows] - 1)
        values = model.log_prob(block[:, :-1], block[:, 1:], None, lengths)[0]  # padding holds 0
        totals[rows] = values.double().sum(1).cpu().numpy()
        done += len(rows)
        report("progress", {"done": done, "total": len(texts)})
    return totals - surcharge


def probe_figures(pairs: Sequence[MinimalPair], good: np.ndarray, bad: np.ndarray) -> dict[str, Any]:
    """Accuracy over all pairs and by each of their groups; a tie counts half.

    >>> pairs = [MinimalPair("a", "b", {"attractors": n}) for n in (0, 0, 1)]
    >>> figures = probe_figures(pairs, np.array([0.0, 1.0, 0.0]), np.array([-1.0, 1.0, 3.0]))
    >>> figures["accuracy"], figures["by"]["attractors"][0]
    (0.5, {'value': 0, 'accuracy': 0.75, 'pairs': 2})
    """
    right = np.where(good == bad, 0.5, (good > bad).astype(float))
    names = dict.fromkeys(name for pair in pairs for name in pair.groups)
    return {
        "accuracy": float(right.mean()),
        "pairs": len(pairs),
        "ties": int((good == bad).sum()),
        "margin": float((good - bad).mean()),
        "by": {name: _grouped([pair.groups for pair in pairs], right, name) for name in names},
    }


def _grouped(groups: Sequence[Mapping[str, str | int]], right: np.ndarray, name: str) -> list[dict[str, Any]]:
    """Accuracy for each value of a group, in order."""
    rights: dict[str | int, list[float]] = {}
    for group, value in zip(groups, right.tolist()):
        if name in group:
            rights.setdefault(group[name], []).append(value)
    rows = sorted(rights.items(), key=lambda row: (isinstance(row[0], str), row[0]))
    return [{"value": value, "accuracy": float(np.mean(group)), "pairs": len(group)} for value, group in rows]
