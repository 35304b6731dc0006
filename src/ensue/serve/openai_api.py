"""The forms that clients of OpenAI's API know."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from ensue.serve import schemas as forms
from ensue.serve.completions_api import complete
from ensue.serve.errors import Refused
from ensue.serve.model_registry import Hall

MOST_LETTERS = 100_000
"""Of all texts of one request that are read in one go."""
EVENT: dict[str, Any] = {
    "type": "object",
    "required": ["data"],
    "properties": {
        "data": {"type": "string", "description": "a piece of the completion as JSON, in its form; [DONE] at the end"}
    },
}
STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "the completion, or where stream is true its pieces as events",
        "content": {"text/event-stream": {"itemSchema": EVENT}},
    }
}


def add_openai(app: FastAPI, hall: Hall) -> None:
    """``/v1/models``, ``/v1/completions`` and ``/v1/embeddings``."""

    @app.get("/v1/models")
    async def models() -> forms.Models:
        return forms.Models(data=[one.card for one in hall.served.values()])

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> forms.ModelCard:
        return hall.find(name).card

    @app.post("/v1/completions", response_model=forms.Completion, responses=STREAM)
    async def completions(form: forms.CompletionForm, request: Request) -> forms.Completion | StreamingResponse:
        return await complete(hall.find(form.model), form, request)

    @app.post("/v1/embeddings")
    async def embeddings(form: forms.EmbeddingForm, request: Request) -> forms.Embeddings:
        served = hall.find(form.model)
        texts = [form.input] if isinstance(form.input, str) else form.input
        run = served.run
        if sum(map(len, texts)) > MOST_LETTERS:
            raise Refused(400, f"at most {MOST_LETTERS:,} letters are read at once", param="input")
        vectors, count = await served.ask(
            lambda report: (run.embed(texts, report=report), sum(len(run.tokenizer.encode(text)) for text in texts)),
            request,
        )
        wide = len(vectors[0])
        if form.dimensions not in (None, wide):
            raise Refused(400, f"vectors of {served.name} have {wide} dimensions", param="dimensions")
        data = [
            forms.Embedding(index=place, embedding=_vector(vector, form.encoding_format))
            for place, vector in enumerate(vectors)
        ]
        return forms.Embeddings(
            data=data, model=served.name, usage=forms.Usage(prompt_tokens=count, total_tokens=count)
        )


def _vector(vector: np.ndarray, how: str) -> list[float] | str:
    """A vector as numbers, or as their bytes."""
    if how == "float":
        return [float(x) for x in vector]
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()
