"""One choice of a completion as it grows: its text, what its tokens cost, and the prompt where that is told again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

from ensue.data.tokenizers.protocol import Tokenizer
from ensue.measure.language import likeliest, log_probs
from ensue.runs.run import Run
from ensue.search.continuous_batching import Drawn, Row
from ensue.serve.schemas import LogProbs
from ensue.tasks.stream_detokenizer import OVERLAP, GrowingText, added


@dataclass(frozen=True)
class Echo:
    """A prompt that is told again, with what its tokens cost."""

    text: str = ""
    told: LogProbs | None = None


@dataclass(eq=False)
class Going:
    """One continuation, as it grows."""

    index: int
    row: Row
    prompt: list[int]
    growing: GrowingText
    tokenizer: Tokenizer
    best: int | None
    """How many of the likeliest tokens are told with each; None where costs are not asked for."""
    echo: Echo = Echo()
    tokens: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    costs: list[float | None] = field(default_factory=list)
    tops: list[dict[str, float] | None] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    reason: Literal["stop", "length"] | None = None

    def add(self, one: Drawn) -> str:
        """What can be told after one more token."""
        if self.best is not None:
            self._note(one)
        self.tokens.append(one.token)
        piece = "" if one.ended else self.growing.add(one.token)
        if one.last and not self.growing.stopped:
            piece += self.growing.finish()
        if self.growing.stopped or one.last:
            self.reason = "stop" if self.growing.stopped or one.ended else "length"
        return piece

    def _note(self, one: Drawn) -> None:
        """Keep what the token is, what it cost, and what else was likely: the token itself is always among those."""
        before = [*self.prompt, *self.tokens]
        self.names.append(added(self.tokenizer, before, one.token))
        self.costs.append(one.log_prob)
        likely = {added(self.tokenizer, before, token): value for token, value in reversed(one.best)}
        self.tops.append({**likely, self.names[-1]: one.log_prob} if self.best else None)
        self.offsets.append(len(self.echo.text) + self.growing.size)

    def told(self, since: int = 0) -> LogProbs | None:
        """What tokens cost, from the ``since``-th on, where that was asked for; the prompt's before the first."""
        if self.best is None:
            return None
        before = self.echo.told if since == 0 else None
        own = LogProbs(
            tokens=self.names[since:],
            token_logprobs=self.costs[since:],
            top_logprobs=self.tops[since:],
            text_offset=self.offsets[since:],
        )
        return own if before is None else joined(before, own)


def joined(first: LogProbs, second: LogProbs) -> LogProbs:
    """What tokens cost, those of one text before those of another."""
    return LogProbs(
        tokens=first.tokens + second.tokens,
        token_logprobs=first.token_logprobs + second.token_logprobs,
        top_logprobs=first.top_logprobs + second.top_logprobs,
        text_offset=first.text_offset + second.text_offset,
    )


def echo_of(run: Run, prompt: Sequence[int], best: int | None) -> Echo:
    """A prompt as text, with what its tokens cost and the ``best`` in their places, where that is asked for."""
    tokenizer = run.tokenizer
    text = tokenizer.decode(list(prompt)) if prompt else ""
    if best is None or not prompt:
        return Echo(text)
    ids = torch.tensor([tokenizer.end, *prompt]).numpy()
    costs = [float(cost) for cost in log_probs(run.model, ids, 1)]
    names, tops = [], []
    for place, (token, cost, likely) in enumerate(zip(prompt, costs, likeliest(run.model, ids, best))):
        before = prompt[max(0, place - OVERLAP) : place]
        names.append(added(tokenizer, before, token))
        told = {added(tokenizer, before, one): value for one, value in reversed(likely)}
        tops.append({**told, names[-1]: cost} if best else None)
    found = LogProbs(
        tokens=names, token_logprobs=list(costs), top_logprobs=tops, text_offset=_begins(tokenizer, prompt)
    )
    return Echo(text, found)


def _begins(tokenizer: Tokenizer, tokens: Sequence[int]) -> list[int]:
    """Where the text of each token begins, as far as the few tokens before it say."""
    found, at = [], 0
    for place in range(len(tokens)):
        found.append(at)
        before = list(tokens[max(0, place - OVERLAP) : place])
        at += len(tokenizer.decode([*before, tokens[place]])) - (len(tokenizer.decode(before)) if before else 0)
    return found
