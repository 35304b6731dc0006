"""What runs can be asked for beside OpenAI's forms: the verbs of ``ensue``."""

from __future__ import annotations

from fastapi import FastAPI, Request

from ensue.runs.forecast import ForecastRun
from ensue.runs.language import LanguageRun
from ensue.runs.translation import TranslationRun
from ensue.search.beam import Search
from ensue.serve import schemas as forms
from ensue.serve.errors import Refused
from ensue.serve.model_registry import Hall, jsonable
from ensue.serve.openai_api import MOST_LETTERS
from ensue.verbs.translate import trace_of
from ensue.verbs.words import analogy as word_analogy
from ensue.verbs.words import neighbours as word_neighbours


def add_own(app: FastAPI, hall: Hall) -> None:
    """``/api/…``, but for what is drawn."""

    @app.get("/api/runs")
    async def runs() -> forms.Runs:
        return forms.Runs(runs=[one.card for one in hall.served.values()], races=list(hall.races))

    @app.post("/api/next")
    async def next_tokens(form: forms.NextForm, request: Request) -> forms.Next:
        served = hall.find(form.model)
        run = served.needs(LanguageRun, "say what comes next")
        found = await served.ask(lambda _: run.next_pieces(form.text, form.top), request)
        told = [forms.Likely(token=name, text=text, probability=p) for name, text, p in found]
        return forms.Next(model=served.name, next=told)

    @app.post("/api/translate")
    async def translate(form: forms.TranslateForm, request: Request) -> forms.Translations:
        served = hall.find(form.model)
        run = served.needs(TranslationRun, "translate")
        if sum(map(len, form.lines)) * form.beam > MOST_LETTERS:
            raise Refused(400, f"letters times beam are at most {MOST_LETTERS:,}", param="lines")
        if form.trace and len(form.lines) != 1:
            raise Refused(400, "a trace is of one line", param="trace")
        search = Search(beam=form.beam, length=form.length, alpha=form.alpha, coverage=form.coverage, nbest=form.nbest)
        notes: list[str] = []
        how = {"search": search, "prefix": form.prefix, "trace": form.trace, "notes": notes}
        found = await served.ask(lambda report: run.translate(form.lines, **how, report=report), request)  # type: ignore[arg-type]
        told = [forms.Translated(**jsonable(one.as_dict())) for one in found]
        trace = jsonable(trace_of(found[0], run.tokenizer, search)) if form.trace else None
        return forms.Translations(model=served.name, translations=told, trace=trace, notes=notes)

    @app.post("/api/predict")
    async def predict(form: forms.PredictForm, request: Request) -> forms.Predictions:
        served = hall.find(form.model)
        notes: list[str] = []
        found = await served.ask(lambda report: served.run.predict(form.texts, report=report), request, notes)
        return forms.Predictions(model=served.name, predictions=[jsonable(one) for one in found], notes=notes)

    @app.post("/api/fill")
    async def fill(form: forms.FillForm, request: Request) -> forms.Filling:
        served = hall.find(form.model)
        found = await served.ask(lambda _: served.run.fill(form.text, top=form.top, rounds=form.rounds), request)
        told = jsonable(found.as_dict())
        return forms.Filling(model=served.name, text=told["text"], gaps=told["gaps"])

    @app.post("/api/forecast")
    async def forecast(form: forms.ForecastForm, request: Request) -> forms.Forecast:
        served = hall.find(form.model)
        run = served.needs(ForecastRun, "forecast")
        notes: list[str] = []
        found = await served.ask(lambda report: run.predict_values(form.values, form.horizon, report), request, notes)
        return forms.Forecast(model=served.name, steps=[jsonable(one) for one in found], notes=notes)

    @app.post("/api/neighbours")
    async def neighbours(form: forms.NeighboursForm, request: Request) -> forms.Words:
        served = hall.find(form.model)
        found = await served.ask(lambda _: word_neighbours(served.run, form.word, top=form.top, by=form.by), request)
        return _words(served.name, found)

    @app.post("/api/analogy")
    async def analogy(form: forms.AnalogyForm, request: Request) -> forms.Words:
        served = hall.find(form.model)
        words = (form.first, form.minus, form.plus)
        found = await served.ask(lambda _: word_analogy(served.run, *words, top=form.top), request)
        return _words(served.name, found)


def _words(model: str, found: list[tuple[str, float]]) -> forms.Words:
    return forms.Words(model=model, words=[forms.Near(word=word, value=value) for word, value in found])
