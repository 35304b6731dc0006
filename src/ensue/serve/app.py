"""The HTTP interface: verbs of ``ensue`` over the runs that are served.

OpenAI's forms (``/v1/models``, ``/v1/completions``, ``/v1/embeddings``), our own (``/api/…``), ``/health`` and
``/metrics``. No file or address that a client names is ever opened: runs are found by the names they are served under.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import numpy as np
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse, Response, StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from ensue import __version__
from ensue.core.errors import InputError
from ensue.search.beam import Search
from ensue.serve import forms
from ensue.serve.completing import complete
from ensue.serve.counts import Counted, Counts
from ensue.serve.guard import Guard
from ensue.serve.hall import Hall, jsonable
from ensue.serve.page import page_file
from ensue.serve.refusals import SAID, Refused, answer
from ensue.verbs.look import look
from ensue.verbs.run import Run
from ensue.verbs.runs.language import LanguageRun
from ensue.verbs.runs.translation import TranslationRun
from ensue.verbs.translate import trace_of

VIEWS = ("attention", "alignment", "next", "surprise", "positions", "gates", "gradients", "words", "curves", "training")
"""Views that can be asked for: charts of runs, which need no file."""
MOST_LETTERS = 100_000
"""Of all texts of one request that are read in one go."""
LOCAL = ("127.0.0.1", "localhost", "[::1]")


def create_app(runs: Mapping[str, Run], *, key: str = "", hosts: tuple[str, ...] = (), numbers: bool = False) -> Guard:
    """The server's app for runs by name; ``hosts`` are names beside those of this machine, ``numbers`` lets any address
    of numbers be one.
    """
    hall, counts = Hall(runs), Counts()

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(hall.close)

    app = FastAPI(title="ensue", version=__version__, docs_url=None, redoc_url=None, lifespan=life, responses=SAID)
    _add_refusals(app)
    _add_openai(app, hall)
    _add_own(app, hall)
    _add_state(app, hall, counts)
    _add_page(app)
    return Guard(Counted(app, counts), hosts=(*LOCAL, *hosts), numbers=numbers, key=key)


def _add_refusals(app: FastAPI) -> None:
    """Every refusal in one form."""

    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> Response:
        return answer(error)

    @app.exception_handler(InputError)
    async def input_error(request: Request, error: InputError) -> Response:
        return answer(Refused(400, str(error)))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body")
        return answer(Refused(422, f"{where or 'the body'}: {first['msg']}", param=where or None))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        return answer(Refused(error.status_code, str(error.detail)), error.headers)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        logging.getLogger("ensue.serve").exception("a request failed", exc_info=error)
        return answer(Refused(500, "the server failed; its log says how"))


def _add_openai(app: FastAPI, hall: Hall) -> None:
    """The forms that clients of OpenAI's API know."""

    @app.get("/v1/models")
    async def models() -> forms.Models:
        return forms.Models(data=[one.card for one in hall.served.values()])

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> forms.ModelCard:
        return hall.find(name).card

    @app.post("/v1/completions", response_model=forms.Completion)
    async def completions(form: forms.CompletionForm, request: Request) -> forms.Completion | StreamingResponse:
        return await complete(hall.find(form.model), form, request)

    @app.post("/v1/embeddings")
    async def embeddings(form: forms.EmbeddingForm) -> forms.Embeddings:
        served = hall.find(form.model)
        texts = [form.input] if isinstance(form.input, str) else form.input
        run = served.run
        if sum(map(len, texts)) > MOST_LETTERS:
            raise Refused(400, f"at most {MOST_LETTERS:,} letters are read at once", param="input")
        vectors, count = await served.ask(
            lambda: (run.embed(texts), sum(len(run.tokenizer.encode(text)) for text in texts))
        )
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


def _add_own(app: FastAPI, hall: Hall) -> None:
    """What ensue can do beside that."""

    @app.post("/api/next")
    async def next_tokens(form: forms.NextForm) -> forms.Next:
        served = hall.find(form.model)
        run = served.needs(LanguageRun, "say what comes next")
        found = await served.ask(lambda: run.next_pieces(form.text, form.top))
        told = [forms.Likely(token=name, text=text, probability=p) for name, text, p in found]
        return forms.Next(model=served.name, next=told)

    @app.post("/api/translate")
    async def translate(form: forms.TranslateForm) -> forms.Translations:
        served = hall.find(form.model)
        run = served.needs(TranslationRun, "translate")
        if sum(map(len, form.lines)) * form.beam > MOST_LETTERS:
            raise Refused(400, f"letters times beam are at most {MOST_LETTERS:,}", param="lines")
        if form.trace and len(form.lines) != 1:
            raise Refused(400, "a trace is of one line", param="trace")
        search = Search(beam=form.beam, length=form.length, alpha=form.alpha, coverage=form.coverage, nbest=form.nbest)
        notes: list[str] = []
        found = await served.ask(
            lambda: run.translate(form.lines, search=search, prefix=form.prefix, trace=form.trace, notes=notes)
        )
        told = [forms.Translated(**jsonable(one.as_dict())) for one in found]
        trace = jsonable(trace_of(found[0], run.tokenizer, search)) if form.trace else None
        return forms.Translations(model=served.name, translations=told, trace=trace, notes=notes)

    @app.post("/api/predict")
    async def predict(form: forms.PredictForm) -> forms.Predictions:
        served = hall.find(form.model)
        found = await served.ask(lambda: served.run.predict(form.texts))
        return forms.Predictions(model=served.name, predictions=[jsonable(one) for one in found])

    @app.post("/api/fill")
    async def fill(form: forms.FillForm) -> forms.Filling:
        served = hall.find(form.model)
        found = await served.ask(lambda: served.run.fill(form.text, top=form.top, rounds=form.rounds))
        told = jsonable(found.as_dict())
        return forms.Filling(model=served.name, text=told["text"], gaps=told["gaps"])

    @app.post("/api/look/{view}")
    async def view(view: str, form: forms.LookForm) -> forms.Looked:
        if view not in VIEWS:
            raise Refused(404, f"there is no view of that name; there is {', '.join(VIEWS)}")
        paths = [hall.find(name).run.folder.path for name in form.models]
        how = {name: value for name, value in form.model_dump(exclude={"models"}).items() if value}

        def draw() -> forms.Looked:
            seen = look(view, paths, **how)
            chart, numbers = seen.draw().to_dict(), jsonable(seen.numbers)
            return forms.Looked(view=view, chart=hall.named(chart), numbers=hall.named(numbers))

        return await hall.find(form.models[0]).ask(draw) if form.models else await run_in_threadpool(draw)


def _add_state(app: FastAPI, hall: Hall, counts: Counts) -> None:
    """How the server does."""

    @app.get("/health")
    async def health() -> forms.Health:
        return forms.Health(models=len(hall.served))

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> PlainTextResponse:
        return PlainTextResponse(counts.told({name: one.load for name, one in hall.served.items()}))


def _add_page(app: FastAPI) -> None:
    """The page for people."""

    @app.get("/", include_in_schema=False)
    async def root() -> Response:
        return await file("index.html")

    @app.get("/page/{name}", include_in_schema=False)
    async def file(name: str) -> Response:
        found = await run_in_threadpool(page_file, name)  # charts' script takes seconds to make
        if found is None:
            raise Refused(404, "there is no such file")
        return Response(found[0], media_type=found[1], headers={"cache-control": "no-cache"})
