"""Views over HTTP: charts as Vega-Lite, and the pages that one steps through."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import HTMLResponse, Response

from ensue.core.events import Report
from ensue.look.tree_page import tree_html
from ensue.look.view import View
from ensue.look.views import show
from ensue.runs.translation import TranslationRun
from ensue.search.beam import Search
from ensue.serve import schemas as forms
from ensue.serve.errors import Refused
from ensue.serve.model_registry import Hall, Served, jsonable
from ensue.verbs.race_folder import open_race
from ensue.verbs.translate import trace_of

VIEWS = (
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
"""Charts that can be asked for: of runs and races, which need no file."""
PAGES = ("bptt", "steps", "tree")
"""Pages that can be asked for."""
HTML: dict[int | str, dict[str, Any]] = {200: {"content": {"text/html": {"schema": {"type": "string"}}}}}
SCRIPTS = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def add_views(app: FastAPI, hall: Hall) -> None:
    """``/api/look/{view}`` and ``/api/page/{page}``."""

    @app.post("/api/look/{view}")
    async def view(view: str, form: forms.LookForm, request: Request) -> forms.Looked:
        if view not in VIEWS:
            raise Refused(404, f"there is no view of that name; there is {', '.join(VIEWS)}")
        of = [hall.find(name) for name in form.models]

        def draw(_: Any) -> forms.Looked:
            seen = _seen(view, hall, of, form)
            chart, numbers = seen.draw().to_dict(), jsonable(seen.numbers)
            return forms.Looked(view=view, chart=hall.named(chart), numbers=hall.named(numbers))

        return await (of[0].ask if of else hall.drawing.take)(draw, request)

    @app.get("/api/page/{page}", response_class=Response, responses=HTML)
    async def page(page: str, form: Annotated[forms.PageForm, Query()], request: Request) -> HTMLResponse:
        if page not in PAGES:
            raise Refused(404, f"there is no page of that name; there is {', '.join(PAGES)}")
        if page == "bptt":
            how: dict[str, Any] = {"steps": form.steps, "hidden": form.hidden, "seed": form.seed, "cut": form.cut}
            return _page(await hall.drawing.take(lambda _: show("bptt", [], **how).draw(), request))
        served = hall.find(form.model)
        run, search = served.needs(TranslationRun, "translate"), Search(beam=form.beam)

        def draw(report: Report) -> str:
            if page == "steps":
                return str(show("steps", [run], text=form.text, beam=form.beam).draw())
            (found,) = run.translate([form.text], search=search, trace=True, report=report)
            return tree_html(trace_of(found, run.tokenizer, search))

        return _page(await served.ask(draw, request))


def _seen(view: str, hall: Hall, of: list[Served], form: forms.LookForm) -> View:
    """A view of runs, or of a race."""
    given = form.model_dump(exclude={"models", "race"})
    how = {name: value for name, value in given.items() if value}
    if view == "race":
        if form.race not in hall.races:
            known = ", ".join(hall.races) or "none"
            raise Refused(404, f"there is no race of that name; there is {known}", param="race")
        return show("race", [open_race(hall.races[form.race])])
    return show(view, [one.run for one in of], **how)


def _page(text: str) -> HTMLResponse:
    """A page that may run its own script and no other, fetch nothing, and reach nothing of this site's."""
    held = " ".join(f"'sha256-{_hash(script)}'" for script in SCRIPTS.findall(text))
    policy = (
        f"sandbox allow-scripts allow-downloads; default-src 'none'; script-src {held}; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    )
    return HTMLResponse(text, headers={"content-security-policy": policy})


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
