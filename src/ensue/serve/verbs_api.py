"""The commands of ensue as an API, under ``/api``."""

from __future__ import annotations

from fastapi import FastAPI, Request

from ensue.core.files import finite
from ensue.runs.forecast import ForecastRun
from ensue.runs.language import LanguageRun
from ensue.runs.translation import TranslationRun
from ensue.search.beam import Search
from ensue.serve import schemas
from ensue.serve.errors import ApiError
from ensue.serve.model_registry import ModelRegistry
from ensue.serve.openai_api import MAX_CHARACTERS
from ensue.verbs.translate import trace_of
from ensue.verbs.words import analogy as word_analogy
from ensue.verbs.words import neighbours as word_neighbours


def add_verb_routes(app: FastAPI, registry: ModelRegistry) -> None:
    """Add ``/api/…``, except views and pages."""

    @app.get("/api/runs")
    async def runs() -> schemas.RunList:
        return schemas.RunList(runs=[model.card for model in registry.models.values()], races=list(registry.races))

    @app.post("/api/next")
    async def next_tokens(body: schemas.NextRequest, request: Request) -> schemas.NextTokens:
        model = registry.get(body.model)
        run = model.require(LanguageRun, "predict the next token")
        pieces = await model.ask(lambda _: run.next_pieces(body.text, body.top), request)
        tokens = [schemas.NextToken(token=name, text=text, probability=p) for name, text, p in pieces]
        return schemas.NextTokens(model=model.name, next=tokens)

    @app.post("/api/translate")
    async def translate(body: schemas.TranslateRequest, request: Request) -> schemas.Translations:
        model = registry.get(body.model)
        run = model.require(TranslationRun, "translate")
        if sum(map(len, body.lines)) * body.beam > MAX_CHARACTERS:
            raise ApiError(400, f"characters × beam may be at most {MAX_CHARACTERS:,}", param="lines")
        if body.trace and len(body.lines) != 1:
            raise ApiError(400, "trace takes one line", param="trace")
        search = Search(beam=body.beam, length=body.length, alpha=body.alpha, coverage=body.coverage, nbest=body.nbest)
        notes: list[str] = []
        options = {"search": search, "prefix": body.prefix, "trace": body.trace, "notes": notes}
        texts = await model.ask(lambda report: run.translate(body.lines, **options, report=report), request)  # type: ignore[arg-type]
        translations = [schemas.Translation(**finite(text.as_dict())) for text in texts]
        trace = finite(trace_of(texts[0], run.tokenizer, search)) if body.trace else None
        return schemas.Translations(model=model.name, translations=translations, trace=trace, notes=notes)

    @app.post("/api/predict")
    async def predict(body: schemas.PredictRequest, request: Request) -> schemas.Predictions:
        model = registry.get(body.model)
        notes: list[str] = []
        predictions = await model.ask(lambda report: model.run.predict(body.texts, report=report), request, notes)
        return schemas.Predictions(model=model.name, predictions=finite(predictions), notes=notes)

    @app.post("/api/fill")
    async def fill(body: schemas.FillRequest, request: Request) -> schemas.Filled:
        model = registry.get(body.model)
        filled = await model.ask(lambda _: model.run.fill(body.text, top=body.top, rounds=body.rounds), request)
        return schemas.Filled(model=model.name, text=filled.text, gaps=finite(filled.as_dict()["gaps"]))

    @app.post("/api/forecast")
    async def forecast(body: schemas.ForecastRequest, request: Request) -> schemas.Forecast:
        model = registry.get(body.model)
        run = model.require(ForecastRun, "forecast")
        notes: list[str] = []
        steps = await model.ask(lambda report: run.predict_values(body.values, body.horizon, report), request, notes)
        return schemas.Forecast(model=model.name, steps=finite(steps), notes=notes)

    @app.post("/api/neighbours")
    async def neighbours(body: schemas.NeighboursRequest, request: Request) -> schemas.WordList:
        model = registry.get(body.model)
        words = await model.ask(lambda _: word_neighbours(model.run, body.word, top=body.top, by=body.by), request)
        return _word_list(model.name, words)

    @app.post("/api/analogy")
    async def analogy(body: schemas.AnalogyRequest, request: Request) -> schemas.WordList:
        model = registry.get(body.model)
        terms = (body.first, body.minus, body.plus)
        words = await model.ask(lambda _: word_analogy(model.run, *terms, top=body.top), request)
        return _word_list(model.name, words)


def _word_list(model: str, words: list[tuple[str, float]]) -> schemas.WordList:
    return schemas.WordList(model=model, words=[schemas.ScoredWord(word=word, value=value) for word, value in words])
