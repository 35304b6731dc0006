"""Continuations of many prompts, sampled in batches.

A batch reads its prompts in one padded forward pass and then decodes all samples of all of them together, so that the
weights are read from memory once for all rows. Prompts have seeds of their own: the result does not depend on how they
are batched, except for rounding.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch.nn.utils.rnn import pad_sequence

from ensue.core.errors import InputError
from ensue.core.events import Report, silent
from ensue.runs.language import LanguageRun
from ensue.runs.stream_detokenizer import decode_after
from ensue.search.model_step import set_eval
from ensue.search.sampling import Sampling, draw
from ensue.tasks.language_modelling import prompt_tokens

BATCH_ROWS = 64
"""Rows that are decoded together: more gain little."""


def continuations(run: LanguageRun, prompts: Sequence[str], how: Sampling, report: Report = silent) -> list[list[str]]:
    """``how.n`` continuations of each prompt, in the order of the prompts."""
    if not run.model.traits.steps or run.direction != "forward":
        raise InputError(f"{run.system} cannot continue a text", where=str(run), hint="use lstm, gpt or llama")
    texts: list[list[str]] = []
    size, begun = max(1, BATCH_ROWS // how.n), time.monotonic()
    for start in range(0, len(prompts), size):
        texts += _batch(run, prompts[start : start + size], replace(how, seed=how.seed + start))
        speed = len(texts) / max(time.monotonic() - begun, 1e-9)
        pace = {"counts": "prompts", "per_second": speed, "left": (len(prompts) - len(texts)) / speed}
        report("progress", {"done": len(texts), "total": len(prompts), **pace})
    return texts


@torch.no_grad()
def _batch(run: LanguageRun, prompts: Sequence[str], how: Sampling) -> list[list[str]]:
    tokenizer, model = run.tokenizer, run.model
    set_eval(model)
    ids = [prompt_tokens(tokenizer, prompt) for prompt in prompts]
    state = model.start(len(ids))
    lengths = torch.tensor([len(row) - 1 for row in ids])
    if int(lengths.max()):
        block = pad_sequence([row[:-1] for row in ids], batch_first=True, padding_value=tokenizer.end)
        state = model(block, state, lengths=lengths, want=()).state
    end = None if tokenizer.lines else tokenizer.end
    drawn = draw(model, state, torch.stack([row[-1] for row in ids]), end=end, how=how)
    return [
        [decode_after(tokenizer, row[1:].tolist(), one.tokens) for one in result.hypotheses]
        for row, result in zip(ids, drawn)
    ]
