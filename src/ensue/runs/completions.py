"""Complete many prompts, several times each, up to a stop sequence.

    complete(run, ["def add(a, b):"], Sampling(tokens=64, temperature=0), stops=["\\ndef"])[0][0].text

Completions are generated in one batch that others join as soon as some have ended. A row leaves at its stop sequence.
What all prompts begin with, such as their shots, is read once.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ensue.core.errors import InputError
from ensue.core.events import Report, silent
from ensue.runs.chat import stop_tokens
from ensue.runs.run import Run
from ensue.runs.stream_detokenizer import StreamDetokenizer
from ensue.search.continuous_batching import ContinuousBatch, DrawnToken, Row
from ensue.search.model_step import model_step, set_eval
from ensue.search.prefix_cache import PrefixCache
from ensue.search.sampling import Sampling
from ensue.tasks.language_modelling import prompt_tokens

BATCH = 16
"""Completions that are generated at once."""
MIN_SHARED = 32
"""Tokens that prompts must share to be read once for all."""


@dataclass(frozen=True, slots=True)
class Completion:
    """A completed text, without its stop sequence."""

    text: str
    tokens: int
    """Drawn tokens, with those of the stop sequence or the end token."""
    log_prob: float
    """log P of the drawn tokens, in nats."""
    finish: str
    """Why it ended: stop (a stop sequence), end (an end token) or length."""


class _Writing:
    """A completion in progress."""

    def __init__(self, run: Run, row: Row, stops: Sequence[str]) -> None:
        self.row, self.text = row, StreamDetokenizer(run.tokenizer, row.prompt[1:].tolist(), stops)
        self.tokens, self.log_prob, self.finish = 0, 0.0, ""

    def add(self, drawn: DrawnToken) -> None:
        """Add a token; ``finish`` is set at the last one."""
        self.tokens, self.log_prob = self.tokens + 1, self.log_prob + drawn.log_prob
        if not drawn.ended:
            self.text.add(drawn.token)
        if drawn.last:
            self.text.finish()
        if self.text.stopped or drawn.last:
            self.finish = "stop" if self.text.stopped else "end" if drawn.ended else "length"

    def result(self) -> Completion:
        """The finished completion."""
        return Completion(self.text.text, self.tokens, self.log_prob, self.finish)


def complete(
    run: Run,
    prompts: Sequence[str | Sequence[int]],
    how: Sampling,
    *,
    stops: Sequence[str] = (),
    batch: int = BATCH,
    int8: bool = False,
    finished: Callable[[int, int, Completion], None] | None = None,
    skip: Container[tuple[int, int]] = (),
    report: Report = silent,
) -> list[list[Completion]]:
    """Complete every prompt, a text or its tokens, ``how.n`` times; return the completions of each.

    A completion depends on the seed, the index of its prompt and its own number; not on ``batch``, except for rounding.
    ``finished`` is called with the index of the prompt and the completion's number as soon as a completion has ended.
    Those in ``skip`` are known already: they are not generated, and empty in what is returned.
    """
    model: Any = run.model_for(int8)
    if not model.traits.steps or run.direction != "forward":
        raise InputError(f"a {run.system} of this kind cannot continue a text", where=str(run.folder.path))
    ends, results = stop_tokens(run), []
    for index, prompt in enumerate(prompts):
        ids = prompt_tokens(run.tokenizer, prompt) if isinstance(prompt, str) else torch.tensor(list(prompt))
        seeds = [(how.seed + index * how.n + number) % 2**63 for number in range(how.n)]
        results.append([_Writing(run, Row(ids, replace(how, n=1, seed=seed), ends), stops) for seed in seeds])
    waiting = [(index, number, one) for index, group in enumerate(results) for number, one in enumerate(group)]
    total, waiting = len(waiting), [one for one in waiting if one[:2] not in skip]
    prefixes = _read_shared(model, [group[0].row.prompt for group in results]) if waiting else None
    rows = ContinuousBatch(model, prefixes, store=False)
    active: dict[int, tuple[int, int, _Writing]] = {}
    while waiting or active:
        if waiting and len(active) <= batch * 3 // 4:  # joining copies the caches of all rows
            free = batch - len(active)
            coming, waiting = waiting[:free], waiting[free:]
            active |= {id(one.row): (index, number, one) for index, number, one in coming}
            rows.join([one.row for *_, one in coming])
        for row, drawn in rows.step():
            if isinstance(drawn, Exception):
                raise drawn
            index, number, one = active[id(row)]
            one.add(drawn)
            if one.finish:
                del active[id(row)]
                rows.leave([row])
                if finished is not None:
                    finished(index, number, one.result())
                report("progress", {"done": total - len(waiting) - len(active), "total": total})
    return [[one.result() for one in group] for group in results]


def _read_shared(model: Any, prompts: Sequence[Tensor]) -> PrefixCache | None:
    """The state after the tokens that several prompts begin with, if they are many; each prompt has more."""
    if len(prompts) < 2:
        return None
    size = min(map(len, prompts)) - 1
    same = torch.stack([prompt[:size] == prompts[0][:size] for prompt in prompts]).all(0)
    count = size if bool(same.all()) else int((~same).nonzero()[0])
    if count < MIN_SHARED:
        return None
    set_eval(model)
    prefixes, tokens = PrefixCache(least=count), prompts[0][:count]
    with torch.no_grad():
        prefixes.put(tokens.tolist(), model_step(model, tokens[None], model.start(1)).state)
    return prefixes
