"""A choice of a completion as it is generated: its text, its log-probabilities and, with ``echo``, its prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

from ensue.data.tokenizers.protocol import Tokenizer, first_token
from ensue.measure.language import log_probs, most_probable
from ensue.runs.run import Run
from ensue.runs.stream_detokenizer import OVERLAP, StreamDetokenizer, added_text
from ensue.search.continuous_batching import DrawnToken, Row
from ensue.serve.schemas import LogProbs


def _empty() -> LogProbs:
    return LogProbs(tokens=[], token_logprobs=[], top_logprobs=[], text_offset=[])


@dataclass(frozen=True)
class Echo:
    """A prompt to return before the completion, with the log-probabilities of its tokens."""

    text: str = ""
    log_probs: LogProbs | None = None


@dataclass(eq=False)
class ChoiceBuilder:
    """Collects the tokens of one choice."""

    index: int
    row: Row
    prompt: list[int]
    detokenizer: StreamDetokenizer
    tokenizer: Tokenizer
    top: int | None
    """Number of alternatives to return with each token; None if log-probabilities are not asked for."""
    echo: Echo = Echo()
    tokens: list[int] = field(default_factory=list)
    drawn: list[DrawnToken] = field(default_factory=list)
    """The tokens with their log-probabilities, if asked for."""
    offsets: list[int] = field(default_factory=list)
    """Where the text of each of them begins."""
    finish_reason: Literal["stop", "length"] | None = None

    def add(self, drawn: DrawnToken) -> str:
        """Add a token; return the text that is now certain."""
        if self.top is not None:
            self.drawn.append(drawn)
            self.offsets.append(len(self.echo.text) + self.detokenizer.size)
        self.tokens.append(drawn.token)
        text = "" if drawn.ended else self.detokenizer.add(drawn.token)
        if drawn.last and not self.detokenizer.stopped:
            text += self.detokenizer.finish()
        if self.detokenizer.stopped or drawn.last:
            self.finish_reason = "stop" if self.detokenizer.stopped or drawn.ended else "length"
        return text

    def log_probs_since(self, start: int = 0) -> LogProbs | None:
        """The log-probabilities from token ``start`` on, if asked for; those of an echoed prompt come first."""
        if self.top is None:
            return None
        own = _empty()
        for position in range(start, len(self.drawn)):
            drawn, before = self.drawn[position], self.before(position)
            best = drawn.best if self.top else None
            _append(own, self.tokenizer, before, drawn.token, drawn.log_prob, best, self.offsets[position])
        if start or self.echo.log_probs is None:
            return own
        return LogProbs(**{name: values + getattr(own, name) for name, values in self.echo.log_probs})

    def before(self, position: int) -> list[int]:
        """The tokens before a position, as many as its text depends on."""
        return [*self.prompt[-OVERLAP:], *self.tokens[max(0, position - OVERLAP) : position]]


def _append(
    log_probs: LogProbs,
    tokenizer: Tokenizer,
    before: Sequence[int],
    token: int,
    log_prob: float,
    alternatives: Sequence[tuple[int, float]] | None,
    offset: int,
) -> None:
    """Append a token and its alternatives; the token itself is always among them."""
    name = added_text(tokenizer, before, token)
    log_probs.tokens.append(name)
    log_probs.token_logprobs.append(log_prob)
    log_probs.text_offset.append(offset)
    top = {added_text(tokenizer, before, other): value for other, value in reversed(alternatives or ())}
    log_probs.top_logprobs.append(None if alternatives is None else {**top, name: log_prob})


def echo_of(run: Run, prompt: Sequence[int], top: int | None) -> Echo:
    """The prompt as text, with log-probabilities and ``top`` alternatives for each token unless ``top`` is None."""
    tokenizer = run.tokenizer
    text = tokenizer.decode(list(prompt)) if prompt else ""
    if top is None or not prompt:
        return Echo(text)
    ids = torch.tensor([first_token(tokenizer), *prompt]).numpy()
    echo, offset = _empty(), 0
    for position, (token, log_prob, likely) in enumerate(
        zip(prompt, log_probs(run.model, ids, 1), most_probable(run.model, ids, top))
    ):
        before = list(prompt[max(0, position - OVERLAP) : position])
        _append(echo, tokenizer, before, token, float(log_prob), likely if top else None, offset)
        offset += len(tokenizer.decode([*before, token])) - (len(tokenizer.decode(before)) if before else 0)
    return Echo(text, echo)
