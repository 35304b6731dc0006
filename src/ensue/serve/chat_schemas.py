"""Schemas of ``/v1/chat/completions``, as OpenAI's clients send and read them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from ensue.data.chat_template import Message
from ensue.search.sampling import Sampling
from ensue.serve.schemas import Biases, ModelRequest, RequestSchema, Stop, StreamOptions, Text, Usage

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


class ChatRequest(ModelRequest):
    """Request of ``/v1/chat/completions``; null means the default."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=1000, fail_fast=True)]
    max_tokens: Annotated[int, Field(ge=1, le=4096)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, le=4096)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] | None = 1.0
    top_k: Annotated[int, Field(ge=0, le=1_000_000)] | None = 0
    n: Annotated[int, Field(ge=1, le=16)] | None = 1
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=4)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    logit_bias: Biases | None = None
    response_format: ResponseFormat | None = None
    tools: Annotated[list[Any], Field(max_length=128)] | None = None
    functions: Annotated[list[Any], Field(max_length=128)] | None = None
    """From ``logprobs`` on these are OpenAI's; they are rejected if they would have an effect."""

    @property
    def unsupported(self) -> str:
        """The first option that is set but not supported, or an empty string."""
        names = (
            "tools",
            "functions",
            "logprobs",
            "top_logprobs",
            "frequency_penalty",
            "presence_penalty",
            "logit_bias",
        )
        other = self.response_format is not None and self.response_format.type != "text"
        return next((name for name in names if getattr(self, name)), "response_format" if other else "")

    @property
    def tokens(self) -> int:
        """The most tokens of each answer."""
        return self.max_completion_tokens or self.max_tokens or DEFAULT_TOKENS

    @property
    def choices(self) -> int:
        """The number of answers."""
        return 1 if self.n is None else self.n

    @property
    def stops(self) -> list[str]:
        """Texts that end an answer."""
        return [self.stop] if isinstance(self.stop, str) else list(self.stop or ())

    def sampling(self, number: int, seed: int) -> Sampling:
        """Sampling options of one answer."""
        return Sampling(
            tokens=self.tokens,
            temperature=1.0 if self.temperature is None else self.temperature,
            top_k=self.top_k or 0,
            top_p=1.0 if self.top_p is None else self.top_p,
            seed=(seed + number) % 2**63,
        )


class Delta(BaseModel):
    """An answer, or a piece of one; the first piece has the role."""

    role: Literal["assistant"] | None = None
    content: str = ""


class ChatChoice(BaseModel):
    """One answer, whole."""

    index: int
    message: Delta
    finish_reason: Literal["stop", "length"] | None
    logprobs: None = None


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
    logprobs: None = None


class ChatChunk(BaseModel):
    """A piece of a stream."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChatPiece]
    usage: Usage | None = None
