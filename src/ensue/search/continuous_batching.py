"""Continuous batching: requests join and leave a batch between decode steps.

    join     reads a prompt and adds its row to the batch
    step     draws the next token of every row; rows that end leave, the others are read in one forward pass
    leave    removes a cancelled row
    pause    takes a row out together with its state; resume puts it back

The result of a row does not depend on the other rows, except for rounding: each row has its own random generator and
state. A step of many rows costs little more than a step of one, since weights are read from memory once for all.

Legend: R rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from ensue.search.model_step import StepOutput, model_step, select_rows, set_eval
from ensue.search.prefix_cache import PrefixCache
from ensue.search.sampling import Sampling, next_tokens


@dataclass(frozen=True, slots=True)
class DrawnToken:
    """A token that a row drew, its log-probability, and the most probable alternatives."""

    token: int
    log_prob: float
    best: list[tuple[int, float]]
    last: bool
    """True if the row left: at its end token or its maximum length."""
    ended: bool
    """True if it is the end token."""


@dataclass(eq=False, slots=True)
class Row:
    """A text that is being generated."""

    prompt: Tensor  # (T,)
    how: Sampling
    ends: frozenset[int] = frozenset()
    """Tokens that end the text."""
    best: int = 0
    """The number of most probable tokens to report with each token."""
    generator: torch.Generator = field(init=False)
    drawn: list[int] = field(default_factory=list)
    """Its tokens so far."""

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(self.how.seed)

    def draw(self, log_probs: Tensor) -> DrawnToken:
        """The next token, from log P (V,)."""
        token = int(next_tokens(log_probs[None], self.how, self.generator))
        top = log_probs.topk(min(self.best, len(log_probs)))
        best = list(zip(top.indices.tolist(), top.values.tolist()))
        self.drawn.append(token)
        ended = token in self.ends
        return DrawnToken(token, float(log_probs[token]), best, ended or len(self.drawn) >= self.how.tokens, ended)


@dataclass(frozen=True, slots=True)
class PausedRow:
    """A row outside the batch, its state, and the logits of its next token."""

    row: Row
    state: Any
    logits: Tensor  # (1, V)


def _draw(row: Row, log_probs: Tensor) -> DrawnToken | Exception:
    """The next token of a row, or the error if its distribution is not finite: other rows continue."""
    try:
        return row.draw(log_probs)
    except RuntimeError as error:
        return error


def _repeated(output: StepOutput, counts: Sequence[int]) -> tuple[Any, Tensor]:
    """Repeat the state and the logits of row i ``counts[i]`` times; every copy has its own buffer."""
    index = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts)).to(output.logits.device)
    state = select_rows(output.state, index, len(counts))
    if len(index) > len(counts):  # rows that share a buffer would write into one that grows by all of them
        state = type(state).joined([state])
    return state, output.logits.index_select(0, index)


class ContinuousBatch:
    """The rows that a language model is generating."""

    def __init__(self, model: Any, prefixes: PrefixCache | None = None, *, store: bool = True) -> None:
        """With ``prefixes`` the states of rows that leave are stored, for rows that begin alike, if ``store``."""
        set_eval(model)
        self.model, self.prefixes, self._stores = model, prefixes, store
        self.rows: list[Row] = []
        self._state: Any = None
        self._logits = torch.zeros(0, 0)  # (R, V), for the next token of each row

    def __len__(self) -> int:
        return len(self.rows)

    @torch.no_grad()
    def join(self, rows: Sequence[Row]) -> None:
        """Read the prompts of new rows, in batches of equal length; they take part in the next step.

        Equal prompts are read once.
        """
        alike: dict[tuple[int, ...], list[Row]] = {}
        for row in rows:
            alike.setdefault(tuple(row.prompt.tolist()), []).append(row)
        joined, states, logits = [], [], []
        for prompts, output in self._read(list(alike), rows[0].prompt.device if rows else None):
            state, values = _repeated(output, [len(alike[prompt]) for prompt in prompts])
            states.append(state)
            logits.append(values)
            joined += [row for prompt in prompts for row in alike[prompt]]
        self._add(joined, states, logits)

    def _read(
        self, prompts: Sequence[tuple[int, ...]], device: torch.device | None
    ) -> Iterator[tuple[list[tuple[int, ...]], StepOutput]]:
        """Read prompts, those whose beginning was read before from there on, and yield them with their outputs."""
        new = []
        for prompt in prompts:
            prefix = None if self.prefixes is None else self.prefixes.take(prompt)
            if prefix is None:
                new.append(prompt)
            else:
                rest = torch.tensor([prompt[len(prefix.tokens) :]], device=device)
                yield [prompt], model_step(self.model, rest, prefix.state)
        for _, equal in groupby(sorted(new, key=len), key=len):
            several = list(equal)
            block = torch.tensor(several, device=device)
            yield several, model_step(self.model, block, self.model.start(len(several)))

    @torch.no_grad()
    def pause(self, rows: Sequence[Row]) -> list[PausedRow]:
        """Take rows out of the batch, to be put back by ``resume``; rows that already left are ignored."""
        wanted, paused = {id(row) for row in rows}, []
        for position, row in enumerate(self.rows):
            if id(row) in wanted:
                index = torch.tensor([position], device=self._logits.device)
                paused.append(PausedRow(row, self._state.rows(index), self._logits.index_select(0, index)))
        self.leave(rows)
        return paused

    @torch.no_grad()
    def resume(self, paused: Sequence[PausedRow]) -> None:
        """Put paused rows back; they take part in the next step."""
        self._add([one.row for one in paused], [one.state for one in paused], [one.logits for one in paused])

    def _add(self, rows: Sequence[Row], states: Sequence[Any], logits: Sequence[Tensor]) -> None:
        """Add rows that have been read to the end of the batch."""
        if not rows:
            return
        if self.rows:
            states, logits = [self._state, *states], [self._logits, *logits]
        self._state = type(states[0]).joined(states) if len(states) > 1 else states[0]
        self._logits = torch.cat(list(logits))
        self.rows += rows

    @torch.no_grad()
    def leave(self, rows: Sequence[Row], store: bool = False) -> None:
        """Remove rows before they end; rows that already left are ignored. ``store`` their states as prefixes."""
        gone = {id(row) for row in rows}
        if store:
            self._store({i: row.drawn for i, row in enumerate(self.rows) if id(row) in gone})
        self._keep([i for i, row in enumerate(self.rows) if id(row) not in gone])

    @torch.no_grad()
    def step(self) -> list[tuple[Row, DrawnToken | Exception]]:
        """Draw a token for every row. A row whose distribution is not finite gets the error and leaves."""
        log_probs = self._logits.cpu().double().log_softmax(-1)
        drawn = [(row, _draw(row, values)) for row, values in zip(self.rows, log_probs)]
        open_rows = {i: one.token for i, (_, one) in enumerate(drawn) if isinstance(one, DrawnToken) and not one.last}
        ended = {i: row.drawn[:-1] for i, (row, one) in enumerate(drawn) if isinstance(one, DrawnToken) and one.last}
        self._store(ended)  # the last token was drawn, and not read
        self._keep(list(open_rows))
        if self.rows:
            tokens = torch.tensor([[token] for token in open_rows.values()], device=self._logits.device)
            output = model_step(self.model, tokens, self._state)
            self._state, self._logits = output.state, output.logits
        return drawn

    def _keep(self, kept: list[int]) -> None:
        """Remove all other rows."""
        if len(kept) == len(self.rows):
            return
        self.rows = [self.rows[i] for i in kept]
        if not self.rows:
            self._state = None
            return
        index = torch.tensor(kept, device=self._logits.device)
        self._state, self._logits = self._state.rows(index), self._logits.index_select(0, index)

    def _store(self, left: Mapping[int, Sequence[int]]) -> None:
        """Store the states of rows by number, with what each read after its prompt."""
        for number, after in left.items() if self.prefixes is not None and self._stores else ():
            assert self.prefixes is not None
            read = [*self.rows[number].prompt.tolist(), *after]
            state = self._state.rows(torch.tensor([number], device=self._logits.device))
            cut = state.first(len(read), of=len(read))
            self.prefixes.put(read, state if cut is None else cut.fork())
