"""``/v1/chat/completions``: the next message of a conversation, whole or streamed, batched with other requests."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import torch
from fastapi import Request
from fastapi.responses import StreamingResponse

from ensue.core.errors import InputError
from ensue.runs.chat import stop_tokens
from ensue.runs.stream_detokenizer import StreamDetokenizer
from ensue.search.continuous_batching import Row
from ensue.serve.chat_log_probs import chat_log_probs
from ensue.serve.chat_schemas import ChatChoice, ChatChunk, ChatCompletion, ChatPiece, ChatRequest, Delta
from ensue.serve.completion_choices import ChoiceBuilder
from ensue.serve.completions_api import (
    MAX_AHEAD,
    MAX_PROMPT_TOKENS,
    Piece,
    choice_pieces,
    event,
    event_stream,
    usage_of,
)
from ensue.serve.errors import ApiError
from ensue.serve.model_registry import ServedModel

TEXT_ONLY = ("tools", "functions", "response_format")
"""Options that ask for something else than text."""


async def create_chat_completion(
    model: ServedModel, body: ChatRequest, request: Request
) -> ChatCompletion | StreamingResponse:
    """Answer a conversation."""
    model.engine()  # raises ApiError if the model cannot complete text
    if name := body.unsupported:
        why = ": models here answer with plain text" if name in TEXT_ONLY else ""
        raise ApiError(400, f"{name} is not supported{why}", param=name)
    if body.top_logprobs and not body.logprobs:
        raise ApiError(400, "top_logprobs needs logprobs: true", param="top_logprobs")
    builders = _builders(model, body, await _prompt(model, body, request))
    prompt_tokens = len(builders[0].prompt)
    facts: dict[str, Any] = {
        "id": f"chatcmpl-{secrets.token_hex(12)}",
        "created": int(time.time()),
        "model": model.name,
    }
    pieces = choice_pieces(model, builders, request, MAX_AHEAD if body.stream else None)
    if not body.stream:
        texts = [""] * len(builders)
        async with aclosing(pieces):
            async for builder, piece, _ in pieces:
                texts[builder.index] += piece
        choices = [
            ChatChoice(
                index=one.index,
                message=Delta(role="assistant", content=text),
                finish_reason=one.finish_reason,
                logprobs=chat_log_probs(one),
            )
            for one, text in zip(builders, texts)
        ]
        return ChatCompletion(**facts, choices=choices, usage=usage_of(prompt_tokens, builders))
    started: set[int] = set()

    def chunk(piece: Piece) -> str:
        builder, text, start = piece
        role = None if builder.index in started else "assistant"
        started.add(builder.index)
        delta = Delta(role=role, content=text)  # type: ignore[arg-type]
        found = chat_log_probs(builder, start)
        choice = ChatPiece(index=builder.index, delta=delta, finish_reason=builder.finish_reason, logprobs=found)
        usage = usage_of(prompt_tokens, builders) if body.usage_always else None
        return event(ChatChunk(**facts, choices=[choice], usage=usage))

    def last() -> Sequence[str]:
        usage = ChatChunk(**facts, choices=[], usage=usage_of(prompt_tokens, builders))
        return [event(usage)] if body.usage_too else []

    first = await anext(pieces)  # errors come before the stream starts, with their status
    events = event_stream([first], pieces, chunk, last, model.names)
    return StreamingResponse(events, media_type="text/event-stream")


async def _prompt(model: ServedModel, body: ChatRequest, request: Request) -> list[int]:
    """The messages as tokens, by the model's template; on a thread, since a template is a program."""
    messages = [one.message for one in body.messages]
    try:
        tokens = await model.tokenising.run(lambda _: model.chat_template.tokens(messages), request)
    except InputError as error:
        raise ApiError(400, model.names.message(str(error)), param="messages") from error
    if len(tokens) > MAX_PROMPT_TOKENS:
        raise ApiError(400, f"a conversation may have at most {MAX_PROMPT_TOKENS:,} tokens", param="messages")
    found: list[int] = tokens.tolist()
    return found


def _builders(model: ServedModel, body: ChatRequest, prompt: list[int]) -> list[ChoiceBuilder]:
    """A builder for every answer."""
    run, seed = model.run, secrets.randbelow(2**62) if body.seed is None else body.seed
    builders = []
    for number in range(body.choices):
        row = Row(torch.tensor(prompt), body.sampling(number, seed), stop_tokens(run), body.top or 0)
        detokenizer = StreamDetokenizer(run.tokenizer, prompt, body.stops)
        builders.append(ChoiceBuilder(number, row, prompt, detokenizer, run.tokenizer, body.top))
    return builders
