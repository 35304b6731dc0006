"""The page for people: a few files as they lie here, and the script that draws charts, made once by vl-convert."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from ensue.serve.refusals import Refused

FOLDER = Path(__file__).parent / "page"
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}


def add_page(app: FastAPI) -> None:
    """``/`` and what it is made of."""

    @app.get("/", include_in_schema=False)
    async def root() -> Response:
        return await file("index.html")

    @app.get("/page/{name}", include_in_schema=False)
    async def file(name: str) -> Response:
        found = await run_in_threadpool(page_file, name)  # charts' script takes seconds to make
        if found is None:
            raise Refused(404, "there is no such file")
        return Response(found[0], media_type=found[1], headers={"cache-control": "no-cache"})


def page_file(name: str) -> tuple[bytes, str] | None:
    """A file of the page and its kind; None where there is none of that name."""
    return _read(name) if name in _names() else None


@cache
def _names() -> frozenset[str]:
    """The files there are; nothing beside them is ever read."""
    return frozenset({"vega.js", *(path.name for path in FOLDER.iterdir() if path.suffix in KINDS)})


@cache
def _read(name: str) -> tuple[bytes, str]:
    if name == "vega.js":
        import vl_convert

        return vl_convert.javascript_bundle().encode(), KINDS[".js"]  # type: ignore[call-arg]
    path = FOLDER / name
    return path.read_bytes(), KINDS[path.suffix]
