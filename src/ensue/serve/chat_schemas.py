"""Schemas of ``/v1/chat/completions``, as OpenAI's clients send and read them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from ensue.data.chat_template import Message
from ensue.serve.schemas import RequestSchema, SamplingRequest, Text, Usage

DEFAULT_TOKENS = 512
"""The most tokens of an answer if the request does not say."""


class TextPart(RequestSchema):
    """A part of a message that is text; pictures and sound are not supported."""

    type: Literal["text"]
    text: Text


class ChatMessage(RequestSchema):
    """A message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: Text | Annotated[list[TextPart], Field(min_length=1, max_length=64, fail_fast=True)]

    @property
    def message(self) -> Message:
        """The message, with its parts joined."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return Message(self.role, text)


class ResponseFormat(RequestSchema):
    """The form of the answer."""

    type: Annotated[str, Field(max_length=40)] = "text"


class ChatRequest(SamplingRequest):
    """Request of ``/v1/chat/completions``."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=1000, fail_fast=True)]
    max_tokens: Annotated[int, Field(ge=1, le=4096)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, le=4096)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    """The number of alternatives to return with each token; with ``logprobs`` only."""
    response_format: ResponseFormat | None = None
    tools: Annotated[list[Any], Field(max_length=128)] | None = None
    functions: Annotated[list[Any], Field(max_length=128)] | None = None
    """The last three are OpenAI's; they are rejected if they would have an effect."""

    @property
    def unsupported(self) -> str:
        """The first option that is set but not supported, or an empty string."""
        names = ("tools", "functions", "frequency_penalty", "presence_penalty", "logit_bias")
        other = self.response_format is not None and self.response_format.type != "text"
        return next((name for name in names if getattr(self, name)), "response_format" if other else "")

    @property
    def tokens(self) -> int:
        """Maximum number of tokens of each answer."""
        return self.max_completion_tokens or self.max_tokens or DEFAULT_TOKENS

    @property
    def top(self) -> int | None:
        """The number of alternatives with each token; None if log-probabilities are not asked for."""
        return (self.top_logprobs or 0) if self.logprobs else None

    @property
    def usage_always(self) -> bool:
        """True if every piece of a stream should have the usage so far."""
        return bool(self.stream_options and self.stream_options.continuous_usage_stats)


class Alternative(BaseModel):
    """A token that was possible, and its log-probability."""

    token: str
    """Its text, or its name if it is part of a character or a special token."""
    logprob: float
    """ln P before temperature, top-k and top-p; at least -9999."""
    bytes: list[int] | None
    """Its bytes in UTF-8, which may be part of a character; null for a special token."""


class TokenLogProb(Alternative):
    """A token of an answer, and the most probable ones in its position."""

    top_logprobs: list[Alternative]


class ChatLogProbs(BaseModel):
    """The tokens of an answer, or of a piece of one, without the token that ended it."""

    content: list[TokenLogProb]


class Delta(BaseModel):
    """An answer, or a piece of one; the first piece has the role."""

    role: Literal["assistant"] | None = None
    content: str = ""


class ChatChoice(BaseModel):
    """One answer, whole."""

    index: int
    message: Delta
    finish_reason: Literal["stop", "length"] | None
    logprobs: ChatLogProbs | None = None


class ChatCompletion(BaseModel):
    """Response of ``/v1/chat/completions``."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


class ChatPiece(BaseModel):
    """One answer, as a piece of a stream."""

    index: int
    delta: Delta
    finish_reason: Literal["stop", "length"] | None
    logprobs: ChatLogProbs | None = None


class ChatChunk(BaseModel):
    """A piece of a stream."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChatPiece]
    usage: Usage | None = None
