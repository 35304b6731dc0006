"""``/v1/completions``: texts that go on, whole or piece by piece, beside those of other clients."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from fastapi import Request
from fastapi.responses import StreamingResponse

from ensue.data.tokenizers.protocol import Tokenizer
from ensue.measure.language import log_probs
from ensue.search.sampling import Sampling
from ensue.search.together import Drawn, Row
from ensue.serve.forms import Choice, Completion, CompletionForm, LogProbs, Usage
from ensue.serve.hall import Served, refusal_of
from ensue.serve.refusals import Refused, failure
from ensue.tasks.growing import GrowingText

MOST_PROMPT = 8192
"""Tokens of a prompt."""
MOST_TEXTS = 32
"""Prompts times choices."""
PATIENCE = 120.0
"""Seconds that a request may take."""


@dataclass(eq=False)
class Going:
    """One continuation, as it grows."""

    index: int
    row: Row
    growing: GrowingText
    tokenizer: Tokenizer
    offset: int
    best: int | None
    names: list[str] = field(default_factory=list)
    costs: list[float | None] = field(default_factory=list)
    tops: list[dict[str, float] | None] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    reason: Literal["stop", "length"] | None = None

    def add(self, one: Drawn) -> str:
        """What can be told after one more token."""
        self.names.append(self.tokenizer.name(one.token))
        self.costs.append(one.log_prob)
        self.tops.append({self.tokenizer.name(token): value for token, value in one.best})
        self.offsets.append(self.offset + self.growing.size)
        piece = "" if one.ended else self.growing.add(one.token)
        if one.last and not self.growing.stopped:
            piece += self.growing.finish()
        if self.growing.stopped or one.last:
            self.reason = "stop" if self.growing.stopped or one.ended else "length"
        return piece

    def told(self, since: int = 0) -> LogProbs | None:
        """What tokens cost, from the ``since``-th on, where that was asked for."""
        if self.best is None:
            return None
        return LogProbs(
            tokens=self.names[since:],
            token_logprobs=self.costs[since:],
            top_logprobs=self.tops[since:] if self.best else [None] * len(self.names[since:]),
            text_offset=self.offsets[since:],
        )


Piece = tuple[Going, str, int]
"""Whose it is, the text, and the number of the token it came with."""


async def complete(served: Served, form: CompletionForm, request: Request) -> Completion | StreamingResponse:
    """Let a prompt go on, or several."""
    served.engine()  # refuses a model that cannot, before anything is read
    count = len(form.prompt) if isinstance(form.prompt, list) and isinstance(form.prompt[0], str) else 1
    if count * form.n > MOST_TEXTS:
        raise Refused(400, f"at most {MOST_TEXTS} texts are written for one request", param="n")
    prompts = _prompts(form, served.run.tokenizer)
    going = _going(form, prompts, served.run.tokenizer)
    echoes = [await _echo(served, form, prompt) for prompt in prompts] if form.echo else []
    heads = [echo.text for echo in echoes for _ in range(form.n)] or [""] * len(going)
    facts: dict[str, Any] = {"id": f"cmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": served.name}
    pieces = _pieces(served, going, request)
    if form.stream:
        first = await anext(pieces)  # what is refused is refused before a stream begins
        return StreamingResponse(_stream(first, pieces, heads, facts), media_type="text/event-stream")
    texts = [*heads]
    async with aclosing(pieces):
        async for choice, piece, _ in pieces:
            texts[choice.index] += piece
    read, written = sum(map(len, prompts)), sum(len(choice.names) for choice in going)
    choices = [
        Choice(
            text=texts[choice.index],
            index=choice.index,
            logprobs=_with_echo(echoes[choice.index // form.n] if echoes else None, choice),
            finish_reason=choice.reason,
        )
        for choice in going
    ]
    usage = Usage(prompt_tokens=read, completion_tokens=written, total_tokens=read + written)
    return Completion(**facts, choices=choices, usage=usage)


def _prompts(form: CompletionForm, tokenizer: Tokenizer) -> list[list[int]]:
    """The prompts as tokens."""
    given = form.prompt
    if isinstance(given, str):
        found = [tokenizer.encode(given).tolist()]
    elif given and isinstance(given[0], int):
        wrong = [token for token in given if int(token) >= tokenizer.size]
        if wrong:
            raise Refused(400, f"there is no token {wrong[0]}", param="prompt")
        found = [[int(token) for token in given]]
    else:
        found = [tokenizer.encode(str(text)).tolist() for text in given]
    if max(map(len, found)) > MOST_PROMPT:
        raise Refused(400, f"a prompt has at most {MOST_PROMPT:,} tokens", param="prompt")
    return found


def _going(form: CompletionForm, prompts: Sequence[list[int]], tokenizer: Tokenizer) -> list[Going]:
    """A row for every choice of every prompt."""
    stops = [form.stop] if isinstance(form.stop, str) else form.stop or []
    seed = secrets.randbelow(2**62) if form.seed is None else form.seed
    end = None if tokenizer.lines else tokenizer.end
    found = []
    for number, prompt in enumerate(prompts):
        before = len(tokenizer.decode(prompt)) if form.echo and prompt else 0
        for i in range(form.n):
            how = Sampling(
                tokens=form.max_tokens,
                temperature=form.temperature,
                top_k=form.top_k,
                top_p=form.top_p,
                seed=(seed + i) % 2**63,
            )
            row = Row(torch.tensor([tokenizer.end, *prompt]), how, end, form.logprobs or 0)
            growing = GrowingText(tokenizer, prompt, stops)
            found.append(Going(number * form.n + i, row, growing, tokenizer, before, form.logprobs))
    return found


async def _pieces(served: Served, going: Sequence[Going], request: Request) -> AsyncGenerator[Piece, None]:
    """What can be told, as it comes."""
    queue: asyncio.Queue[tuple[Row, Drawn | Exception]] = asyncio.Queue()
    loop, engine, open_ = asyncio.get_running_loop(), served.engine(), {id(one.row): one for one in going}

    def deliver(row: Row, one: Drawn | Exception) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(queue.put_nowait, (row, one))

    try:
        engine.submit([one.row for one in going], deliver)
    except Exception as error:
        raise refusal_of(error) or error from error
    until = loop.time() + PATIENCE
    gone, coming = asyncio.ensure_future(_gone(request)), None
    try:
        while open_:
            coming = asyncio.ensure_future(queue.get())
            await asyncio.wait({coming, gone}, timeout=until - loop.time(), return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                raise Refused(408, "the client has gone" if gone.done() else "this took too long")
            row, one = coming.result()
            choice = open_.get(id(row))
            if choice is None:
                continue
            if isinstance(one, Exception):
                raise refusal_of(one) or one
            piece = choice.add(one)
            if choice.reason is not None:
                del open_[id(row)]
                if not one.last:
                    engine.leave([row])
            yield choice, piece, len(choice.names) - 1
    finally:
        for waited in (gone, coming):
            if waited is not None:
                waited.cancel()
        engine.leave([one.row for one in open_.values()])


async def _gone(request: Request) -> None:
    """Ends when the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        continue


