"""``/v1/completions``: texts that go on, whole or piece by piece, beside those of other clients."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

import torch
from fastapi import Request
from fastapi.responses import StreamingResponse

from ensue.data.tokenizers.protocol import Tokenizer
from ensue.search.continuous_batching import Drawn, Row
from ensue.serve.completion_choices import Echo, Going, echo_of
from ensue.serve.errors import Refused, failure
from ensue.serve.model_registry import Served, refusal_of
from ensue.serve.request_queue import gone
from ensue.serve.schemas import Choice, Completion, CompletionForm, Usage
from ensue.tasks.stream_detokenizer import GrowingText

MOST_PROMPT = 8192
"""Tokens of a prompt."""
MOST_TEXTS = 32
"""Prompts times choices."""
PATIENCE = 120.0
"""Seconds that a request may take."""

ENDS = {ord(letter): f"\\u{ord(letter):04x}" for letter in "\u0085\u2028\u2029"}
Piece = tuple[Going, str, int]
"""Whose it is, the text, and the number of the token it came with."""


async def complete(served: Served, form: CompletionForm, request: Request) -> Completion | StreamingResponse:
    """Let a prompt go on, or several."""
    served.engine()  # refuses a model that cannot, before anything is read
    given = form.prompt
    count = len(given) if isinstance(given, list) and given and not isinstance(given[0], int) else 1
    if count * form.choices > MOST_TEXTS:
        raise Refused(400, f"at most {MOST_TEXTS} texts are written for one request", param="n")
    if wish := form.unknown:
        raise Refused(400, f"{wish} is not known here", param=wish)
    prompts = _prompts(form, served.run.tokenizer)
    echoes = [Echo() for _ in prompts]
    if form.echo:
        echoes = await served.ask(lambda _: [echo_of(served.run, prompt, form.logprobs) for prompt in prompts], request)
    going = _going(form, prompts, echoes, served.run.tokenizer)
    facts: dict[str, Any] = {"id": f"cmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": served.name}
    read = sum(map(len, prompts))
    pieces = _pieces(served, going if form.tokens else [], request)
    if form.stream:
        first = await anext(pieces, None)  # what is refused is refused before a stream begins
        events = _stream(first, pieces, going, facts, read if form.usage_too else None)
        return StreamingResponse(events, media_type="text/event-stream")
    texts = [choice.echo.text for choice in going]
    async with aclosing(pieces):
        async for choice, piece, _ in pieces:
            texts[choice.index] += piece
    choices = [_choice(choice, texts[choice.index]) for choice in going]
    return Completion(**facts, choices=choices, usage=_usage(read, going))


def _choice(choice: Going, text: str, since: int = 0) -> Choice:
    """What is told of a choice that is done, or of its piece from the ``since``-th token on."""
    return Choice(text=text, index=choice.index, logprobs=choice.told(since), finish_reason=choice.reason)


def _usage(read: int, going: Sequence[Going]) -> Usage:
    written = sum(len(choice.tokens) for choice in going)
    return Usage(prompt_tokens=read, completion_tokens=written, total_tokens=read + written)


def _prompts(form: CompletionForm, tokenizer: Tokenizer) -> list[list[int]]:
    """The prompts as tokens."""
    given: Any = form.prompt or ""
    whole = isinstance(given, str) or isinstance(given[0], int)
    found = [_tokens(one, tokenizer) for one in ([given] if whole else given)]
    if max(map(len, found)) > MOST_PROMPT:
        raise Refused(400, f"a prompt has at most {MOST_PROMPT:,} tokens", param="prompt")
    return found


def _tokens(prompt: str | list[int], tokenizer: Tokenizer) -> list[int]:
    """One prompt, a text or tokens already."""
    if isinstance(prompt, str):
        encoded: list[int] = tokenizer.encode(prompt).tolist()
        return encoded
    wrong = [token for token in prompt if token >= tokenizer.size]
    if wrong:
        raise Refused(400, f"there is no token {wrong[0]}", param="prompt")
    return prompt


def _going(
    form: CompletionForm, prompts: Sequence[list[int]], echoes: Sequence[Echo], tokenizer: Tokenizer
) -> list[Going]:
    """A row for every choice of every prompt."""
    stops = [form.stop] if isinstance(form.stop, str) else form.stop or []
    seed = secrets.randbelow(2**62) if form.seed is None else form.seed
    end = None if tokenizer.lines else tokenizer.end
    found: list[Going] = []
    for prompt, echo in zip(prompts, echoes):
        for number in range(form.choices):
            begun = torch.tensor([tokenizer.end, *prompt])
            row = Row(begun, form.sampling(number, seed), end, form.logprobs or 0)
            growing = GrowingText(tokenizer, prompt, stops)
            found.append(Going(len(found), row, prompt, growing, tokenizer, form.logprobs, echo))
            found[-1].reason = None if form.tokens else "length"
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
    leaving, coming = asyncio.ensure_future(gone(request)), None
    try:
        while open_:
            coming = asyncio.ensure_future(queue.get())
            await asyncio.wait({coming, leaving}, timeout=until - loop.time(), return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                raise Refused(408, "the client has gone" if leaving.done() else "this took too long")
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
            yield choice, piece, len(choice.tokens) - 1
    finally:
        for waited in (leaving, coming):
            if waited is not None:
                waited.cancel()
        engine.leave([one.row for one in open_.values()])


async def _stream(
    first: Piece | None,
    pieces: AsyncGenerator[Piece, None],
    going: Sequence[Going],
    facts: dict[str, Any],
    read: int | None,
) -> AsyncIterator[str]:
    """Pieces as events; the first of a choice has its prompt, where that is told. ``read`` is told with the usage."""
    begun: set[int] = set()

    def event(choice: Going, piece: str, since: int) -> str:
        head = "" if choice.index in begun else choice.echo.text
        begun.add(choice.index)
        return _event(Completion(**facts, choices=[_choice(choice, head + piece, since)]))

    async with aclosing(pieces):  # a client that goes away ends this here, and its rows with it
        try:
            for choice in going if first is None else ():
                yield event(choice, "", 0)
            if first is not None:
                yield event(*first)
            async for choice, piece, since in pieces:
                yield event(choice, piece, since)
            if read is not None:
                yield _event(Completion(**facts, choices=[], usage=_usage(read, going)))
        except Exception as error:
            if not isinstance(error, Refused):
                logging.getLogger("ensue.serve").exception("a stream failed")
            yield _event(failure(error if isinstance(error, Refused) else Refused(500, "the server failed")))
    yield "data: [DONE]\n\n"


def _event(told: Any) -> str:
    """An event; letters that some clients take for the end of a line are written as their numbers."""
    return f"data: {told.model_dump_json().translate(ENDS)}\n\n"
