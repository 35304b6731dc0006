"""The page for people: a few files as they lie here, and the script that draws charts, made once by vl-convert."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import threading
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from ensue.serve.errors import Refused

FOLDER = Path(__file__).parent / "page"
CHARTS = "vega.js"
"""The script that draws charts: of all files the only one that takes its time to make."""
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}


@dataclass(frozen=True)
class PageFile:
    """A file of the page."""

    content: bytes
    kind: str

    @cached_property
    def packed(self) -> bytes:
        """The same, a third as large."""
        return gzip.compress(self.content, mtime=0)

    @cached_property
    def tag(self) -> str:
        """What it is known by: a browser that has it asks whether it is still the same."""
        return f'"{hashlib.sha256(self.content).hexdigest()[:32]}"'

    def answer(self, request: Request) -> Response:
        """The file, packed where the client unpacks; nothing where the client has it."""
        headers = {"cache-control": "no-cache", "etag": self.tag, "vary": "accept-encoding"}
        if self.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(self.content, media_type=self.kind, headers=headers)
        return Response(self.packed, media_type=self.kind, headers={**headers, "content-encoding": "gzip"})


def add_page(app: FastAPI) -> None:
    """``/`` and what it is made of; the script that draws charts is made while nobody waits for it yet."""
    threading.Thread(target=page_file, args=(CHARTS,), name="charts", daemon=True).start()

    @app.get("/", include_in_schema=False)
    async def root(request: Request) -> Response:
        return await file("index.html", request)

    @app.get("/page/{name}", include_in_schema=False)
    async def file(name: str, request: Request) -> Response:
        found = await run_in_threadpool(page_file, name)
        if found is None:
            raise Refused(404, "there is no such file")
        return found.answer(request)


def page_file(name: str) -> PageFile | None:
    """A file of the page; None where there is none of that name."""
    if name not in _names():
        return None
    with _making if name == CHARTS else contextlib.nullcontext():  # it is made once, whoever asks meanwhile
        return _read(name)


_making = threading.Lock()


@cache
def _names() -> frozenset[str]:
    """The files there are; nothing beside them is ever read."""
    return frozenset({CHARTS, *(path.name for path in FOLDER.iterdir() if path.suffix in KINDS)})


@cache
def _read(name: str) -> PageFile:
    if name == CHARTS:
        import vl_convert

        return PageFile(vl_convert.javascript_bundle().encode(), KINDS[".js"])  # type: ignore[call-arg]
    path = FOLDER / name
    return PageFile(path.read_bytes(), KINDS[path.suffix])