async def _stream(
    first: Piece, pieces: AsyncGenerator[Piece, None], heads: Sequence[str], facts: dict[str, Any]
) -> AsyncIterator[str]:
    """Pieces as events."""
    begun: set[int] = set()

    def event(choice: Going, piece: str, at: int) -> str:
        head = "" if choice.index in begun else heads[choice.index]
        begun.add(choice.index)
        told = Choice(text=head + piece, index=choice.index, logprobs=choice.told(at), finish_reason=choice.reason)
        return f"data: {Completion(**facts, choices=[told]).model_dump_json()}\n\n"

    async with aclosing(pieces):  # a client that goes away ends this here, and its rows with it
        yield event(*first)
        try:
            async for choice, piece, at in pieces:
                yield event(choice, piece, at)
        except Exception as error:
            if not isinstance(error, Refused):
                logging.getLogger("ensue.serve").exception("a stream failed")
            said = failure(error if isinstance(error, Refused) else Refused(500, "the server failed; its log says how"))
            yield f"data: {said.model_dump_json()}\n\n"
    yield "data: [DONE]\n\n"


@dataclass(frozen=True)
class _Echo:
    """A prompt that is told again, with what its tokens cost."""

    text: str
    told: LogProbs | None


async def _echo(served: Served, form: CompletionForm, prompt: list[int]) -> _Echo:
    tokenizer, run = served.run.tokenizer, served.run
    text = tokenizer.decode(prompt) if prompt else ""
    if form.logprobs is None or not prompt:
        return _Echo(text, None)

    def told() -> LogProbs:
        ids = torch.tensor([tokenizer.end, *prompt]).numpy()
        return LogProbs(
            tokens=[tokenizer.name(token) for token in prompt],
            token_logprobs=[float(cost) for cost in log_probs(run.model, ids, 1)],
            top_logprobs=[None] * len(prompt),
            text_offset=_begins(tokenizer, prompt),
        )

    return _Echo(text, await served.ask(told))


def _begins(tokenizer: Tokenizer, tokens: list[int]) -> list[int]:
    """Where the text of each token begins, as far as the few tokens before it say."""
    found, at = [], 0
    for place in range(len(tokens)):
        found.append(at)
        before = tokens[max(0, place - 8) : place]
        at += len(tokenizer.decode([*before, tokens[place]])) - (len(tokenizer.decode(before)) if before else 0)
    return found


def _with_echo(echo: _Echo | None, choice: Going) -> LogProbs | None:
    """What tokens cost, those of the prompt before those that were drawn."""
    own = choice.told()
    if echo is None or echo.told is None or own is None:
        return own
    before = echo.told
    return LogProbs(
        tokens=before.tokens + own.tokens,
        token_logprobs=before.token_logprobs + own.token_logprobs,
        top_logprobs=before.top_logprobs + own.top_logprobs,
        text_offset=before.text_offset + own.text_offset,
    )
