"""Views over HTTP: charts as Vega-Lite specifications, and interactive pages."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import HTMLResponse, Response

from ensue.core.events import Report
from ensue.core.files import finite
from ensue.look.tree_page import tree_html
from ensue.look.view import View
from ensue.look.views import show
from ensue.runs.translation import TranslationRun
from ensue.search.beam import Search
from ensue.serve import schemas
from ensue.serve.errors import ApiError
from ensue.serve.model_registry import ModelRegistry, ServedModel
from ensue.verbs.racing.folder import open_race
from ensue.verbs.translate import trace_of

SERVED_VIEWS = (
    "attention",
    "alignment",
    "next",
    "surprise",
    "positions",
    "gates",
    "gradients",
    "words",
    "senses",
    "curves",
    "training",
    "race",
)
"""Charts that clients may request: views of runs and races that read no other file."""
SERVED_PAGES = ("bptt", "steps", "tree")
"""Pages that clients may request."""
HTML: dict[int | str, dict[str, Any]] = {200: {"content": {"text/html": {"schema": {"type": "string"}}}}}
SCRIPTS = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def add_view_routes(app: FastAPI, registry: ModelRegistry) -> None:
    """Add ``/api/look/{view}`` and ``/api/page/{page}``."""

    @app.post("/api/look/{view}")
    async def view(view: str, body: schemas.ViewRequest, request: Request) -> schemas.ViewResponse:
        if view not in SERVED_VIEWS:
            raise ApiError(404, f"there is no view of that name; available: {', '.join(SERVED_VIEWS)}")
        models = [registry.get(name) for name in body.models]

        def draw(_: Any) -> schemas.ViewResponse:
            drawn = _view(view, registry, models, body)
            chart, numbers = (registry.names.replace(part) for part in (drawn.draw().to_dict(), finite(drawn.numbers)))
            return schemas.ViewResponse(view=view, chart=chart, numbers=numbers)

        return await (models[0].ask if models else registry.chart_queue.run)(draw, request)

    @app.get("/api/page/{page}", response_class=Response, responses=HTML)
    async def page(page: str, query: Annotated[schemas.PageRequest, Query()], request: Request) -> HTMLResponse:
        if page not in SERVED_PAGES:
            raise ApiError(404, f"there is no page of that name; available: {', '.join(SERVED_PAGES)}")
        if page == "bptt":
            options: dict[str, Any] = query.model_dump(include={"steps", "hidden", "seed", "cut"})
            return _page(await registry.chart_queue.run(lambda _: show("bptt", [], **options).draw(), request))
        model = registry.get(query.model)
        run, search = model.require(TranslationRun, "translate"), Search(beam=query.beam)

        def draw(report: Report) -> str:
            if page == "steps":
                return str(show("steps", [run], text=query.text, beam=query.beam).draw())
            (translation,) = run.translate([query.text], search=search, trace=True, report=report)
            return tree_html(trace_of(translation, run.tokenizer, search))

        return _page(await model.ask(draw, request))


def _view(view: str, registry: ModelRegistry, models: list[ServedModel], body: schemas.ViewRequest) -> View:
    """A view of models, or of a race."""
    given = body.model_dump(exclude={"models", "race"})
    options = {name: value for name, value in given.items() if value}
    if view == "race":
        if body.race not in registry.races:
            known = ", ".join(registry.races) or "none"
            raise ApiError(404, f"there is no race of that name; available: {known}", param="race")
        return show("race", [open_race(registry.races[body.race])])
    return show(view, [model.run for model in models], **options)


def _page(html: str) -> HTMLResponse:
    """A page in a sandbox: it may run its own scripts, but load nothing and not access this site."""
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in SCRIPTS.findall(html))
    policy = (
        f"sandbox allow-scripts allow-downloads; default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    )
    return HTMLResponse(html, headers={"content-security-policy": policy})


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
