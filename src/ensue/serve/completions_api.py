"""``/v1/completions``: text completion, whole or streamed, batched with the requests of other clients."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any

import torch
from fastapi import Request
from fastapi.responses import StreamingResponse

from ensue.data.tokenizers.protocol import Tokenizer, first_token
from ensue.runs.chat import stop_tokens
from ensue.runs.run import Run
from ensue.runs.stream_detokenizer import StreamDetokenizer
from ensue.search.continuous_batching import DrawnToken, Row
from ensue.serve.completion_choices import ChoiceBuilder, Echo, echo_of
from ensue.serve.engine import EngineClosed
from ensue.serve.errors import ApiError, error_body
from ensue.serve.model_registry import ServedModel, api_error
from ensue.serve.path_names import PathNames
from ensue.serve.request_queue import REQUEST_TIMEOUT, disconnected
from ensue.serve.schemas import Choice, Completion, CompletionRequest, Usage

MAX_PROMPT_TOKENS = 8192
MAX_TEXTS = 32
"""Prompts times choices of one request."""
SHORT_PROMPTS = 2000
"""Characters of all prompts that are tokenised at once; longer ones are tokenised on a thread."""
MAX_AHEAD = 64
"""Tokens that a stream may be ahead of what its client has received."""

LINE_SEPARATORS = {ord(letter): f"\\u{ord(letter):04x}" for letter in "\u0085\u2028\u2029"}
"""Characters to escape in events: some clients take them for the end of a line."""
Piece = tuple[ChoiceBuilder, str, int]
"""A choice, the text to add to it, and the index of its last token."""


async def create_completion(
    model: ServedModel, body: CompletionRequest, request: Request
) -> Completion | StreamingResponse:
    """Complete one or several prompts."""
    model.engine()  # raises ApiError if the model cannot complete text
    if len(body.prompts) * body.choices > MAX_TEXTS:
        raise ApiError(400, f"a request may ask for at most {MAX_TEXTS} texts", param="n")
    if name := body.unsupported:
        raise ApiError(400, f"{name} is not supported", param=name)
    prompts = await _tokenised(model, body.prompts, request)
    if max(map(len, prompts)) > MAX_PROMPT_TOKENS:
        raise ApiError(400, f"a prompt may have at most {MAX_PROMPT_TOKENS:,} tokens", param="prompt")
    echoes = [Echo() for _ in prompts]
    if body.echo:
        echoes = await model.ask(lambda _: [echo_of(model.run, prompt, body.logprobs) for prompt in prompts], request)
    builders = _choice_builders(body, prompts, echoes, model.run)
    facts: dict[str, Any] = {"id": f"cmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": model.name}
    prompt_tokens = sum(map(len, prompts))
    ahead = MAX_AHEAD if body.stream else None
    pieces = choice_pieces(model, builders if body.tokens else [], request, ahead)
    if body.stream:
        first = await anext(pieces, None)  # errors come before the stream starts, with their status
        before = [(builder, "", 0) for builder in builders] if first is None else [first]
        started: set[int] = set()

        def render(piece: Piece) -> str:
            """An echoed prompt comes with the first piece of a choice."""
            builder, text, start = piece
            head = "" if builder.index in started else builder.echo.text
            started.add(builder.index)
            return event(Completion(**facts, choices=[_choice(builder, head + text, start)]))

        def last() -> Sequence[str]:
            asked = Completion(**facts, choices=[], usage=usage_of(prompt_tokens, builders))
            return [event(asked)] if body.usage_too else []

        events = event_stream(before, pieces, render, last, model.names)
        return StreamingResponse(events, media_type="text/event-stream")
    texts = [builder.echo.text for builder in builders]
    async with aclosing(pieces):
        async for builder, piece, _ in pieces:
            texts[builder.index] += piece
    choices = [_choice(builder, texts[builder.index]) for builder in builders]
    return Completion(**facts, choices=choices, usage=usage_of(prompt_tokens, builders))


def _choice(builder: ChoiceBuilder, text: str, start: int = 0) -> Choice:
    """A finished choice, or its piece from token ``start`` on."""
    log_probs = builder.log_probs_since(start)
    return Choice(text=text, index=builder.index, logprobs=log_probs, finish_reason=builder.finish_reason)


def usage_of(prompt_tokens: int, builders: Sequence[ChoiceBuilder]) -> Usage:
    """How many tokens were read and generated."""
    generated = sum(len(builder.tokens) for builder in builders)
    return Usage(prompt_tokens=prompt_tokens, completion_tokens=generated, total_tokens=prompt_tokens + generated)


async def _tokenised(model: ServedModel, prompts: Sequence[str | list[int]], request: Request) -> list[list[int]]:
    """Prompts as token ids. Long ones are tokenised one at a time on a thread, so that other clients are answered."""

    def tokenise() -> list[list[int]]:
        return [_token_ids(prompt, model.run.tokenizer) for prompt in prompts]

    if sum(map(len, prompts)) <= SHORT_PROMPTS:
        return tokenise()
    return await model.tokenising.run(lambda _: tokenise(), request)


def _token_ids(prompt: str | list[int], tokenizer: Tokenizer) -> list[int]:
    """A prompt, given as text or as token ids, as token ids."""
    if isinstance(prompt, str):
        encoded: list[int] = tokenizer.encode(prompt).tolist()
        return encoded
    unknown = [token for token in prompt if token >= tokenizer.size]
    if unknown:
        raise ApiError(400, f"there is no token {unknown[0]}", param="prompt")
    return prompt


def _choice_builders(
    body: CompletionRequest, prompts: Sequence[list[int]], echoes: Sequence[Echo], run: Run
) -> list[ChoiceBuilder]:
    """A builder for every choice of every prompt."""
    seed = secrets.randbelow(2**62) if body.seed is None else body.seed
    tokenizer, ends = run.tokenizer, stop_tokens(run)
    builders: list[ChoiceBuilder] = []
    for prompt, echo in zip(prompts, echoes):
        for number in range(body.choices):
            ids = torch.tensor([first_token(tokenizer), *prompt])
            row = Row(ids, body.sampling(number, seed), ends, body.logprobs or 0)
            detokenizer = StreamDetokenizer(tokenizer, prompt, body.stops)
            builders.append(ChoiceBuilder(len(builders), row, prompt, detokenizer, tokenizer, body.logprobs, echo))
            builders[-1].finish_reason = None if body.tokens else "length"
    return builders


async def choice_pieces(
    model: ServedModel, builders: Sequence[ChoiceBuilder], request: Request, ahead: int | None
) -> AsyncGenerator[Piece, None]:
    """Text as it is decoded, at most ``ahead`` tokens before it is asked for."""
    queue: asyncio.Queue[tuple[Row, DrawnToken | Exception]] = asyncio.Queue()
    loop, engine = asyncio.get_running_loop(), model.engine()
    unfinished = {id(builder.row): builder for builder in builders}

    def take(row: Row, token: DrawnToken | Exception) -> None:
        while isinstance(token, EngineClosed) and not queue.empty():  # a slow client would not get to the error in time
            queue.get_nowait()
        queue.put_nowait((row, token))

    def deliver(row: Row, token: DrawnToken | Exception) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(take, row, token)

    try:
        engine.submit([builder.row for builder in builders], deliver, ahead)
    except Exception as error:
        raise api_error(error) or error from error
    deadline = loop.time() + REQUEST_TIMEOUT
    leaving, coming = asyncio.ensure_future(disconnected(request)), None
    try:
        while unfinished:
            coming = asyncio.ensure_future(queue.get())
            await asyncio.wait({coming, leaving}, timeout=deadline - loop.time(), return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                raise ApiError(408, "the client disconnected" if leaving.done() else "the request took too long")
            row, token = coming.result()
            builder = unfinished.get(id(row))
            if builder is None:
                continue
            if isinstance(token, Exception):
                raise api_error(token) or token
            piece = builder.add(token)
            if builder.finish_reason is not None:
                del unfinished[id(row)]
                if not token.last:
                    engine.cancel([row])
            yield builder, piece, len(builder.tokens) - 1
            engine.taken(row)
    finally:
        for future in (leaving, coming):
            if future is not None:
                future.cancel()
        engine.cancel([builder.row for builder in unfinished.values()])


async def event_stream(
    before: Sequence[Piece],
    pieces: AsyncGenerator[Piece, None],
    render: Callable[[Piece], str],
    last: Callable[[], Sequence[str]],
    names: PathNames,
) -> AsyncIterator[str]:
    """Pieces as server-sent events: those that are there already, those that come, and what ``last`` adds."""
    async with aclosing(pieces):  # closes the generator, and cancels its rows, when the client disconnects
        try:
            for piece in before:
                yield render(piece)
            async for piece in pieces:
                yield render(piece)
            for one in last():
                yield one
        except Exception as error:
            if not isinstance(error, ApiError):
                logging.getLogger("ensue.serve").exception("a stream failed")
                error = ApiError(500, "internal server error")
            yield event(error_body(ApiError(error.status, names.message(error.message), param=error.param)))
    yield "data: [DONE]\n\n"


def event(body: Any) -> str:
    """A response, or a piece of one, as a server-sent event."""
    return f"data: {body.model_dump_json().translate(LINE_SEPARATORS)}\n\n"
