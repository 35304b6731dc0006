"""Rows that come and go: texts of several people go on side by side, one token of each a step.

    join     a prompt is read, and its row stands beside those that are there
    step     every row draws its next token; rows that end leave, the others read theirs in one call of the model
    leave    a row that nobody waits for any more

What a row gets does not depend on who stands beside it, but for rounding: it has its own random numbers, and a state
knows its rows. A step of many rows costs little more than one of a single row, since weights are read from memory once
for all of them.

Legend: R rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from ensue.search.model_step import quiet, read
from ensue.search.sampling import Sampling, next_tokens


@dataclass(frozen=True, slots=True)
class Drawn:
    """A token that a row has drawn, what it cost, and the likeliest ones that it was drawn from."""

    token: int
    log_prob: float
    best: list[tuple[int, float]]
    last: bool
    """Whether the row has left: by its end mark, or because it is as long as it may be."""
    ended: bool
    """Whether it was the end mark."""


@dataclass(eq=False, slots=True)
class Row:
    """A text as it grows."""

    prompt: Tensor  # (T,)
    how: Sampling
    end: int | None = None
    best: int = 0
    """How many of the likeliest tokens are told with each."""
    generator: torch.Generator = field(init=False)
    count: int = 0

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(self.how.seed)

    def draw(self, log_probs: Tensor) -> Drawn:
        """The next token, from log P (V,)."""
        token = int(next_tokens(log_probs[None], self.how, self.generator))
        told = log_probs.topk(min(self.best, len(log_probs))) if self.best else None
        best = list(zip(told.indices.tolist(), told.values.tolist())) if told is not None else []
        self.count += 1
        ended = token == self.end
        return Drawn(token, float(log_probs[token]), best, ended or self.count >= self.how.tokens, ended)


def _drawn(row: Row, log_probs: Tensor) -> Drawn | Exception:
    """A row's next token; where none can be drawn (a model may answer no numbers) that is its own matter."""
    try:
        return row.draw(log_probs)
    except RuntimeError as error:
        return error


class Together:
    """The rows of one language model that go on at the moment."""

    def __init__(self, model: Any) -> None:
        quiet(model)
        self.model = model
        self.rows: list[Row] = []
        self._state: Any = None
        self._logits = torch.zeros(0, 0)  # (R, V), what each row draws from next

    def __len__(self) -> int:
        return len(self.rows)

    @torch.no_grad()
    def join(self, rows: Sequence[Row]) -> None:
        """Read the prompts of new rows, those of one length together; they draw from the next step on."""
        states, logits = ([self._state], [self._logits]) if self.rows else ([], [])
        rows = sorted(rows, key=lambda row: len(row.prompt))
        for _, alike in groupby(rows, key=lambda row: len(row.prompt)):
            prompts = torch.stack([row.prompt for row in alike])
            reading = read(self.model, prompts, self.model.start(len(prompts)))
            states.append(reading.state)
            logits.append(reading.logits)
        if rows:
            self._state = type(states[0]).joined(states) if len(states) > 1 else states[0]
            self._logits = torch.cat(logits)
            self.rows += rows

    def leave(self, rows: Sequence[Row]) -> None:
        """Let rows go before their end; those that are not there are gone already."""
        gone = {id(row) for row in rows}
        self._keep([place for place, row in enumerate(self.rows) if id(row) not in gone])

    @torch.no_grad()
    def step(self) -> list[tuple[Row, Drawn | Exception]]:
        """One token of every row, beside the row; or why a row can draw none, which then leaves."""
        drawn = [(row, _drawn(row, own)) for row, own in zip(self.rows, self._logits.cpu().double().log_softmax(-1))]
        onward = {place: one.token for place, (_, one) in enumerate(drawn) if isinstance(one, Drawn) and not one.last}
        self._keep(list(onward))
        if self.rows:
            tokens = torch.tensor([[token] for token in onward.values()], device=self._logits.device)
            reading = read(self.model, tokens, self._state)
            self._state, self._logits = reading.state, reading.logits
        return drawn

    def _keep(self, places: list[int]) -> None:
        """Those rows alone."""
        if len(places) == len(self.rows):
            return
        self.rows = [self.rows[place] for place in places]
        if not self.rows:
            self._state = None
            return
        index = torch.tensor(places, device=self._logits.device)
        self._state, self._logits = self._state.rows(index), self._logits.index_select(0, index)
