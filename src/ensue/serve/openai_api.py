"""The OpenAI-compatible API under ``/v1``."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from ensue.serve import schemas
from ensue.serve.chat_api import create_chat_completion
from ensue.serve.chat_schemas import ChatCompletion, ChatRequest
from ensue.serve.completions_api import create_completion
from ensue.serve.errors import ApiError
from ensue.serve.model_registry import ModelRegistry

MAX_CHARACTERS = 100_000
"""Total length of the texts of one request."""
EVENT: dict[str, Any] = {
    "type": "object",
    "required": ["data"],
    "properties": {"data": {"type": "string", "description": "a piece of the completion as JSON; [DONE] at the end"}},
}
STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "the completion, or its pieces as server-sent events if stream is true",
        "content": {"text/event-stream": {"itemSchema": EVENT}},
    }
}


def add_openai_routes(app: FastAPI, registry: ModelRegistry) -> None:
    """Add ``/v1/models``, ``/v1/completions``, ``/v1/chat/completions`` and ``/v1/embeddings``."""

    @app.get("/v1/models")
    async def models() -> schemas.ModelList:
        return schemas.ModelList(data=[model.card for model in registry.models.values()])

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> schemas.ModelCard:
        return registry.get(name).card

    @app.post("/v1/completions", response_model=schemas.Completion, responses=STREAM)
    async def completions(body: schemas.CompletionRequest, request: Request) -> schemas.Completion | StreamingResponse:
        return await create_completion(registry.get(body.model), body, request)

    @app.post("/v1/chat/completions", response_model=ChatCompletion, responses=STREAM)
    async def chat(body: ChatRequest, request: Request) -> ChatCompletion | StreamingResponse:
        return await create_chat_completion(registry.get(body.model), body, request)

    @app.post("/v1/embeddings")
    async def embeddings(body: schemas.EmbeddingRequest, request: Request) -> schemas.Embeddings:
        model = registry.get(body.model)
        texts = [body.input] if isinstance(body.input, str) else body.input
        run = model.run
        if sum(map(len, texts)) > MAX_CHARACTERS:
            raise ApiError(400, f"the texts may have at most {MAX_CHARACTERS:,} characters", param="input")
        vectors, tokens = await model.ask(
            lambda report: (run.embed(texts, report=report), sum(len(run.tokenizer.encode(text)) for text in texts)),
            request,
        )
        width = len(vectors[0])
        if body.dimensions not in (None, width):
            raise ApiError(400, f"vectors of {model.name} have {width} dimensions", param="dimensions")
        data = [
            schemas.Embedding(index=index, embedding=_vector(vector, body.encoding_format))
            for index, vector in enumerate(vectors)
        ]
        usage = schemas.Usage(prompt_tokens=tokens, total_tokens=tokens)
        return schemas.Embeddings(data=data, model=model.name, usage=usage)


def _vector(vector: np.ndarray, encoding: str) -> list[float] | str:
    """A vector as numbers, or as float32 bytes in base64."""
    if encoding == "float":
        return [float(x) for x in vector]
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()
